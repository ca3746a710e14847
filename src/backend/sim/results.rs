//! What one run found.

use std::collections::BTreeMap;

use crate::dataplane::{Conservation, Marks, Nanos};

/// One run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// In the order of the setup.
    pub jobs: Vec<JobResults>,
    /// Bytes in the fullest data queue that a switch port ever had.
    pub max_queue_bytes: u64,
    /// How long data queues were, at each packet that left one: packets by depth in units of [`DEPTH_BUCKET_BYTES`], the
    /// last bucket open.
    pub queue_depths: Vec<u64>,
    /// Marks set by all switches.
    pub marks: Marks,
    /// Data packets of jobs that passed an egress stage, and how often the lead test held.
    pub job_packets: u64,
    /// See `job_packets`.
    pub lead_tests: u64,
    /// Lead at each data packet of a job at an egress stage: packets by quarter steps, the last bucket open.
    pub leads: Vec<u64>,
    /// CNPs that hosts sent.
    pub cnps: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// PFC pauses sent.
    pub pfc_pauses: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Summed over all switches.
    pub conservation: Conservation,
    /// Bytes of payload that ring jobs delivered in order.
    pub delivered_bytes: u64,
    /// Packets at one hop, and host timers.
    pub events: u64,
    /// Simulated time at the end.
    pub end_ns: Nanos,
}

/// Width of a bucket of [`Results::queue_depths`].
pub const DEPTH_BUCKET_BYTES: u64 = 10_000;
/// Buckets of [`Results::queue_depths`].
pub const DEPTH_BUCKETS: usize = 64;
/// Buckets of [`Results::leads`], a quarter of a step each.
pub const LEAD_BUCKETS: usize = 64;

/// One job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobResults {
    /// As the setup says.
    pub class: String,
    /// When its first rank began.
    pub start_ns: Nanos,
    /// When its last rank had all; `None`: the run was given up before.
    pub finish_ns: Option<Nanos>,
    /// When each rank completed each step, in order.
    pub steps: Vec<Vec<Nanos>>,
}

impl JobResults {
    /// Job completion time.
    pub fn jct_ns(&self) -> Option<Nanos> {
        Some(self.finish_ns? - self.start_ns)
    }

    /// Spread of the job, in steps: most completed steps of a rank less fewest. Mean over time and maximum.
    pub fn spread(&self) -> (f64, u32) {
        let mut times: Vec<(Nanos, usize)> =
            self.steps.iter().enumerate().flat_map(|(rank, steps)| steps.iter().map(move |&at| (at, rank))).collect();
        times.sort_unstable();
        // How many ranks have completed so many steps: least and most only ever grow.
        let mut ranks_at = vec![0usize; self.steps.iter().map(Vec::len).max().unwrap_or(0) + 1];
        ranks_at[0] = self.steps.len();
        let mut done = vec![0usize; self.steps.len()];
        let (mut least, mut most) = (0, 0);
        let (mut area, mut widest, mut since) = (0.0, 0, self.start_ns);
        for (at, rank) in times {
            area += (most - least) as f64 * at.saturating_sub(since) as f64;
            widest = widest.max(most - least);
            since = since.max(at);
            ranks_at[done[rank]] -= 1;
            done[rank] += 1;
            ranks_at[done[rank]] += 1;
            most = most.max(done[rank]);
            while ranks_at[least] == 0 {
                least += 1;
            }
        }
        let time = since.saturating_sub(self.start_ns);
        (if time == 0 { 0.0 } else { area / time as f64 }, widest as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_weighed_by_time() {
        let job = |steps| JobResults { start_ns: 10, steps, ..JobResults::default() };
        // 0 from 10 to 20, 1 to 30, 2 to 40, 1 to 50.
        assert_eq!(job(vec![vec![20, 30], vec![40, 50]]).spread(), ((0.0 + 1.0 + 2.0 + 1.0) / 4.0, 2));
        assert_eq!(job(vec![vec![20], vec![20]]).spread(), (0.0, 1));
        assert_eq!(job(vec![]).spread(), (0.0, 0));
    }
}
