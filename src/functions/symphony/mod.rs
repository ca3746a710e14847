//! Symphony: step alignment of ring collectives (arXiv 2604.16880; our reconstruction).
//!
//! ```text
//! ingress   classify -> track -> progress      which job and flow, which step, how far ahead of the job's laggard
//! egress    align                              an extra mark for a packet that is ahead where there is a queue
//! ```
//!
//! XDP runs twins of the ingress stages (`ebpf/`): same registers, same order, same results. A packet that it has tracked
//! is not tracked again. Every decision is a pure function on one register cell, so a stage is what reads the cell.

mod align;
mod cell;
mod classify;
mod compiled;
mod config;
mod gold;
mod jobs;
mod progress;
mod registers;
mod snapshot;
mod step;
#[cfg(test)]
mod tests;
mod track;

pub use align::{GapCell, gap_action};
pub use classify::Edge;
pub use compiled::{CompiledJob, edges, mapped, tick};
pub use config::{Job, Parameters, Policy, StepSource};
pub use jobs::{Error, FLOW_AGE_NS};
pub use progress::{
    ActivityCell, EpochCell, MinimumCell, UNARMED, activity_action, epoch_action, minimum_action, withdraw_action,
};
pub use snapshot::{FlowState, FlowView, JobState, JobView, Outcomes};
pub use step::{
    Kind, PacketsCell, Request, RequestsCell, StepEvent, StepsCell, packets_action, progress, requests_action,
    steps_action, tag,
};
pub use track::{
    CountCell, NewestCell, Order, PsnCell, count_action, newest_action, psn_action, takes_psn_without_data,
};

use align::Align;
use classify::{Edges, FlowKey, Flows};
use gold::Gold;
use registers::{FlowRegisters, JobRegisters};

use crate::dataplane::{Bridged, Cx, DropReason, Egress, Function, Marks, Phv, Roce, Step, Tracer, Verdict};

/// What is counted by job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct JobCounters {
    packets: u64,
    lead_tests: u64,
    marks: Marks,
}

/// The function.
#[derive(Clone, Debug)]
pub struct Symphony {
    parameters: Parameters,
    /// By slot, as the user gave them.
    jobs: Vec<Option<Job>>,
    /// By slot; disabled where there is no job.
    compiled: Vec<CompiledJob>,
    counters: Vec<JobCounters>,
    outcomes: Outcomes,
    edges: Edges,
    flows: Flows,
    flow_registers: FlowRegisters,
    job_registers: JobRegisters,
    gold: Gold,
    align: Align,
}

/// A packet of a flow that has a slot: what the stages behind `psn` need.
struct Tracked<'a> {
    roce: &'a Roce,
    sport: u16,
    job: u16,
    flow: u32,
    activity: ActivityCell,
    advance: bool,
}

impl Symphony {
    /// Without jobs. There is room for `max_flows` flows, as many edges, and `max_jobs` jobs.
    pub fn new(parameters: Parameters, max_flows: u32, max_jobs: u16) -> Self {
        let (flows, jobs) = (max_flows as usize, usize::from(max_jobs));
        Symphony {
            align: Align::new(&parameters, flows),
            parameters,
            jobs: vec![None; jobs],
            compiled: vec![CompiledJob::default(); jobs],
            counters: vec![JobCounters::default(); jobs],
            outcomes: Outcomes::default(),
            edges: Edges::new(flows),
            flows: Flows::new(max_flows),
            flow_registers: FlowRegisters::new(flows),
            job_registers: JobRegisters::new(jobs),
            gold: Gold::new(jobs),
        }
    }

