//! The control plane's side of Symphony: jobs come and go, parameters change, silent flows are forgotten. All of it
//! between packets.

use std::fmt::Display;
use std::net::IpAddr;

use super::classify::{FlowEntry, FlowKey};
use super::compiled::{CompiledJob, edges, mapped, tick, ticks};
use super::progress::{ActivityCell, UNARMED};
use super::snapshot::{FlowState, FlowView, JobState, JobView, Outcomes};
use super::{Job, JobCounters, Parameters, StepSource, Symphony};
use crate::dataplane::Nanos;

/// Flows silent for so long are forgotten.
pub const FLOW_AGE_NS: Nanos = 60_000_000_000;

/// The longest `idle` that 32 bits of ticks can tell: 2^31 of them, about 36 minutes.
const MAX_IDLE_NS: Nanos = 1 << 41;

/// Why a wish of the control plane is refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two jobs of one number.
    #[error("job id = {id}: taken by job \"{name}\"; remove that one first or choose another id")]
    IdTaken {
        /// The number.
        id: u32,
        /// Name of the job that has it.
        name: String,
    },
    /// No job of that number.
    #[error("job id = {id}: there is no such job; `symphony ctl jobs` lists them")]
    UnknownJob {
        /// The number.
        id: u32,
    },
    /// Two jobs on one address pair.
    #[error(
        "job {id}: ring edge {src} -> {dst} belongs to job {other}; give the ranks of different jobs addresses of their own"
    )]
    EdgeTaken {
        /// The job refused.
        id: u32,
        /// Sender.
        src: IpAddr,
        /// Receiver.
        dst: IpAddr,
        /// The job that has the edge.
        other: u32,
    },
    /// A ring of one rank, or none.
    #[error("job {id}: ring has {ranks} rank(s); name at least 2 addresses")]
    RingTooShort {
        /// The job refused.
        id: u32,
        /// How many it names.
        ranks: usize,
    },
    /// An address named twice.
    #[error("job {id}: ring names {address} twice; each rank needs an address of its own")]
    DuplicateAddress {
        /// The job refused.
        id: u32,
        /// The address.
        address: IpAddr,
    },
    /// IPv4 and IPv6 in one ring.
    #[error("job {id}: ring mixes IPv4 and IPv6 ({first}, {other}); use addresses of one family")]
    MixedFamilies {
        /// The job refused.
        id: u32,
        /// The first rank's address.
        first: IpAddr,
        /// The first one of the other family.
        other: IpAddr,
    },
    /// A number that makes no sense.
    #[error("job {id}: {field} = {value}; {cure}")]
    Value {
        /// The job refused.
        id: u32,
        /// Name of the field.
        field: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        cure: &'static str,
    },
    /// No room for another job.
    #[error("job {id}: the switch holds {capacity} jobs already; remove one")]
    JobsFull {
        /// The job refused.
        id: u32,
        /// How many there is room for.
        capacity: usize,
    },
    /// No room for so many edges.
    #[error("job {id}: its {ranks} edges don't fit beside those of other jobs; the switch holds {capacity}")]
    EdgesFull {
        /// The job refused.
        id: u32,
        /// How many it has.
        ranks: usize,
        /// How many there is room for.
        capacity: usize,
    },
}

