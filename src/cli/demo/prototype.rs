//! The paper's two-flow testbed: two flows of one job share a port, and one of them starts late.
//!
//! The paper sends 1 GB each at 10 Gbit/s. At the demo's rate that would take 80 s a run, so the flows and the lags are an
//! eighth of what scaling by the rate alone would give: 64 steps of 80 ms as there, the lead in steps as there.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use super::Demo;
use super::live::RunSettings;
use super::report::RunResult;
use super::scenario::{PATH_MTU, RATE_BPS, Scenario, address, whole_packets};
use crate::backend::host::ServerSpec;
use crate::dataplane::{Conservation, Marks, Nanos};
use crate::functions::symphony::Job;
use crate::roce::{self, Collective};

/// Lags of the paper's testbed.
const LAGS_MS: [u64; 3] = [20, 100, 400];
/// Bytes of each flow there.
const PAPER_BYTES: u64 = 1_000_000_000;
/// What is left of bytes and lags, so that a run takes 10 s.
const SHORTER: u64 = 8;
/// Steps of a flow; lag 100 ms is a lead of 7.7 steps.
const STEPS: u32 = 64;
/// What they send.
pub const COLLECTIVE: Collective = Collective::Stream { steps: STEPS };
/// Ranks that send: the first flow's, and the late one's.
pub const LEADER: usize = 0;
/// See [`LEADER`].
pub const LAGGARD: usize = 2;
/// Flows count as aligned from a lead below this on.
const ALIGNED_STEPS: f64 = 0.5;
/// Arms in their order.
const ARMS: [&str; 2] = ["base", "symphony"];
/// Runs in all.
pub const RUNS: u64 = (LAGS_MS.len() * ARMS.len()) as u64;

/// `symphony demo prototype --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    scenario: &'static str,
    rate_bps: u64,
    flow_bytes: u64,
    step_bytes: u64,
    /// By lag.
    pub lags: Vec<Lag>,
    conservation: Conservation,
    verified: bool,
}

/// One lag, with and without Symphony.
#[derive(Debug, Serialize)]
pub struct Lag {
    /// What the late flow waits here.
    pub lag_ms: f64,
    /// What that stands for in the paper's testbed.
    pub paper_lag_ms: u64,
    /// Without.
    pub base: Arm,
    /// With its defaults.
    pub symphony: Arm,
}

/// What a run found.
#[derive(Debug, Default, Serialize)]
pub struct Arm {
    /// The first flow's time.
    pub leader_jct_ms: f64,
    /// The late flow's, from its own start.
    pub laggard_jct_ms: f64,
    /// Between them when the late flow starts.
    pub lead_at_start_steps: f64,
    /// From the late flow's start to a lead below half a step; `null`: not before one of them ended.
    pub aligned_after_ms: Option<f64>,
    /// Marks set by the switch.
    pub marks: Marks,
}

/// Bytes of a step at a line rate.
pub fn step_bytes(rate_bps: u64) -> u64 {
    whole_packets(PAPER_BYTES / SHORTER / u64::from(STEPS) * rate_bps / RATE_BPS)
}

/// What the late flow waits at [`RATE_BPS`] where it waits `paper_lag_ms` in the paper's testbed.
pub fn lag_ns(paper_lag_ms: u64) -> Nanos {
    (paper_lag_ms as f64 * 1e6 * Scenario { rate_bps: RATE_BPS }.scale() / SHORTER as f64) as Nanos
}

/// Runs every lag with and without Symphony.
///
/// # Errors
/// What keeps a run from taking place.
pub fn run(demo: &Demo, seed: u64, progress: &ProgressBar) -> Result<Report> {
    let scenario = demo.scenario;
    let step_bytes = step_bytes(scenario.rate_bps);
    let mut report = Report {
        version: 1,
        scenario: "prototype",
        rate_bps: scenario.rate_bps,
        flow_bytes: step_bytes * u64::from(STEPS),
        step_bytes,
        lags: Vec::new(),
        conservation: Conservation::default(),
        verified: true,
    };
    for paper_lag_ms in LAGS_MS {
        let lag_ns = lag_ns(paper_lag_ms);
        let mut arms = Vec::new();
        for arm in ARMS {
            progress.set_message(format!("lag {:.0} ms: {arm}", lag_ns as f64 / 1e6));
            let result = one(demo, arm, seed, step_bytes, lag_ns)?;
            report.conservation += result.conservation;
            report.verified &= result.verified;
            let of = |rank: usize| result.traces.iter().find(|t| t.rank == rank).map_or(&[][..], |t| &t.completed_ms);
            arms.push(Arm::new(of(LEADER), of(LAGGARD), lag_ns, result.marks));
            progress.inc(1);
        }
        let mut arms = arms.into_iter();
        let (base, symphony) = (arms.next().unwrap_or_default(), arms.next().unwrap_or_default());
        report.lags.push(Lag { lag_ms: lag_ns as f64 / 1e6, paper_lag_ms, base, symphony });
    }
    Ok(report)
}

