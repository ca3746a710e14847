//! Gold: the exact minimum over a job's flows. Not Tofino-shaped (it loops over flows); what the one-register minimum is
//! measured against.

use super::compiled::tick;
use crate::dataplane::{Bridged, Nanos};

/// How far a flow was when it was last seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    flow: u32,
    progress: u32,
    at: Nanos,
}

/// The flows of one job.
#[derive(Clone, Debug, Default)]
struct Flows {
    last_seen: Nanos,
    seen: Vec<Seen>,
}

/// The flows of each job.
#[derive(Clone, Debug)]
pub(super) struct Gold {
    jobs: Vec<Flows>,
}

impl Gold {
    pub(super) fn new(jobs: usize) -> Self {
        Gold { jobs: vec![Flows::default(); jobs] }
    }

    /// The packet's lead over the job's slowest flow, never negative. Flows silent for more than `idle_ns` are dropped, a
    /// flow that leaves is with this packet, and all are when the job was idle for so long that its counters restart.
    pub(super) fn lead(&mut self, now: Nanos, bridged: &Bridged, idle_ns: Nanos, job_idle_ticks: u32) -> i32 {
        let Some(Flows { last_seen, seen }) = self.jobs.get_mut(usize::from(bridged.job)) else { return 0 };
        if tick(now).wrapping_sub(tick(*last_seen)) >= job_idle_ticks {
            seen.clear();
        }
        *last_seen = now;
        seen.retain(|other| other.flow != bridged.flow && now.saturating_sub(other.at) <= idle_ns);
        let ahead_of = seen.iter().map(|other| bridged.progress.wrapping_sub(other.progress) as i32);
        let lead = ahead_of.fold(0, i32::max);
        if !bridged.leaves {
            seen.push(Seen { flow: bridged.flow, progress: bridged.progress, at: now });
        }
        lead
    }

    /// Forgets one flow: it is no ring traffic.
    pub(super) fn withdraw(&mut self, job: u16, flow: u32) {
        if let Some(flows) = self.jobs.get_mut(usize::from(job)) {
            flows.seen.retain(|seen| seen.flow != flow);
        }
    }

    /// Forgets all flows of a job.
    pub(super) fn forget_job(&mut self, job: u16) {
        if let Some(flows) = self.jobs.get_mut(usize::from(job)) {
            *flows = Flows::default();
        }
    }
}