/// Whether a job makes sense by itself.
fn check(job: &Job) -> Result<(), Error> {
    let id = job.id;
    let value = |ok: bool, field, value: &dyn Display, cure| {
        if ok { Ok(()) } else { Err(Error::Value { id, field, value: value.to_string(), cure }) }
    };
    let Some(first) = job.ring.first().filter(|_| job.ring.len() >= 2) else {
        return Err(Error::RingTooShort { id, ranks: job.ring.len() });
    };
    if let Some(other) = job.ring.iter().find(|address| address.is_ipv4() != first.is_ipv4()) {
        return Err(Error::MixedFamilies { id, first: *first, other: *other });
    }
    let mut sorted = job.ring.clone();
    sorted.sort_unstable_by_key(|address| mapped(*address));
    if let Some(twice) = sorted.windows(2).find(|pair| mapped(pair[0]) == mapped(pair[1])) {
        return Err(Error::DuplicateAddress { id, address: twice[0] });
    }
    let requests = job.requests_per_step;
    value(requests != 0, "requests_per_step", &requests, "must be at least 1")?;
    value(
        requests.is_power_of_two() || job.step_source != StepSource::Imm,
        "requests_per_step",
        &requests,
        "must be a power of two with step_source = imm",
    )?;
    value(
        matches!(job.path_mtu, 256 | 512 | 1024 | 2048 | 4096),
        "path_mtu",
        &job.path_mtu,
        "must be 256, 512, 1024, 2048 or 4096",
    )?;
    value(job.packets_per_step != Some(0), "packets_per_step", &0, "must be at least 1, or left out when not known")?;
    value(
        job.packets_per_step.is_some() || job.step_source != StepSource::Psn,
        "packets_per_step",
        &"unknown",
        "must be given with step_source = psn",
    )?;
    value(
        (1..=u16::MAX.into()).contains(&job.steps_per_collective),
        "steps_per_collective",
        &job.steps_per_collective,
        "must be 1..=65535; it is 2(n-1) for an all-reduce of n ranks",
    )?;
    value(
        (1 << 10..=MAX_IDLE_NS).contains(&job.idle_ns),
        "idle_ns",
        &job.idle_ns,
        "must be from 1024 ns to 36 minutes; 10 steps are a good choice",
    )
}

impl Symphony {
    /// Adds a job and says which slot it got: the lowest that is free. It is tracked from now on and marked once it has
    /// been idle.
    ///
    /// # Errors
    /// When a field makes no sense, or id, an edge or the room is taken. Nothing has changed then.
    pub fn add_job(&mut self, job: &Job, now: Nanos) -> Result<u16, Error> {
        let id = job.id;
        check(job)?;
        if let Some(other) = self.jobs.iter().flatten().find(|other| other.id == id) {
            return Err(Error::IdTaken { id, name: other.name.clone() });
        }
        for (rank, (src, dst, _)) in edges(job).enumerate() {
            let owner = self.edges.get(&src, &dst).and_then(|job| self.jobs.get(usize::from(job)));
            if let Some(Some(other)) = owner {
                let ends = (job.ring[rank], job.ring[(rank + 1) % job.ring.len()]);
                return Err(Error::EdgeTaken { id, src: ends.0, dst: ends.1, other: other.id });
            }
        }
        let Some(slot) = self.jobs.iter().position(Option::is_none) else {
            return Err(Error::JobsFull { id, capacity: self.jobs.len() });
        };
        let slot = slot as u16; // `new` makes at most 2^16 slots
        for (src, dst, _) in edges(job) {
            if let Err(full) = self.edges.insert(&src, &dst, slot) {
                self.edges.remove_job(slot);
                return Err(Error::EdgesFull { id, ranks: job.ring.len(), capacity: full.capacity });
            }
        }
        self.jobs[usize::from(slot)] = Some(job.clone());
        self.compiled[usize::from(slot)] = CompiledJob::new(job, &self.parameters);
        self.counters[usize::from(slot)] = JobCounters::default();
        self.restart(slot, now);
        Ok(slot)
    }

    /// Removes a job and all its state.
    ///
    /// # Errors
    /// [`Error::UnknownJob`].
    pub fn remove_job(&mut self, id: u32) -> Result<(), Error> {
        let slot = self.job_slot(id).ok_or(Error::UnknownJob { id })?;
        self.forget_flows(|flow| flow.job == slot);
        self.edges.remove_job(slot);
        self.job_registers.reset(slot, ActivityCell::default());
        self.gold.forget_job(slot);
        self.jobs[usize::from(slot)] = None;
        self.compiled[usize::from(slot)] = CompiledJob::default();
        Ok(())
    }

    /// Switches a job on or off. Switched on again it starts like a new one; its counters go on.
    ///
    /// # Errors
    /// [`Error::UnknownJob`].
    pub fn enable_job(&mut self, id: u32, enabled: bool, now: Nanos) -> Result<(), Error> {
        let slot = self.job_slot(id).ok_or(Error::UnknownJob { id })?;
        if let Some(job) = &mut self.jobs[usize::from(slot)] {
            job.enabled = enabled;
        }
        self.recompile(now);
        Ok(())
    }