/// Two senders on servers 1 and 3, both receivers on server 2: its port is the bottleneck.
fn one(demo: &Demo, arm: &str, seed: u64, step_bytes: u64, lag_ns: Nanos) -> Result<RunResult> {
    let places = [(1, 1), (1, 2), (2, 3), (2, 2)]; // (address block, server) of each rank
    let ring = places.map(|(job, server)| address(job, server));
    let scenario = demo.scenario;
    let job = Job {
        id: 1,
        name: "two-flows".into(),
        ring: ring.to_vec(),
        packets_per_step: Some((step_bytes / u64::from(PATH_MTU)) as u32),
        steps_per_collective: STEPS,
        idle_ns: 10 * step_bytes * 8 * 1_000_000_000 / scenario.rate_bps,
        ..scenario.job(1)
    };
    let mut servers: Vec<ServerSpec> =
        (1..=3).map(|server| ServerSpec { netns: Some(demo.lab.server_netns(server)), ranks: Vec::new() }).collect();
    for (rank, (_, server)) in places.into_iter().enumerate() {
        servers[usize::from(server) - 1].ranks.push(roce::Config {
            collective: COLLECTIVE,
            chunk_bytes: step_bytes as u32,
            start_at: if rank >= LAGGARD { lag_ns } else { 0 },
            ..scenario.rank(1, &ring, rank as u32, scenario.rate_bps, seed)
        });
    }
    let settings = RunSettings {
        switch: scenario.switch(seed),
        parameters: scenario.parameters(arm, 0.0),
        jobs: vec![job],
        servers,
        limit: Duration::from_secs(60),
    };
    demo.once(arm, settings)
}

impl Arm {
    /// From when leader and laggard had sent each of their steps, in ms of the run.
    pub fn new(leader: &[f64], laggard: &[f64], lag_ns: Nanos, marks: Marks) -> Self {
        let lag_ms = lag_ns as f64 / 1e6;
        Arm {
            leader_jct_ms: leader.last().copied().unwrap_or(0.0),
            laggard_jct_ms: laggard.last().map_or(0.0, |end| end - lag_ms),
            lead_at_start_steps: steps_at(leader, 0.0, lag_ms),
            aligned_after_ms: aligned_after_ms(leader, laggard, lag_ms),
            marks,
        }
    }
}

/// Steps done at a time, with the part of the step under way.
fn steps_at(completed_ms: &[f64], start_ms: f64, at_ms: f64) -> f64 {
    let done = completed_ms.partition_point(|t| *t <= at_ms);
    let since = if done == 0 { start_ms } else { completed_ms[done - 1] };
    match completed_ms.get(done) {
        Some(next) if at_ms > since => done as f64 + (at_ms - since) / (next - since),
        _ => done as f64,
    }
}

/// When the lead first falls below half a step, counted from the late flow's start, looked at every millisecond while
/// both send.
fn aligned_after_ms(leader: &[f64], laggard: &[f64], lag_ms: f64) -> Option<f64> {
    let end = leader.last()?.min(*laggard.last()?);
    (0..)
        .map(f64::from)
        .take_while(|ms| lag_ms + ms < end)
        .find(|ms| steps_at(leader, 0.0, lag_ms + ms) - steps_at(laggard, lag_ms, lag_ms + ms) < ALIGNED_STEPS)
}

impl Report {
    /// Whether every value was right and every packet accounted for.
    pub fn is_sound(&self) -> bool {
        self.verified && self.conservation.holds()
    }

    /// For people.
    pub fn table(&self) -> String {
        use std::fmt::Write;
        let mut text = format!(
            "two flows of {} MB into one port of {} Mbit/s, steps of {:.1} MB; one starts late\n\n\
             {:>9}  {:<9} {:>12} {:>14} {:>12} {:>16} {:>12}\n",
            self.flow_bytes / 1_000_000,
            self.rate_bps / 1_000_000,
            self.step_bytes as f64 / 1e6,
            "lag, ms",
            "arm",
            "leader, ms",
            "laggard, ms",
            "lead, steps",
            "aligned after",
            "extra marks"
        );
        for lag in &self.lags {
            for (name, arm) in [("base", &lag.base), ("symphony", &lag.symphony)] {
                let aligned = arm.aligned_after_ms.map_or("never".into(), |ms| format!("{ms:.0} ms"));
                let _ = writeln!(
                    text,
                    "{:>9.0}  {:<9} {:>12.0} {:>14.0} {:>12.1} {:>16} {:>12}",
                    lag.lag_ms,
                    name,
                    arm.leader_jct_ms,
                    arm.laggard_jct_ms,
                    arm.lead_at_start_steps,
                    aligned,
                    arm.marks.symphony
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_when_the_late_flow_has_caught_up() {
        let leader: Vec<f64> = (1..=10).map(|s| f64::from(s) * 10.0).collect();
        let behind: Vec<f64> = (1..=10).map(|s| 30.0 + f64::from(s) * 10.0).collect();
        assert_eq!(aligned_after_ms(&leader, &behind, 30.0), None);
        let faster: Vec<f64> = (1..=10).map(|s| 30.0 + f64::from(s) * 6.0).collect();
        // The lead of 3 steps shrinks by 4 in 60 ms (10/6 - 1 steps each 10 ms): below 0.5 after 37.5 ms.
        assert_eq!(aligned_after_ms(&leader, &faster, 30.0), Some(38.0));
    }

    #[test]
    fn steps_are_interpolated_within_a_step() {
        assert_eq!(steps_at(&[10.0, 30.0], 0.0, 5.0), 0.5);
        assert_eq!(steps_at(&[10.0, 30.0], 0.0, 20.0), 1.5);
        assert_eq!(steps_at(&[10.0, 30.0], 0.0, 99.0), 2.0);
    }
}
