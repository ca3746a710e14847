//! All state of the ingress stages, one register each, in the order in which a packet touches them.

use super::progress::{ActivityCell, EpochCell, MinimumCell};
use super::snapshot::{FlowState, JobState};
use super::step::{PacketsCell, RequestsCell, StepsCell};
use super::track::{CountCell, NewestCell, PsnCell};
use crate::dataplane::Register;

/// Registers indexed by flow slot.
#[derive(Clone, Debug)]
pub(super) struct FlowRegisters {
    pub(super) psn: Register<PsnCell>,
    pub(super) resyncs: Register<u32>,
    pub(super) newest: Register<NewestCell>,
    pub(super) count: Register<CountCell>,
    pub(super) requests: Register<RequestsCell>,
    pub(super) packets: Register<PacketsCell>,
    pub(super) steps: Register<StepsCell>,
}

impl FlowRegisters {
    pub(super) fn new(flows: usize) -> Self {
        FlowRegisters {
            psn: Register::new("psn", flows),
            resyncs: Register::new("resyncs", flows),
            newest: Register::new("newest", flows),
            count: Register::new("count", flows),
            requests: Register::new("requests", flows),
            packets: Register::new("packets", flows),
            steps: Register::new("steps", flows),
        }
    }

    /// The flow's cells as the control plane reads them.
    pub(super) fn peek(&self, flow: u32) -> FlowState {
        let flow = flow as usize;
        FlowState {
            psn: self.psn.peek(flow).unwrap_or_default(),
            resyncs: self.resyncs.peek(flow).unwrap_or_default(),
            newest: self.newest.peek(flow).unwrap_or_default(),
            count: self.count.peek(flow).unwrap_or_default(),
            requests: self.requests.peek(flow).unwrap_or_default(),
            packets: self.packets.peek(flow).unwrap_or_default(),
            steps: self.steps.peek(flow).unwrap_or_default(),
        }
    }

    /// A slot that is given back is zeroed, so that its next user finds it so.
    pub(super) fn clear(&mut self, flow: u32) {
        let flow = flow as usize;
        self.psn.poke(flow, PsnCell::default());
        self.resyncs.poke(flow, 0);
        self.newest.poke(flow, NewestCell::default());
        self.count.poke(flow, CountCell::default());
        self.requests.poke(flow, RequestsCell::default());
        self.packets.poke(flow, PacketsCell::default());
        self.steps.poke(flow, StepsCell::default());
    }
}

/// Registers indexed by job slot.
#[derive(Clone, Debug)]
pub(super) struct JobRegisters {
    pub(super) activity: Register<ActivityCell>,
    pub(super) epoch: Register<EpochCell>,
    pub(super) minimum: Register<MinimumCell>,
}

impl JobRegisters {
    pub(super) fn new(jobs: usize) -> Self {
        JobRegisters {
            activity: Register::new("activity", jobs),
            epoch: Register::new("epoch", jobs),
            minimum: Register::new("minimum", jobs),
        }
    }

    /// The job's cells as the control plane reads them.
    pub(super) fn peek(&self, job: u16) -> JobState {
        let job = usize::from(job);
        JobState {
            activity: self.activity.peek(job).unwrap_or_default(),
            epoch: self.epoch.peek(job).unwrap_or_default(),
            minimum: self.minimum.peek(job).unwrap_or_default(),
        }
    }

    pub(super) fn reset(&mut self, job: u16, activity: ActivityCell) {
        let job = usize::from(job);
        self.activity.poke(job, activity);
        self.epoch.poke(job, EpochCell::default());
        self.minimum.poke(job, MinimumCell::default());
    }

    /// The minimum must not be that of a flow which is gone.
    pub(super) fn disown(&mut self, job: u16, flow: u32) {
        let job = usize::from(job);
        if let Some(cell) = self.minimum.peek(job)
            && cell.owner == flow + 1
        {
            self.minimum.poke(job, MinimumCell { owner: 0, ..cell });
        }
    }
}
