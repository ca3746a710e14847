//! What a user may look at of aggregation jobs: what their controllers know, and what the pipeline counts.

use serde::Serialize;

use crate::dataplane::Nanos;
use crate::functions::serene::controller::{Controller, Sample, SwapRecord};
use crate::functions::serene::{Counters, Serene};

/// One aggregation job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AggregationSnapshot {
    /// Its number.
    pub job: u8,
    /// The strategy in force, as the control language writes it.
    pub strategy: String,
    /// Version of its rule.
    pub version: u16,
    /// First round that it is in force for.
    pub since_round: u32,
    /// The strategy that is wanted; another one only while a swap is under way.
    pub wanted: String,
    /// The swap under way.
    pub swap: Option<SwapSnapshot>,
    /// Workers that have not pushed for its boundary yet.
    pub waiting_for: Vec<u8>,
    /// The highest round pushed so far.
    pub max_round: u32,
    /// The last round released on the last segment.
    pub released: u32,
    /// The members.
    pub members: Vec<MemberSnapshot>,
    /// The latest round's metrics; none right after a swap.
    pub latest: Option<SampleSnapshot>,
    /// Counters of packets.
    pub counters: Counters,
    /// The latest swaps, the oldest first, with the one under way.
    pub swaps: Vec<SwapSnapshot>,
}

/// One worker of an aggregation job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberSnapshot {
    /// Its number.
    pub worker: u8,
    /// Its address.
    pub address: String,
    /// `joined`, `awaited` (it never came), `left`, or `dropped`.
    pub state: &'static str,
    /// Its latest round on the last segment.
    pub round: u32,
    /// Since it was heard of.
    pub silent_ns: Option<Nanos>,
}

/// Metrics of one round, named as in the control language.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SampleSnapshot {
    /// The round.
    pub round: u32,
    /// Median wait.
    pub wait_p50_ns: Nanos,
    /// 95th percentile.
    pub wait_p95_ns: Nanos,
    /// Longest.
    pub wait_max_ns: Nanos,
    /// From the first contribution to the release.
    pub span_ns: Nanos,
    /// From release to release.
    pub round_time_ns: Nanos,
    /// Rounds between the foremost worker and the hindmost.
    pub lag_max: u32,
    /// Share of late contributions.
    pub late_rate: f64,
    /// Share of repeated contributions.
    pub retx_rate: f64,
    /// Workers in the round.
    pub included: u32,
}

/// One swap. Times are since the switch started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SwapSnapshot {
    /// Its number.
    pub id: u32,
    /// The strategy before.
    pub from: String,
    /// The strategy after.
    pub to: String,
    /// Members after.
    pub members: u32,
    /// Version of the new rule.
    pub version: u16,
    /// First round of the new rule.
    pub boundary: u32,
    /// Boundaries that came too late.
    pub naks: u32,
    /// When it was asked for.
    pub asked_at_ns: Nanos,
    /// When the switch took the boundary.
    pub armed_at_ns: Option<Nanos>,
    /// When the first worker was past it.
    pub switching_at_ns: Option<Nanos>,
    /// When all were, and the old rule was gone.
    pub stable_at_ns: Option<Nanos>,
    /// Why.
    pub cause: String,
    /// `pending`, `stable`, or `superseded: ` and by what.
    pub outcome: String,
}

impl AggregationSnapshot {
    /// Of a job that the controller and the function have. `since` is when the switch started.
    pub fn new(controller: &Controller, serene: &Serene, now: Nanos, since: Nanos) -> Option<Self> {
        let (status, view) = (controller.status(), serene.job(controller.job().id)?);
        let members =
            status.workers.iter().zip(&view.members).zip(0..).map(|((worker, member), number)| MemberSnapshot {
                worker: number,
                address: member.address.to_string(),
                state: match (worker.live, worker.left) {
                    (true, _) if member.link.is_some() => "joined",
                    (true, _) => "awaited",
                    (false, true) => "left",
                    (false, false) => "dropped",
                },
                round: member.round,
                silent_ns: worker.heard_at.map(|at| now.saturating_sub(at)),
            });
        let missing = view.armed.map_or(0, |(_, rule)| rule.members & !view.reached);
        Some(AggregationSnapshot {
            job: controller.job().id,
            strategy: status.in_force.strategy.to_string(),
            version: status.version,
            since_round: view.start,
            wanted: status.wanted.strategy.to_string(),
            swap: status.swap.map(|swap| SwapSnapshot::new(&swap, since)),
            waiting_for: (0..32).filter(|worker| missing >> worker & 1 != 0).collect(),
            max_round: view.max_round,
            released: view.frontier,
            members: members.collect(),
            latest: status.latest.as_ref().map(SampleSnapshot::new),
            counters: view.counters,
            swaps: controller.swaps().map(|swap| SwapSnapshot::new(&swap, since)).collect(),
        })
    }
}

impl SampleSnapshot {
    fn new(sample: &Sample) -> Self {
        let [wait_p50_ns, wait_p95_ns, wait_max_ns] = sample.wait_ns;
        SampleSnapshot {
            round: sample.round,
            wait_p50_ns,
            wait_p95_ns,
            wait_max_ns,
            span_ns: sample.span_ns,
            round_time_ns: sample.round_ns,
            lag_max: sample.lag,
            late_rate: sample.late_rate,
            retx_rate: sample.retx_rate,
            included: sample.included,
        }
    }
}

impl SwapSnapshot {
    fn new(swap: &SwapRecord, since: Nanos) -> Self {
        let relative = |at: Nanos| at.saturating_sub(since);
        SwapSnapshot {
            id: swap.id,
            from: swap.from.strategy.to_string(),
            to: swap.to.strategy.to_string(),
            members: swap.to.members.count_ones(),
            version: swap.version,
            boundary: swap.boundary,
            naks: swap.naks,
            asked_at_ns: relative(swap.asked_at),
            armed_at_ns: swap.armed_at.map(relative),
            switching_at_ns: swap.switching_at.map(relative),
            stable_at_ns: swap.stable_at.map(relative),
            cause: swap.cause.to_string(),
            outcome: swap.outcome.to_string(),
        }
    }
}
