//! What the demo says in the end: medians over repeats, as JSON and as a table.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;

use crate::dataplane::{Conservation, Marks};

/// One run of one arm.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Completion time of the undisturbed job.
    pub healthy_jct_ms: f64,
    /// Mean completion time of the jobs with a straggler.
    pub straggler_jct_ms: f64,
    /// Marks set by the switch.
    pub marks: Marks,
    /// Packets of jobs that passed the lead test.
    pub lead_tests: u64,
    /// Packets of jobs that took part.
    pub job_packets: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that hosts sent again.
    pub retransmissions: u64,
    /// Largest difference of completed steps between two ranks of one job.
    pub max_lead_steps: u32,
    /// The switch's packet accounts.
    pub conservation: Conservation,
    /// Every reduced value was right.
    pub verified: bool,
    /// Most that a packet left its host late.
    pub host_late_ms: f64,
    /// Largest share of its time that a server's thread lost because the CPU was busy, 0..=1.
    pub host_share_lost: f64,
    /// Steps over time of every rank.
    pub traces: Vec<RankTrace>,
}

/// When one rank completed its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct RankTrace {
    /// Job number.
    pub job: u32,
    /// Rank in the ring.
    pub rank: usize,
    /// Times since the start of the run, one a step.
    pub completed_ms: Vec<f64>,
}

/// Median and range over repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Middle value; the mean of the two middle ones of an even number.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

/// One arm over all repeats. Counts are sums, `max_lead_steps` is the greatest.
#[derive(Clone, Debug, Serialize)]
pub struct ArmReport {
    /// JCT of the healthy job.
    pub healthy_jct_ms: Summary,
    /// JCT of the straggler jobs: mean over jobs in a run, summarised over runs.
    pub straggler_jct_ms: Summary,
    /// Marks.
    pub marks: Marks,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets that hosts sent again.
    pub retransmissions: u64,
    /// Largest difference of completed steps within one job.
    pub max_lead_steps: u32,
}

/// 100*(arm/base - 1) of the medians: negative is faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of the healthy job.
    pub healthy: f64,
    /// Of the straggler jobs.
    pub straggler: f64,
}

/// `symphony demo --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Schema version, 1.
    pub version: u32,
    /// Scenario name.
    pub scenario: &'static str,
    /// Emulated line rate of the switch's ports.
    pub rate_bps: u64,
    /// Runs of each arm.
    pub repeats: usize,
    /// By arm.
    pub arms: BTreeMap<&'static str, ArmReport>,
    /// By arm, without base.
    pub change_pct: BTreeMap<&'static str, Change>,
    /// Summed over all runs.
    pub conservation: Conservation,
    /// Every reduced value of every run was right.
    pub verified: bool,
}

/// Median, least and greatest of a list that is not empty; zeros for an empty one.
pub fn summarise(values: impl IntoIterator<Item = f64>) -> Summary {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return Summary { median: 0.0, min: 0.0, max: 0.0 };
    };
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Summary { median: round3(median), min: round3(min), max: round3(max) }
}

fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Largest difference, at any moment, between the steps that two ranks of one job have completed.
pub fn max_lead_steps(traces: &[RankTrace]) -> u32 {
    let jobs: std::collections::BTreeSet<u32> = traces.iter().map(|t| t.job).collect();
    jobs.into_iter().map(|job| max_lead_of_job(traces.iter().filter(|t| t.job == job))).max().unwrap_or(0)
}

