//! Symphony: step alignment of ring collectives (arXiv 2604.16880; our reconstruction).
//!
//! ```text
//! ingress   classify -> track -> progress      which job and flow, which step, how far ahead of the job's laggard
//! egress    align                              an extra mark for a packet that is ahead, and does not fall back, in a queue
//! ```
//!
//! A job whose steps are short beside DCQCN's recovery is tracked and never marked.
//!
//! XDP runs twins of the ingress stages (`ebpf/`): same registers, same order, same results. A packet that it has tracked
//! is not tracked again. Every decision is a pure function on one register cell, so a stage is what reads the cell.

mod align;
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
pub use compiled::{CompiledJob, PATIENCE_SHIFT, edges, mapped, tick};
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

use align::{Align, Alignment};
use classify::{Edges, FlowKey, Flows};
use gold::Gold;
use registers::{FlowRegisters, JobRegisters};

use crate::dataplane::{Bridged, Cx, DropReason, Egress, Function, Marks, Phv, Step, Tracer, Verdict};

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

    /// Stage `classify`: the slots of the packet's job and flow. Counts packets that have none.
    #[inline]
    fn classify<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &Phv) -> Option<(u16, u32)> {
        let Some(roce) = &phv.roce else {
            self.outcomes.not_roce += 1;
            return None;
        };
        let data = roce.opcode.is_request_data();
        if !data && !takes_psn_without_data(roce.opcode) {
            self.outcomes.not_data += 1;
            return None;
        }
        cx.stage("ingress", "classify");
        let now = tick(cx.now);
        let key = FlowKey::new(phv, roce.dest_qpn);
        let known = self.flows.lookup(&key);
        cx.table("flows", known.is_some());
        // A flow goes when its job does. So the second table is for new flows only.
        let job = match &known {
            Some(flow) => Some(flow.job),
            None => {
                let job = self.edges.get(&phv.src, &phv.dst);
                cx.table("edges", job.is_some());
                job
            }
        };
        let Some(job) = job.filter(|job| self.compiled[usize::from(*job)].enabled) else {
            self.outcomes.not_of_a_job += 1;
            return None;
        };
        let flow = match known {
            Some(flow) => {
                flow.last_seen = now;
                Some(flow.slot)
            }
            None if data => self.flows.insert(key, job, now),
            None => {
                self.outcomes.not_of_a_job += 1;
                return None;
            }
        };
        self.outcomes.flows_full += u64::from(flow.is_none());
        flow.map(|flow| (job, flow))
    }

    /// Stage `track`: does the packet of `phv.bridged.flow` move it on, and which step is it of. Then `progress`: how far
    /// ahead is it. What they find goes into `phv.bridged`.
    #[inline]
    fn track<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) {
        let Phv { roce: Some(roce), bridged, sport, .. } = phv else { return };
        let (job_index, index) = (usize::from(bridged.job), bridged.flow as usize);
        let job = &self.compiled[job_index];
        let now = tick(cx.now);

        cx.stage("ingress", "track");
        let jobs = &mut self.job_registers;
        let job_cells = &mut jobs.cells[job_index];
        let activity = roce.opcode.is_request_data().then(|| {
            let cell = &mut job_cells.activity;
            jobs.activity.execute(cx, job_index, cell, |cell| activity_action(cell, now, job.idle_ticks))
        });
        let flows = &mut self.flow_registers;
        let cells = &mut flows.cells[index];
        let generation = activity.map(|activity| activity.generation);
        let order = flows.psn.execute(cx, index, &mut cells.psn, |cell| {
            psn_action(cell, roce, job.path_mtu_shift, generation, now, job.patience_ticks())
        });
        match order {
            Order::InOrder => self.outcomes.in_order += 1,
            Order::Old => self.outcomes.old += 1,
            Order::Gap => self.outcomes.gap += 1,
            Order::Resync => {
                self.outcomes.resync += 1;
                flows.resyncs.execute(cx, index, &mut cells.resyncs, |count| *count = count.wrapping_add(1));
            }
        }
        let Some(activity) = activity else { return };
        bridged.armed = activity.armed();
        let advance = order.advances();
        flows.newest.execute(cx, index, &mut cells.newest, |cell| newest_action(cell, roce.psn));
        flows.count.execute(cx, index, &mut cells.count, |cell| count_action(cell, roce.opcode, order));
        let generation = activity.generation as u16; // it stays within 16 bits
        let request = flows
            .requests
            .execute(cx, index, &mut cells.requests, |cell| requests_action(cell, job, generation, roce, advance));
        if !request.takes_part && !request.withdraw {
            return;
        }
        let tag = tag(job, *sport);
        let (packets, step_end) = flows.packets.execute(cx, index, &mut cells.packets, |cell| {
            packets_action(cell, job, generation, tag, advance, &request)
        });
        let event = StepEvent { advance, end: request.end, step_end };
        let (steps_done, last) = flows.steps.execute(cx, index, &mut cells.steps, |cell| {
            steps_action(cell, job, generation, tag, roce.immediate, event)
        });

        cx.stage("ingress", "progress");
        let (now, generation) = (cx.now, activity.generation);
        let new_epoch = jobs
            .epoch
            .execute(cx, job_index, &mut job_cells.epoch, |cell| epoch_action(cell, now, job.epoch_shift, generation));
        let (flow, minimum) = (bridged.flow, &mut job_cells.minimum);
        if request.withdraw {
            jobs.minimum.execute(cx, job_index, minimum, |cell| withdraw_action(cell, flow, new_epoch));
            bridged.leaves = true;
            return;
        }
        let progress = progress(job, steps_done, packets);
        bridged.lead =
            jobs.minimum.execute(cx, job_index, minimum, |cell| minimum_action(cell, flow, progress, new_epoch, last));
        bridged.step = Step::Data;
        bridged.steps_done = steps_done;
        bridged.progress = progress;
        bridged.leaves = last;
    }
}

impl Function for Symphony {
    #[inline]
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        if !self.parameters.enabled {
            return Verdict::Continue;
        }
        if !phv.bridged.tracked {
            phv.bridged = Bridged { tracked: true, ..Bridged::default() };
            if let Some((job, flow)) = self.classify(cx, phv) {
                (phv.bridged.job, phv.bridged.flow) = (job, flow);
                self.track(cx, phv);
            }
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
        if phv.bridged.step != Step::Data
            || !phv.ecn.is_ect()
            || !self.compiled.get(slot).is_some_and(|job| job.enabled)
        {
            return None;
        }
        let may_mark = self.compiled[slot].may_mark;
        let alignment = if may_mark { self.align.run(cx, egress, phv) } else { Alignment::default() };
        phv.extra_mark |= alignment.mark;
        let counters = &mut self.counters[slot];
        counters.lead_tests += u64::from(alignment.leads);
        counters.marks.red += u64::from(egress.red);
        counters.marks.symphony += u64::from(alignment.mark && !egress.red);
        None
    }
}
