//! What the demo says in the end: medians over runs, as JSON and as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::scenario::{Arm, Scenario};
use crate::cli::demo::report::{Summary, summarise};
use crate::cli::train::coordinator::Record;
use crate::cli::train::measure::{MOST_OVERRUN, percentile};
use crate::cli::train::order::Task;
use crate::dataplane::Nanos;

/// One run of one arm.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Seed; runs of different arms with the same one are a pair.
    pub seed: u64,
    /// What the workers told, up to the end of the window.
    pub record: Record,
    /// When the smoothed accuracy reached the target, though it be after the window; `None`: never.
    pub time_to_target_ns: Option<Nanos>,
    /// Swaps of strategy that completed.
    pub swaps: Vec<Swap>,
    /// The share of the padding by which computation ended late, 99th percentile.
    pub overrun_p99: f64,
}

impl RunResult {
    /// From what the workers told of the whole run.
    pub fn new(
        scenario: &Scenario,
        task: &Task,
        target: Option<f64>,
        mut record: Record,
        mut swaps: Vec<Swap>,
    ) -> Self {
        let time_to_target_ns = target.and_then(|target| record.curve().reaches(target));
        if target.is_some() {
            record.cut(scenario.run_ns);
            let last_round = record.last_round();
            swaps.retain(|swap| swap.boundary <= last_round);
        }
        let overrun_p99 = record.overrun_p99(task.padding_ns);
        RunResult { seed: task.seed, record, time_to_target_ns, swaps, overrun_p99 }
    }
}

/// A change of strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct Swap {
    /// First round of the new one.
    pub boundary: u32,
    /// The strategy that it was to.
    pub to: String,
}

/// One arm over all runs: medians.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmReport {
    /// From the start until the target was reached; null when a run never reached it.
    pub time_to_target_s: Option<Summary>,
    /// Of all workers together, within the window.
    pub cumulative_wait_s: f64,
    /// The same with the transfer in it, as the published Serene experiments count waiting.
    pub wait_and_transfer_s: f64,
    /// Rounds within the window.
    pub rounds: f64,
    /// After as many gradients as the arm with the fewest has in the window.
    pub accuracy: f64,
    /// At the end of the window.
    pub accuracy_at_end: f64,
    /// Contributions that came too late for their round.
    pub late: f64,
    /// Changes of strategy.
    pub swaps: f64,
    /// From the end of one round to the end of the next, median.
    pub round_ms: f64,
    /// What an exchange takes without waiting for anybody, median.
    pub transfer_ms: f64,
    /// Packets sent again.
    pub retransmissions: f64,
    /// The share of the padding by which computation ended late, 99th percentile, in the worst run.
    pub overrun_p99: f64,
    /// Runs.
    pub runs: usize,
}

/// 100*(arm/bsp - 1) of the medians: negative is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of the time to the target; null where either never reached it.
    pub time_to_target: Option<f64>,
    /// Of the cumulative wait.
    pub cumulative_wait: f64,
}

/// `symphony demo serene --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Schema version, 1.
    pub version: u32,
    /// Who straggles.
    pub pattern: &'static str,
    /// Workers.
    pub workers: u8,
    /// Length of the window.
    pub window_s: f64,
    /// The target, and the rounds after which a single process has it.
    pub target_accuracy: f64,
    /// See there.
    pub target_rounds: u32,
    /// By arm.
    pub arms: BTreeMap<&'static str, ArmReport>,
    /// By arm, without bsp.
    pub change_pct: BTreeMap<&'static str, Change>,
    /// BSP through the switch equals a single process over the gate's rounds.
    pub bit_exact: bool,
    /// Runs whose workers did not get the processor in time: their figures are of the machine.
    pub flagged: Vec<String>,
}

/// Everything that a report is made of.
pub struct Findings<'a> {
    /// Who straggles.
    pub pattern: &'static str,
    /// Workers.
    pub workers: u8,
    /// Length of the window.
    pub run_ns: Nanos,
    /// Target.
    pub target_accuracy: f64,
    /// Rounds of it.
    pub target_rounds: u32,
    /// What the gate found.
    pub bit_exact: bool,
    /// By arm.
    pub runs: &'a BTreeMap<Arm, Vec<RunResult>>,
}

impl Report {
    /// Puts all runs together.
    pub fn new(findings: &Findings) -> Self {
        // The same number of gradients for all arms: the fewest that any run has.
        let gradients = |run: &RunResult| run.record.contributions().iter().map(|(_, count)| count).sum();
        let fewest = findings.runs.values().flatten().map(gradients).fold(f64::INFINITY, f64::min);
        let arms: BTreeMap<Arm, ArmReport> =
            findings.runs.iter().map(|(arm, runs)| (*arm, ArmReport::new(runs, fewest))).collect();
        let change = |arm: &ArmReport, bsp: &ArmReport| {
            let median = |report: &ArmReport| report.time_to_target_s.map(|summary| summary.median);
            let percent = |arm: f64, bsp: f64| round(100.0 * (arm / bsp - 1.0), 1);
            Change {
                time_to_target: median(arm).zip(median(bsp)).map(|(arm, bsp)| percent(arm, bsp)),
                cumulative_wait: percent(arm.cumulative_wait_s, bsp.cumulative_wait_s),
            }
        };
        let bsp = arms.get(&Arm::Bsp);
        let others = arms.iter().filter(|(arm, _)| **arm != Arm::Bsp);
        let flagged = findings.runs.iter().flat_map(|(arm, runs)| {
            runs.iter()
                .filter(|run| run.overrun_p99 > MOST_OVERRUN)
                .map(|run| format!("{} seed {}", arm.name(), run.seed))
        });
        Report {
            version: 1,
            pattern: findings.pattern,
            workers: findings.workers,
            window_s: findings.run_ns as f64 / 1e9,
            target_accuracy: round(findings.target_accuracy, 4),
            target_rounds: findings.target_rounds,
            change_pct: bsp
                .map(|bsp| others.map(|(name, arm)| (name.name(), change(arm, bsp))).collect())
                .unwrap_or_default(),
            arms: arms.iter().map(|(arm, report)| (arm.name(), report.clone())).collect(),
            bit_exact: findings.bit_exact,
            flagged: flagged.collect(),
        }
    }

