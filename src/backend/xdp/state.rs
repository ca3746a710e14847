//! Reading the kernel side's state.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};

use super::load::Kernel;
use super::mapped::Plain;
use super::skel::types;
use crate::dataplane::{DropReason, IpAddress};
use crate::functions::symphony::{
    ActivityCell, CountCell, EpochCell, FlowState, JobState, Kind, MinimumCell, NewestCell, Outcomes, PacketsCell,
    PsnCell, RequestsCell, StepsCell,
};

/// A map that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("BPF map {map}: {cause}")]
pub struct StateError {
    map: String,
    cause: String,
}

impl StateError {
    pub(super) fn new(map: &str, cause: impl ToString) -> Self {
        StateError { map: map.to_owned(), cause: cause.to_string() }
    }
}

/// A flow of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender.
    pub src: IpAddress,
    /// Receiver.
    pub dst: IpAddress,
    /// Destination queue pair.
    pub dest_qpn: u32,
    /// Slot of the job.
    pub job: u16,
    /// Slot of the flow.
    pub slot: u32,
    /// Tick of its last packet.
    pub last_tick: u32,
    /// Its registers.
    pub state: FlowState,
}

/// The kernel side's counters, summed over CPUs. What came in is `redirected` and the drops together; the outcomes count
/// each redirected packet once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handed to a socket. The socket may still have dropped it: see XDP_STATISTICS.
    pub redirected: u64,
    /// Dropped, by reason; reasons that did not occur are left out.
    pub drops: Vec<(DropReason, u64)>,
    /// What tracking made of the redirected packets.
    pub outcomes: Outcomes,
    /// Packets whose progress is not in the job's minimum because CPUs contended for it.
    pub cas_lost: u64,
}

impl Kernel {
    /// The counters.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn stats(&self) -> Result<Stats, StateError> {
        let per_cpu = self
            .skel
            .maps
            .stats
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| StateError::new("stats", e))?
            .unwrap_or_default();
        let cpus: Vec<types::stats> = per_cpu.iter().filter_map(|cpu| types::stats::from_bytes(cpu)).collect();
        let sum = |counter: fn(&types::stats) -> u64| cpus.iter().map(counter).sum();
        let drops = DropReason::ALL.iter().enumerate().map(|(i, reason)| {
            let count: u64 = cpus.iter().filter_map(|cpu| cpu.drops.get(i)).sum();
            (*reason, count)
        });
        Ok(Stats {
            redirected: sum(|s| s.redirected),
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            outcomes: Outcomes {
                not_roce: sum(|s| s.not_roce),
                not_data: sum(|s| s.not_data),
                not_of_a_job: sum(|s| s.not_of_a_job),
                flows_full: sum(|s| s.flows_full),
                in_order: sum(|s| s.in_order),
                old: sum(|s| s.old),
                gap: sum(|s| s.gap),
                resync: sum(|s| s.resync),
            },
            cas_lost: sum(|s| s.cas_lost),
        })
    }

    /// The flows that have a slot, by slot. A flow that comes while the table is read may be missing.
    pub fn flows(&self) -> Vec<Flow> {
        const IN_USE: usize = offset_of!(types::flow_state, in_use);
        let read = |slot: usize| {
            // First, so that the rest is of no earlier moment; the other half of the word is always zero.
            let in_use = self.flow_state.word(slot, IN_USE / 8)?.load(Ordering::Acquire);
            let raw = (in_use != 0).then(|| self.flow_state.read(slot))??;
            let types::flow_key { edge: types::edge_key { src, dst }, dest_qpn } = raw.key;
            let (slot, state) = (slot as u32, registers(&raw));
            Some(Flow { src, dst, dest_qpn, job: raw.job, slot, last_tick: raw.last_tick, state })
        };
        (0..self.flow_state.len()).filter_map(read).collect()
    }

    /// The registers of a flow slot; `None` out of range.
    pub fn flow_state(&self, slot: u32) -> Option<FlowState> {
        self.flow_state.read(slot as usize).map(|raw| registers(&raw))
    }

    /// The registers of a job slot; `None` out of range.
    pub fn job_state(&self, slot: u16) -> Option<JobState> {
        let raw = self.job_state.read(slot.into())?;
        Some(JobState {
            activity: ActivityCell { last_tick: raw.last_tick, generation: raw.generation },
            epoch: EpochCell { epoch: raw.epoch, generation: raw.epoch_generation },
            minimum: MinimumCell { min: raw.min, owner: raw.owner },
        })
    }
}

/// The kernel's struct as the stages have it.
fn registers(raw: &types::flow_state) -> FlowState {
    FlowState {
        psn: PsnCell { expected: raw.expected, gap_since: raw.gap_since },
        resyncs: raw.resyncs,
        newest: NewestCell { newest: raw.newest, retransmitted: raw.retransmitted },
        count: CountCell { packets: raw.packets, messages: raw.messages },
        requests: RequestsCell {
            generation: raw.requests_generation,
            requests: raw.requests,
            kind: match raw.kind {
                1 => Kind::Ring,
                2 => Kind::Plain,
                _ => Kind::Unknown,
            },
        },
        packets: PacketsCell { packets: raw.step_packets, generation: raw.packets_generation, tag: raw.tag },
        steps: StepsCell {
            steps_done: raw.steps_done,
            generation: raw.steps_generation,
            in_collective: raw.in_collective,
        },
    }
}
