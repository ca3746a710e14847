//! All state of the ingress stages, one register each, in the order in which a packet touches them.
//!
//! The cells of one flow (or job) lie side by side. Each register has a stateful ALU of its own all the same, so a stage
//! gets at one cell of it, once.

use super::progress::ActivityCell;
use super::snapshot::{FlowState, JobState};
use crate::dataplane::StatefulAlu;

/// Registers indexed by flow slot.
#[derive(Clone, Debug)]
pub(super) struct FlowRegisters {
    pub(super) cells: Vec<FlowState>,
    pub(super) psn: StatefulAlu,
    pub(super) resyncs: StatefulAlu,
    pub(super) newest: StatefulAlu,
    pub(super) count: StatefulAlu,
    pub(super) requests: StatefulAlu,
    pub(super) packets: StatefulAlu,
    pub(super) steps: StatefulAlu,
}

impl FlowRegisters {
    pub(super) fn new(flows: usize) -> Self {
        FlowRegisters {
            cells: vec![FlowState::default(); flows],
            psn: StatefulAlu::new("psn"),
            resyncs: StatefulAlu::new("resyncs"),
            newest: StatefulAlu::new("newest"),
            count: StatefulAlu::new("count"),
            requests: StatefulAlu::new("requests"),
            packets: StatefulAlu::new("packets"),
            steps: StatefulAlu::new("steps"),
        }
    }

    /// The flow's cells as the control plane reads them.
    pub(super) fn peek(&self, flow: u32) -> FlowState {
        self.cells.get(flow as usize).copied().unwrap_or_default()
    }

    /// A slot that is given back is zeroed, so that its next user finds it so.
    pub(super) fn clear(&mut self, flow: u32) {
        if let Some(cells) = self.cells.get_mut(flow as usize) {
            *cells = FlowState::default();
        }
    }
}

/// Registers indexed by job slot.
#[derive(Clone, Debug)]
pub(super) struct JobRegisters {
    pub(super) cells: Vec<JobState>,
    pub(super) activity: StatefulAlu,
    pub(super) epoch: StatefulAlu,
    pub(super) minimum: StatefulAlu,
}

impl JobRegisters {
    pub(super) fn new(jobs: usize) -> Self {
        JobRegisters {
            cells: vec![JobState::default(); jobs],
            activity: StatefulAlu::new("activity"),
            epoch: StatefulAlu::new("epoch"),
            minimum: StatefulAlu::new("minimum"),
        }
    }

    /// The job's cells as the control plane reads them.
    pub(super) fn peek(&self, job: u16) -> JobState {
        self.cells.get(usize::from(job)).copied().unwrap_or_default()
    }

    /// The job starts over.
    pub(super) fn reset(&mut self, job: u16, activity: ActivityCell) {
        if let Some(cells) = self.cells.get_mut(usize::from(job)) {
            *cells = JobState { activity, ..JobState::default() };
        }
    }

    /// The minimum must not be that of a flow which is gone.
    pub(super) fn disown(&mut self, job: u16, flow: u32) {
        if let Some(cells) = self.cells.get_mut(usize::from(job))
            && cells.minimum.owner == flow + 1
        {
            cells.minimum.owner = 0;
        }
    }
}