    /// The stages `classify` and the first half of `track`: whose packet is it, and does it move its flow on.
    #[inline]
    fn track<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &Phv) -> Bridged {
        let untracked = Bridged { tracked: true, ..Bridged::default() };
        let Some(roce) = &phv.roce else {
            self.outcomes.not_roce += 1;
            return untracked;
        };
        let data = roce.opcode.is_request_data();
        if !data && !takes_psn_without_data(roce.opcode) {
            self.outcomes.not_data += 1;
            return untracked;
        }

        cx.stage("ingress", "classify");
        let edge = self.edges.lookup(phv);
        cx.table("edges", edge.is_some());
        let job = edge.map_or(CompiledJob::default(), |edge| self.compiled[usize::from(edge.job)]);
        let Some(edge) = edge.filter(|_| job.enabled) else {
            self.outcomes.not_of_a_job += 1;
            return untracked;
        };
        let now = tick(cx.now);
        let key = FlowKey::new(edge, roce.dest_qpn);
        let known = self.flows.lookup(key, now);
        cx.table("flows", known.is_some());
        let Some(flow) = known.or_else(|| if data { self.flows.insert(key, now) } else { None }) else {
            *(if data { &mut self.outcomes.flows_full } else { &mut self.outcomes.not_of_a_job }) += 1;
            return untracked;
        };

        cx.stage("ingress", "track");
        let activity = data.then(|| {
            let registers = &mut self.job_registers;
            let index = usize::from(edge.job);
            let cell = &mut registers.cells[index].activity;
            registers.activity.execute(cx, index, cell, |cell| activity_action(cell, now, job.idle_ticks))
        });
        let generation = activity.map(|activity| activity.generation);
        let registers = &mut self.flow_registers;
        let index = flow as usize;
        let cells = &mut registers.cells[index];
        let order = registers.psn.execute(cx, index, &mut cells.psn, |cell| {
            psn_action(cell, roce, job.path_mtu_shift, generation, now, job.epoch_ticks())
        });
        match order {
            Order::InOrder => self.outcomes.in_order += 1,
            Order::Old => self.outcomes.old += 1,
            Order::Gap => self.outcomes.gap += 1,
            Order::Resync => {
                self.outcomes.resync += 1;
                registers.resyncs.execute(cx, index, &mut cells.resyncs, |count| *count = count.wrapping_add(1));
            }
        }
        let Some(activity) = activity else {
            return Bridged { job: edge.job, flow, ..untracked };
        };
        registers.newest.execute(cx, index, &mut cells.newest, |cell| newest_action(cell, roce.psn));
        registers.count.execute(cx, index, &mut cells.count, |cell| count_action(cell, roce.opcode, order));
        let packet = Tracked { roce, sport: phv.sport, job: edge.job, flow, activity, advance: order.advances() };
        self.step(cx, &job, &packet)
    }

    /// The second half of `track`, and `progress`: which step is the packet of, and how far ahead is it.
    #[inline]
    fn step<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, job: &CompiledJob, packet: &Tracked<'_>) -> Bridged {
        let Tracked { roce, flow, advance, .. } = *packet;
        let generation = packet.activity.generation as u16; // it stays within 16 bits
        let registers = &mut self.flow_registers;
        let index = flow as usize;
        let cells = &mut registers.cells[index];
        let bridged =
            Bridged { tracked: true, armed: packet.activity.armed(), job: packet.job, flow, ..Bridged::default() };
        let request = registers
            .requests
            .execute(cx, index, &mut cells.requests, |cell| requests_action(cell, job, generation, roce, advance));
        if !request.takes_part && !request.withdraw {
            return bridged;
        }
        let tag = tag(job, packet.sport);
        let (packets, step_end) = registers.packets.execute(cx, index, &mut cells.packets, |cell| {
            packets_action(cell, job, generation, tag, advance, &request)
        });
        let event = StepEvent { advance, end: request.end, step_end };
        let (steps_done, last) = registers.steps.execute(cx, index, &mut cells.steps, |cell| {
            steps_action(cell, job, generation, tag, roce.immediate, event)
        });
        let progress = progress(job, steps_done, packets);

        cx.stage("ingress", "progress");
        let (now, generation) = (cx.now, packet.activity.generation);
        let registers = &mut self.job_registers;
        let index = usize::from(packet.job);
        let cells = &mut registers.cells[index];
        let new_epoch = registers
            .epoch
            .execute(cx, index, &mut cells.epoch, |cell| epoch_action(cell, now, job.epoch_shift, generation));
        if request.withdraw {
            registers.minimum.execute(cx, index, &mut cells.minimum, |cell| withdraw_action(cell, flow, new_epoch));
            return Bridged { leaves: true, ..bridged };
        }
        let lead = registers
            .minimum
            .execute(cx, index, &mut cells.minimum, |cell| minimum_action(cell, flow, progress, new_epoch, last));
        Bridged { step: Step::Data, steps_done, progress, lead, leaves: last, ..bridged }
    }
}

impl Function for Symphony {
    #[inline]
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        if !self.parameters.enabled {
            return Verdict::Continue;
        }
        if !phv.bridged.tracked {
            phv.bridged = self.track(cx, phv);
        }
        let bridged = &mut phv.bridged;
        let slot = usize::from(bridged.job);
        if bridged.step == Step::Data
            && let Some(counters) = self.counters.get_mut(slot)
        {
            counters.packets += 1;
            if self.parameters.policy == Policy::Gold {
                let idle_ticks = self.compiled[slot].idle_ticks;
                bridged.lead = self.gold.lead(cx.now, bridged, self.parameters.gold_idle_ns, idle_ticks);
            }
        } else if bridged.leaves {
            self.gold.withdraw(bridged.job, bridged.flow);
        }
        Verdict::Continue
    }

    #[inline]
    fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, egress: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        let slot = usize::from(phv.bridged.job);
        if phv.bridged.step != Step::Data || !self.compiled.get(slot).is_some_and(|job| job.enabled) {
            return None;
        }
        let alignment = self.align.run(cx, egress, phv);
        phv.extra_mark |= alignment.mark;
        let counters = &mut self.counters[slot];
        counters.lead_tests += u64::from(alignment.leads);
        if phv.ecn.is_ect() {
            counters.marks.red += u64::from(egress.red);
            counters.marks.symphony += u64::from(alignment.mark && !egress.red);
        }
        None
    }
}
