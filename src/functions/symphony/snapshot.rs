//! What a user may see of jobs and flows.

use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use super::compiled::CompiledJob;
use super::config::StepSource;
use super::progress::{ActivityCell, EpochCell, MinimumCell};
use super::step::{Kind, PacketsCell, RequestsCell, StepsCell, progress};
use super::track::{CountCell, NewestCell, PsnCell};
use crate::dataplane::{IpAddress, Marks};

/// One flow's cells, in one cache line; `struct flow_state` on the kernel side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct FlowState {
    /// Expected PSN.
    pub psn: PsnCell,
    /// Resynchronisations.
    pub resyncs: u32,
    /// Newest PSN.
    pub newest: NewestCell,
    /// Packets and messages.
    pub count: CountCell,
    /// Requests of the step in hand.
    pub requests: RequestsCell,
    /// Packets of the step in hand.
    pub packets: PacketsCell,
    /// Completed steps.
    pub steps: StepsCell,
}

/// One job's cells; `struct job_state` on the kernel side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    /// Last data packet and generation.
    pub activity: ActivityCell,
    /// Epoch of the last packet that took part.
    pub epoch: EpochCell,
    /// The laggard's progress.
    pub minimum: MinimumCell,
}

/// One flow of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowView {
    /// Source address, RFC 5952 or dotted.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// Destination queue pair.
    pub qpn: u32,
    /// The user's job number.
    pub job: u32,
    /// Data packets, retransmissions included.
    pub packets: u64,
    /// Packets whose PSN is not newer than the newest seen.
    pub retransmitted: u64,
    /// With-immediate message ends, each once.
    pub messages: u64,
    /// Resynchronisations after a gap.
    pub resyncs: u64,
    /// Completed steps since the counters last restarted.
    pub step: u32,
    /// Progress in 1/256 steps.
    pub progress: u32,
    /// Whether it takes part in the job's minimum: it has sent data since the counters last restarted.
    pub takes_part: bool,
}

impl FlowView {
    /// What `state` says of the flow `src` -> `dst`, queue pair `qpn`, of the job with number `id`.
    pub fn new(
        (src, dst, qpn): (&IpAddress, &IpAddress, u32),
        id: u32,
        state: &FlowState,
        job: &CompiledJob,
        activity: ActivityCell,
    ) -> Self {
        let generation = activity.generation as u16;
        let current = state.steps.generation == generation;
        let step = match job.step_source {
            StepSource::Message | StepSource::Psn if !current => 0, // restarts with the flow's next packet
            _ => state.steps.steps_done,
        };
        let packets = if state.packets.generation == generation { state.packets.packets } else { 0 };
        FlowView {
            src: display(src),
            dst: display(dst),
            qpn,
            job: id,
            packets: state.count.packets.into(),
            retransmitted: state.newest.retransmitted.into(),
            messages: state.count.messages.into(),
            resyncs: state.resyncs.into(),
            step,
            progress: progress(job, step, packets),
            // Queue pairs of an earlier run do not count as laggards.
            takes_part: current && state.requests.kind != Kind::Plain,
        }
    }
}

/// An address as people write it.
fn display(address: &IpAddress) -> String {
    IpAddr::V6(Ipv6Addr::from(*address)).to_canonical().to_string()
}

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobView {
    /// The user's number.
    pub job: u32,
    /// Name.
    pub name: String,
    /// Whether it is switched on.
    pub enabled: bool,
    /// Whether it has been idle once, so that it may be marked.
    pub armed: bool,
    /// Fewest completed steps of its flows.
    pub min_step: u32,
    /// Most completed steps of its flows.
    pub max_step: u32,
    /// The minimum register in 1/256 steps.
    pub minimum: u32,
    /// Packets of the job that took part.
    pub packets: u64,
    /// Packets that passed the lead test.
    pub lead_tests: u64,
    /// Marks on its packets.
    pub marks: Marks,
}

impl JobView {
    /// Fills in what tracking knows, here or in the kernel: `flows` are those of all jobs.
    pub fn observe(&mut self, activity: ActivityCell, minimum: MinimumCell, flows: &[FlowView]) {
        let steps = || flows.iter().filter(|flow| flow.job == self.job && flow.takes_part).map(|flow| flow.step);
        let (min_step, max_step) = (steps().min().unwrap_or(0), steps().max().unwrap_or(0));
        (self.min_step, self.max_step) = (min_step, max_step);
        self.armed = activity.armed();
        self.minimum = minimum.min;
    }
}

/// Packets by what tracking made of them, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// No RoCEv2 packet.
    pub not_roce: u64,
    /// Takes no PSN of the request direction: ACK, CNP, READ response and so on.
    pub not_data: u64,
    /// No edge of a job that is switched on.
    pub not_of_a_job: u64,
    /// A new flow, but no slot is free.
    pub flows_full: u64,
    /// The expected PSN.
    pub in_order: u64,
    /// Retransmission.
    pub old: u64,
    /// Loss before the switch: nothing is counted until it is refilled.
    pub gap: u64,
    /// Not the expected PSN, but taken as such.
    pub resync: u64,
}