fn max_lead_of_job<'a>(traces: impl Iterator<Item = &'a RankTrace>) -> u32 {
    let mut events: Vec<(f64, usize)> = Vec::new();
    let mut ranks = 0;
    for trace in traces {
        events.extend(trace.completed_ms.iter().map(|t| (*t, ranks)));
        ranks += 1;
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut done = vec![0u32; ranks];
    let mut lead = 0;
    for (_, rank) in events {
        done[rank] += 1;
        let least = done.iter().min().copied().unwrap_or(0);
        lead = lead.max(done[rank] - least);
    }
    lead
}

impl ArmReport {
    fn new(runs: &[RunResult]) -> Self {
        let mut drops = BTreeMap::new();
        for run in runs {
            for (reason, count) in &run.drops {
                *drops.entry(*reason).or_insert(0) += count;
            }
        }
        ArmReport {
            healthy_jct_ms: summarise(runs.iter().map(|r| r.healthy_jct_ms)),
            straggler_jct_ms: summarise(runs.iter().map(|r| r.straggler_jct_ms)),
            marks: Marks {
                red: runs.iter().map(|r| r.marks.red).sum(),
                symphony: runs.iter().map(|r| r.marks.symphony).sum(),
            },
            drops,
            retransmissions: runs.iter().map(|r| r.retransmissions).sum(),
            max_lead_steps: runs.iter().map(|r| r.max_lead_steps).max().unwrap_or(0),
        }
    }
}

impl Report {
    /// Puts the runs of all arms together; `base` must be one of them.
    pub fn new(scenario: &'static str, rate_bps: u64, runs: &BTreeMap<&'static str, Vec<RunResult>>) -> Self {
        let arms: BTreeMap<_, _> = runs.iter().map(|(name, runs)| (*name, ArmReport::new(runs))).collect();
        let mut change_pct = BTreeMap::new();
        if let Some(base) = arms.get("base") {
            for (name, arm) in arms.iter().filter(|(name, _)| **name != "base") {
                let change = |arm: Summary, base: Summary| round3(100.0 * (arm.median / base.median - 1.0));
                change_pct.insert(
                    *name,
                    Change {
                        healthy: change(arm.healthy_jct_ms, base.healthy_jct_ms),
                        straggler: change(arm.straggler_jct_ms, base.straggler_jct_ms),
                    },
                );
            }
        }
        let mut conservation = Conservation::default();
        for run in runs.values().flatten() {
            conservation += run.conservation;
        }
        Report {
            version: 1,
            scenario,
            rate_bps,
            repeats: runs.values().map(Vec::len).min().unwrap_or(0),
            arms,
            change_pct,
            conservation,
            verified: runs.values().flatten().all(|r| r.verified),
        }
    }

    /// What the demo promises of any run, whatever the figures: why not, else nothing.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        if !self.verified {
            failures.push("a reduced value is wrong, or a rank did not finish".to_string());
        }
        if !self.conservation.holds() {
            failures.push(format!("packets are not conserved: {:?}", self.conservation));
        }
        failures
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} at {} Mbit/s, medians of {} runs (min..max)\n",
            self.scenario,
            self.rate_bps / 1_000_000,
            self.repeats
        );
        let _ = writeln!(
            text,
            "{:<14} {:>26} {:>8}  {:>26} {:>8}  {:>7} {:>7} {:>6} {:>7} {:>5}",
            "arm", "healthy JCT, ms", "change", "straggler JCT, ms", "change", "RED", "extra", "drops", "retx", "lead"
        );
        for name in ["base", "symphony", "symphony-bold", "blind"] {
            let Some(arm) = self.arms.get(name) else { continue };
            let change = self.change_pct.get(name);
            let percent = |value: Option<f64>| value.map_or(String::from("-"), |v| format!("{v:+.1} %"));
            let range = |s: Summary| format!("{:.0} ({:.0}..{:.0})", s.median, s.min, s.max);
            let _ = writeln!(
                text,
                "{:<14} {:>26} {:>8}  {:>26} {:>8}  {:>7} {:>7} {:>6} {:>7} {:>5}",
                name,
                range(arm.healthy_jct_ms),
                percent(change.map(|c| c.healthy)),
                range(arm.straggler_jct_ms),
                percent(change.map(|c| c.straggler)),
                arm.marks.red,
                arm.marks.symphony,
                arm.drops.values().sum::<u64>(),
                arm.retransmissions,
                arm.max_lead_steps
            );
        }
        let _ = writeln!(
            text,
            "\nRED and extra: packets marked by each over all runs; lead: steps between the first and the last rank of a job.\n\
             Reduced values {}; packets {}.",
            if self.verified { "verified" } else { "WRONG" },
            if self.failures().is_empty() { "conserved" } else { "see above" }
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(job: u32, rank: usize, completed_ms: &[f64]) -> RankTrace {
        RankTrace { job, rank, completed_ms: completed_ms.to_vec() }
    }

    #[test]
    fn lead_is_the_largest_gap_within_one_job_at_any_moment() {
        let traces = [trace(1, 0, &[1.0, 2.0, 3.0]), trace(1, 1, &[2.5, 2.6, 2.7]), trace(2, 0, &[9.0])];
        assert_eq!(max_lead_steps(&traces), 2);
    }

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(summarise([4.0, 1.0, 2.0, 3.0]), Summary { median: 2.5, min: 1.0, max: 4.0 });
    }

    #[test]
    fn change_is_negative_when_the_arm_is_faster_than_base() {
        let run = |ms| RunResult { healthy_jct_ms: ms, straggler_jct_ms: 100.0, verified: true, ..Default::default() };
        let runs = BTreeMap::from([("base", vec![run(200.0)]), ("symphony", vec![run(150.0)])]);
        let report = Report::new("demo", 1, &runs);
        assert_eq!(report.change_pct["symphony"], Change { healthy: -25.0, straggler: 0.0 });
        assert!(!report.change_pct.contains_key("base"));
        assert!(report.failures().is_empty());
    }

    #[test]
    fn a_wrong_value_or_a_lost_packet_fails_the_run() {
        let bad = RunResult { verified: false, ..Default::default() };
        let lost = RunResult {
            verified: true,
            conservation: Conservation { rx: 2, tx: 1, ..Default::default() },
            ..Default::default()
        };
        for run in [bad, lost] {
            assert_eq!(Report::new("demo", 1, &BTreeMap::from([("base", vec![run])])).failures().len(), 1);
        }
    }
}