    /// For people, in the order of the arms.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} workers, stragglers: {}; medians (min..max) over runs of {:.0} s\n",
            self.workers, self.pattern, self.window_s
        );
        let _ = writeln!(
            text,
            "{:<8} {:>4} {:>22} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>7} {:>6}",
            "arm",
            "runs",
            "time to target, s",
            "change",
            "wait, s",
            "change",
            "rounds",
            "round, ms",
            "accuracy",
            "late",
            "swaps"
        );
        for name in [Arm::Bsp, Arm::Dynamic, Arm::Partial, Arm::Ssp, Arm::Asp, Arm::Ps].map(Arm::name) {
            let Some(arm) = self.arms.get(name) else { continue };
            let change = self.change_pct.get(name);
            let percent = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:+.1} %"));
            let time = arm
                .time_to_target_s
                .map_or("not reached".into(), |time| format!("{:.2} ({:.2}..{:.2})", time.median, time.min, time.max));
            let _ = writeln!(
                text,
                "{:<8} {:>4} {:>22} {:>8} {:>8.2} {:>8} {:>7.0} {:>9.1} {:>8.1}% {:>7.0} {:>6.0}",
                name,
                arm.runs,
                time,
                percent(change.and_then(|change| change.time_to_target)),
                arm.cumulative_wait_s,
                percent(change.map(|change| change.cumulative_wait).filter(|change| change.is_finite())),
                arm.rounds,
                arm.round_ms,
                100.0 * arm.accuracy,
                arm.late,
                arm.swaps,
            );
        }
        let _ = writeln!(
            text,
            "\nTarget {:.1} %: what a single process has after {} rounds, as many as fit half a run without straggler or network.\n\
             Wait: of all workers together. Accuracy: after equally many gradients in all arms. ps: bsp through a UDP \
             parameter server.\nBSP through the switch {} a single process in every bit over {} rounds.",
            100.0 * self.target_accuracy,
            self.target_rounds,
            if self.bit_exact { "equals" } else { "DIFFERS FROM" },
            super::scenario::GATE_ROUNDS
        );
        for run in &self.flagged {
            let _ = writeln!(
                text,
                "{run}: workers got the processor late (more than {:.0} % of the padding, in one round of a hundred): this \
                 run measures the machine",
                100.0 * MOST_OVERRUN
            );
        }
        text
    }
}

impl ArmReport {
    fn new(runs: &[RunResult], gradients: f64) -> Self {
        let median = |value: &dyn Fn(&RunResult) -> f64| summarise(runs.iter().map(value)).median;
        let accuracy_at = |run: &RunResult, at: Option<Nanos>| {
            let curve = run.record.curve();
            at.and_then(|at| curve.at(at)).unwrap_or(0.0)
        };
        let times: Option<Vec<f64>> = runs.iter().map(|run| run.time_to_target_ns.map(seconds)).collect();
        ArmReport {
            time_to_target_s: times.map(summarise),
            cumulative_wait_s: median(&|run| seconds(run.record.wait_ns())),
            wait_and_transfer_s: median(&|run| seconds(run.record.exchange_ns())),
            rounds: median(&|run| f64::from(run.record.last_round())),
            accuracy: round(median(&|run| accuracy_at(run, run.record.when_contributed(gradients - 0.5))), 4),
            accuracy_at_end: round(median(&|run| accuracy_at(run, Some(Nanos::MAX))), 4),
            late: median(&|run| run.record.late()),
            swaps: median(&|run| run.swaps.len() as f64),
            round_ms: median(&|run| round_ms(&run.record)),
            transfer_ms: median(&|run| {
                percentile(run.record.rounds().map(|round| round.transfer_ns).collect(), 0.5) as f64 / 1e6
            }),
            retransmissions: median(&|run| run.record.retransmissions() as f64),
            overrun_p99: round(runs.iter().map(|run| run.overrun_p99).fold(0.0, f64::max), 3),
            runs: runs.len(),
        }
    }
}

/// On the worker with the most rounds.
fn round_ms(record: &Record) -> f64 {
    let Some(worker) = record.workers.iter().max_by_key(|worker| worker.rounds.len()) else { return 0.0 };
    let ends = worker.rounds.windows(2).map(|pair| pair[1].done_ns.saturating_sub(pair[0].done_ns));
    percentile(ends.collect(), 0.5) as f64 / 1e6
}

fn seconds(ns: Nanos) -> f64 {
    ns as f64 / 1e9
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}
