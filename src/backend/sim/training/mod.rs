//! Training through one switch in virtual time: the very same switch, function, control plane and workers as live, for more
//! workers than a machine has cores for. Packets are whole frames.

mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::Error;
use crate::dataplane::{Conservation, Fault, Nanos};
use crate::functions::serene::Job;
use crate::functions::serene::controller::SwapRecord;
use crate::worker::{Report, Worker};

/// One run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Of the switch's random streams.
    pub seed: u64,
    /// The job. Its members are the workers; each has a port of its own.
    pub job: Job,
    /// The switch's service address.
    pub address: Ipv4Addr,
    /// Rate of each worker's line, bit/s.
    pub line_bps: u64,
    /// Propagation delay of each line.
    pub delay_ns: Nanos,
    /// Room for each port's queues.
    pub buffer_bytes: u64,
    /// What goes wrong on each worker's link, if anything.
    pub fault: Option<Fault>,
    /// What goes wrong between switch and control plane.
    pub control_fault: Option<Fault>,
    /// The run is given up after so long.
    pub limit_ns: Nanos,
}

/// What a worker computes, and how long it takes.
pub trait Learner {
    /// Writes the next contribution into `step`: minus learning rate times gradient. Returns how long that takes.
    fn step(&mut self, now: Nanos, worker: &Worker, step: &mut [f32]) -> Nanos;

    /// A round of the worker's is over; the worker knows the sum of all.
    fn after(&mut self, now: Nanos, worker: &Worker, report: &Report) -> Flow;
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next round.
    Continue,
    /// Nothing, for this worker. It does not say so to anybody.
    Stop,
    /// Nothing, for all.
    End,
}

/// What one run found.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// By worker.
    pub workers: Vec<WorkerResults>,
    /// Swaps of strategy and membership, in order.
    pub swaps: Vec<SwapRecord>,
    /// The conservation law.
    pub conservation: Conservation,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Simulated time at the end.
    pub end_ns: Nanos,
    /// Packets at one hop, timers and computations.
    pub events: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerResults {
    /// Contributions.
    pub rounds: u64,
    /// Sum of [`Report::wait_ns`].
    pub wait_ns: Nanos,
    /// Segments that came too late.
    pub late: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Why it ended, if not by itself.
    pub failure: Option<String>,
}

impl WorkerResults {
    fn count(&mut self, report: &Report) {
        self.rounds += 1;
        self.wait_ns += report.wait_ns();
        self.late += u64::from(report.late);
        self.retransmissions += u64::from(report.retransmissions);
    }
}

/// Runs a setup until one learner ends it, every one has stopped, or to the limit. Gives the learners back.
///
/// # Errors
/// What makes no sense in it.
pub fn run<L: Learner>(setup: &Setup, learners: Vec<L>) -> Result<(Results, Vec<L>), Error> {
    Ok(run::Run::new(setup, learners)?.run())
}

fn error(field: &'static str, reason: String) -> Error {
    super::error(field, reason)
}
