//! Drives [`crate::roce::Endpoint`]s over sockets: one thread a server, a server being a network namespace (or the one we
//! are in) that holds any number of ranks, each with an address of its own.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::dataplane::Nanos;
use crate::roce::{Config, Counters, Outcome, WrongValue};

/// One server: a namespace and its ranks.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Name under `/run/netns`; `None`: where we are.
    pub netns: Option<String>,
    /// Its ranks. `start_at` is on `CLOCK_MONOTONIC` ([`now`]).
    pub ranks: Vec<Config>,
}

/// How one rank fared.
#[derive(Clone, Debug)]
pub struct RankReport {
    /// Job.
    pub job: u32,
    /// Rank.
    pub rank: u32,
    /// When it was to start, `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// When its last step was complete; `None`: never.
    pub finish: Option<Nanos>,
    /// When each step was complete.
    pub steps: Vec<Nanos>,
    /// [`Outcome::Running`] when time was up or the run was stopped.
    pub outcome: Outcome,
    /// The reduced values against the closed form; `None` when the rank did not finish.
    pub verified: Option<Result<(), WrongValue>>,
    /// What it counted.
    pub counters: Counters,
    /// How well its server's thread kept time.
    pub starvation: Starvation,
}

/// How well a server's thread kept time. All of it is about the machine that runs the hosts, none about the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Starvation {
    /// Most that a packet left late.
    pub late_max_ns: Nanos,
    /// Share of the run's time in which pacing fell behind beyond what a burst of a few packets makes up for, 0..=1.
    pub share_lost: f64,
    /// Packets that the kernel threw away because we read too slowly.
    pub receive_overflows: u64,
}

/// Why hosts could not run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {}

/// The time on `CLOCK_MONOTONIC`.
pub fn now() -> Nanos {
    todo!()
}

/// Runs all ranks of all servers until every one has finished or failed, `limit` has passed or `stop` is set. Reports are in
/// the order of the specification.
///
/// # Errors
/// What keeps the ranks from running at all: a missing namespace, address or permission.
pub fn run(servers: &[ServerSpec], limit: Duration, stop: &AtomicBool) -> Result<Vec<RankReport>, Error> {
    let _ = (servers, limit, stop);
    todo!()
}