    /// Replaces the parameters. Jobs that this switches on start like new ones.
    pub fn set_parameters(&mut self, parameters: Parameters, now: Nanos) {
        self.parameters = parameters;
        self.align.set_parameters(&self.parameters);
        self.recompile(now);
    }

    /// Forgets flows that were silent for [`FLOW_AGE_NS`] and says how many. Call it every few seconds.
    pub fn age(&mut self, now: Nanos) -> usize {
        let silent = |last_seen: u32| tick(now).wrapping_sub(last_seen) as i32 >= ticks(FLOW_AGE_NS) as i32;
        self.forget_flows(|flow| silent(flow.last_seen))
    }

    /// The parameters in force.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The slot of a job.
    pub fn job_slot(&self, id: u32) -> Option<u16> {
        self.jobs.iter().position(|job| job.as_ref().is_some_and(|job| job.id == id)).map(|slot| slot as u16)
    }

    /// The job in a slot, as configured and compiled.
    pub fn job(&self, slot: u16) -> Option<(&Job, &CompiledJob)> {
        let slot = usize::from(slot);
        Some((self.jobs.get(slot)?.as_ref()?, self.compiled.get(slot)?))
    }

    /// All jobs, by slot.
    pub fn jobs(&self) -> Vec<JobView> {
        let flows = self.flows();
        let view = |(slot, job): (usize, &Option<Job>)| {
            let job = job.as_ref()?;
            let counters = self.counters[slot];
            let mut view = JobView {
                job: job.id,
                name: job.name.clone(),
                enabled: job.enabled,
                packets: counters.packets,
                lead_tests: counters.lead_tests,
                marks: counters.marks,
                ..JobView::default()
            };
            let state = self.job_registers.peek(slot as u16);
            view.observe(state.activity, state.minimum, &flows);
            Some(view)
        };
        self.jobs.iter().enumerate().filter_map(view).collect()
    }

    /// All flows of jobs that were tracked here, by slot.
    pub fn flows(&self) -> Vec<FlowView> {
        let mut flows: Vec<(&FlowKey, &FlowEntry)> = self.flows.iter().collect();
        flows.sort_unstable_by_key(|(_, flow)| flow.slot);
        let view = |(key, flow): (&FlowKey, &FlowEntry)| {
            let (job, compiled) = self.job(flow.job)?;
            let (src, dst, dest_qpn) = key.parts();
            let activity = self.job_registers.peek(flow.job).activity;
            let state = self.flow_registers.peek(flow.slot);
            Some(FlowView::new((&src, &dst, dest_qpn), job.id, &state, compiled, activity))
        };
        flows.into_iter().filter_map(view).collect()
    }

    /// The registers of a flow slot; all zero out of range, as in a free slot.
    pub fn flow_state(&self, slot: u32) -> FlowState {
        self.flow_registers.peek(slot)
    }

    /// The registers of a job slot; all zero out of range, as in a free slot.
    pub fn job_state(&self, slot: u16) -> JobState {
        self.job_registers.peek(slot)
    }

    /// Packets by what tracking made of them.
    pub fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// Compiles all jobs again and restarts those that this switches on.
    fn recompile(&mut self, now: Nanos) {
        for slot in 0..self.jobs.len() {
            let Some(job) = &self.jobs[slot] else { continue };
            let was_enabled = self.compiled[slot].enabled;
            self.compiled[slot] = CompiledJob::new(job, &self.parameters);
            if self.compiled[slot].enabled && !was_enabled {
                self.restart(slot as u16, now);
            }
        }
    }

    /// A job starts without a past: what its flows' cells say is of before, and it must be idle before it is marked.
    fn restart(&mut self, slot: u16, now: Nanos) {
        self.forget_flows(|flow| flow.job == slot);
        self.job_registers.reset(slot, ActivityCell { last_tick: tick(now), generation: UNARMED });
        self.gold.forget_job(slot);
    }

    fn forget_flows(&mut self, gone: impl Fn(&FlowEntry) -> bool) -> usize {
        let removed = self.flows.remove(gone);
        for flow in &removed {
            self.job_registers.disown(flow.job, flow.slot);
            self.flow_registers.clear(flow.slot);
            self.align.forget(flow.slot);
            self.gold.withdraw(flow.job, flow.slot);
        }
        removed.len()
    }
}
