//! `symphony sim twin`: what the live demo measures beside what the simulator says of the same scenario and seeds.
//!
//! Both sides run the same switch and the same endpoints. What differs is all around them: sockets, threads, a clock and
//! the kernel there; exact lines and events here. So the difference is what the simulator's model leaves out.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::record::{Record, Sweep};
use super::study::Study;
use crate::backend::sim;
use crate::cli::demo::{self, Demo, prototype};
use crate::cli::{self, progress};

/// Scenario of the simulator that is held against `symphony demo`.
const STRAGGLER_3: &str = "demo-straggler-3";
/// And against `symphony demo prototype`.
const PROTOTYPE: &str = "demo-prototype";
/// How near completion times of base must come on `demo-straggler-3`, in per cent of what is measured.
const BOUND_PCT: f64 = 15.0;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "\
Live: `symphony demo` and `symphony demo prototype`; simulated: the scenarios demo-straggler-3 and demo-prototype, which
have the same jobs, rates, thresholds, start times and seeds. Takes about 2 minutes with --quick, 3 without; needs root.

Exit status: 0 done; 1 the completion times of base on demo-straggler-3 differ by more than 15 %, or a check of the demo
or of the simulator failed; 2 could not run.")]
pub struct Args {
    /// One run of each arm
    #[arg(long)]
    quick: bool,
    /// Runs of each arm of demo-straggler-3; the prototype's are one each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Seed of the first run on both sides; the next run has the next
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1_000_000_000))]
    seed: u64,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// `symphony sim twin --json`.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    rate_bps: u64,
    repeats: u32,
    bound_pct: f64,
    /// Arms in the order in which they run.
    straggler_3: Vec<Arm>,
    prototype: Vec<Run>,
    /// What failed.
    failures: Vec<String>,
}

/// An arm of `demo-straggler-3`: medians over the runs; of leads the greatest.
#[derive(Debug, Serialize)]
struct Arm {
    arm: &'static str,
    healthy_jct_ms: Pair,
    straggler_jct_ms: Pair,
    max_lead_steps: Pair,
    extra_marks: Pair,
}

/// An arm of the prototype at one lag.
#[derive(Debug, Serialize)]
struct Run {
    lag_ms: f64,
    arm: &'static str,
    leader_jct_ms: Pair,
    laggard_jct_ms: Pair,
    lead_at_start_steps: Pair,
    /// `null`: not before one of the flows ended.
    aligned_after_ms: Pair,
    extra_marks: Pair,
}

/// One quantity on both sides; `null` where it has no value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Pair {
    live: Option<f64>,
    simulated: Option<f64>,
    /// By how much the simulator says more, in per cent of what is measured; `null` where that is nothing.
    difference_pct: Option<f64>,
}

impl Pair {
    fn new(live: impl Into<Option<f64>>, simulated: impl Into<Option<f64>>) -> Pair {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let (live, simulated) = (live.into().map(round), simulated.into().map(round));
        let difference = |live: f64| Some(round(100.0 * (simulated? / live - 1.0)));
        Pair { live, simulated, difference_pct: live.filter(|live| *live > 0.0).and_then(difference) }
    }
}

/// Runs both and says how far they are from each other. Status 1 when that is too far, or a check failed.
///
/// # Errors
/// What keeps either from running.
pub fn run(args: &Args) -> Result<ExitCode> {
    let repeats = if args.quick { 1 } else { args.repeats };
    let live_runs = u64::from(repeats) * demo::ARMS.len() as u64 + prototype::RUNS;
    // The demo first: it fails at once where it can't run, and the machine is its own while it measures.
    let mut demo = Demo::new(demo::RATE_BPS, args.quick)?;
    let progress = progress::bar(live_runs);
    progress.set_prefix("live, ");
    let live = demo.straggler_3(args.seed, repeats, &progress)?;
    let live_prototype = prototype::run(&demo, args.seed, &progress)?;
    drop(demo);
    progress.set_prefix("simulated, ");
    let mut study = study(STRAGGLER_3, args.seed, repeats.into(), &[])?;
    progress.inc_length(study.least_runs());
    let simulated = study.run_all(super::cores(), &progress)?;

    let live = demo::Report::new(STRAGGLER_3, demo::RATE_BPS, &live);
    let mut failures = live.failures();
    failures.extend(study.report(&simulated).failures);
    if !live_prototype.is_sound() {
        failures.push("prototype: a value is wrong, or packets are not conserved".into());
    }
    let straggler_3 = arms(&live, &simulated);
    failures.extend(straggler_3.iter().find(|arm| arm.arm == super::arm::BASE).into_iter().flat_map(Arm::too_far));
    let mut prototype = Vec::new();
    for lag in &live_prototype.lags {
        for (arm, live) in [("base", &lag.base), ("symphony", &lag.symphony)] {
            prototype.push(Run::new(arm, lag.lag_ms, live, &simulated_prototype(arm, lag.paper_lag_ms, args.seed)?));
        }
    }
    progress.finish_and_clear();
    let report = Report {
        version: 1,
        rate_bps: demo::RATE_BPS,
        repeats,
        bound_pct: BOUND_PCT,
        straggler_3,
        prototype,
        failures,
    };
    match args.json {
        true => cli::print_json(&report)?,
        false => cli::print(report.table().trim_end())?,
    }
    for failure in &report.failures {
        tracing::error!("{failure}");
    }
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(cli::FAILED) })
}

/// The arms of the demo on the seeds of the demo.
fn study(scenario: &str, seed: u64, seeds: u64, set: &[String]) -> Result<Study> {
    Study::new(Sweep {
        scenario: scenario.into(),
        cc: String::new(),
        set: set.to_vec(),
        arm: Vec::new(),
        arms: demo::ARMS.map(str::to_owned).into(),
        seeds,
        seed_offset: seed - 1,
    })
}

fn arms(live: &demo::Report, simulated: &[Record]) -> Vec<Arm> {
    let arm = |name: &'static str| {
        let measured = live.arms.get(name)?;
        let of = || simulated.iter().filter(move |record| record.arm == name);
        let jct = |class: &str| demo::summarise(of().filter_map(|record| record.jct_ms.get(class).copied())).median;
        let lead = of().map(|record| record.spread_max).max().unwrap_or(0);
        let marks: u64 = of().map(|record| record.extra_marks).sum();
        Some(Arm {
            arm: name,
            healthy_jct_ms: Pair::new(measured.healthy_jct_ms.median, jct("healthy")),
            straggler_jct_ms: Pair::new(measured.straggler_jct_ms.median, jct("straggler")),
            max_lead_steps: Pair::new(f64::from(measured.max_lead_steps), f64::from(lead)),
            extra_marks: Pair::new(measured.marks.symphony as f64, marks as f64),
        })
    };
    demo::ARMS.into_iter().filter_map(arm).collect()
}

/// One run of the prototype's scenario.
fn simulated_prototype(arm: &str, paper_lag_ms: u64, seed: u64) -> Result<prototype::Arm> {
    let lag_ns = prototype::lag_ns(paper_lag_ms);
    let study = study(PROTOTYPE, seed, 1, &[format!("job.straggler.late={lag_ns}ns")])?;
    let results = sim::run(&study.arm_setup(arm, 1)?)?;
    let job = results.jobs.first().context("the prototype has a job")?;
    let completed_ms =
        |rank: usize| -> Vec<f64> { job.steps.get(rank).into_iter().flatten().map(|ns| *ns as f64 / 1e6).collect() };
    if job.finish_ns.is_none() || !results.conservation.holds() {
        bail!("the simulated prototype did not finish, or lost packets: {:?}", results.conservation);
    }
    let (leader, laggard) = (completed_ms(prototype::LEADER), completed_ms(prototype::LAGGARD));
    Ok(prototype::Arm::new(&leader, &laggard, lag_ns, results.marks))
}

impl Arm {
    /// What is beyond the bound.
    fn too_far(&self) -> Vec<String> {
        let classes = [("healthy", self.healthy_jct_ms), ("straggler", self.straggler_jct_ms)];
        let within = |jct: Pair| jct.difference_pct.is_some_and(|percent| percent.abs() <= BOUND_PCT);
        let beyond = classes.into_iter().filter(|(_, jct)| !within(*jct));
        let say = |(class, jct)| {
            format!("{}, {class}: {} ms live / simulated: more than {BOUND_PCT} % apart", self.arm, both(jct, 0))
        };
        beyond.map(say).collect()
    }
}

impl Run {
    fn new(arm: &'static str, lag_ms: f64, live: &prototype::Arm, simulated: &prototype::Arm) -> Run {
        let pair = |of: fn(&prototype::Arm) -> Option<f64>| Pair::new(of(live), of(simulated));
        Run {
            lag_ms,
            arm,
            leader_jct_ms: pair(|arm| Some(arm.leader_jct_ms)),
            laggard_jct_ms: pair(|arm| Some(arm.laggard_jct_ms)),
            lead_at_start_steps: pair(|arm| Some(arm.lead_at_start_steps)),
            aligned_after_ms: pair(|arm| arm.aligned_after_ms),
            extra_marks: pair(|arm| Some(arm.marks.symphony as f64)),
        }
    }
}

impl Report {
    /// For people.
    fn table(&self) -> String {
        let mut text = format!(
            "{STRAGGLER_3} at {} Mbit/s, live / simulated, medians of {} run(s)\n\n{:<14} {:>24} {:>24} {:>10} {:>14}\n",
            self.rate_bps / 1_000_000,
            self.repeats,
            "arm",
            "healthy JCT, ms",
            "straggler JCT, ms",
            "max lead",
            "extra marks"
        );
        for arm in &self.straggler_3 {
            let _ = writeln!(
                text,
                "{:<14} {:>24} {:>24} {:>10} {:>14}",
                arm.arm,
                times(arm.healthy_jct_ms),
                times(arm.straggler_jct_ms),
                both(arm.max_lead_steps, 0),
                both(arm.extra_marks, 0)
            );
        }
        let _ = writeln!(
            text,
            "\nprototype, live / simulated\n\n{:>8}  {:<9} {:>24} {:>24} {:>12} {:>18} {:>14}",
            "lag, ms", "arm", "leader, ms", "laggard, ms", "lead", "aligned after, ms", "extra marks"
        );
        for run in &self.prototype {
            let _ = writeln!(
                text,
                "{:>8.0}  {:<9} {:>24} {:>24} {:>12} {:>18} {:>14}",
                run.lag_ms,
                run.arm,
                times(run.leader_jct_ms),
                times(run.laggard_jct_ms),
                both(run.lead_at_start_steps, 1),
                both(run.aligned_after_ms, 0),
                both(run.extra_marks, 0)
            );
        }
        let verdict = if self.failures.is_empty() { "within" } else { "see the errors; it should be within" };
        let _ = writeln!(text, "\nBase of {STRAGGLER_3}: {verdict} {BOUND_PCT} %. Leads in steps.");
        text
    }
}

fn both(pair: Pair, digits: usize) -> String {
    let say = |value: Option<f64>| value.map_or("never".to_owned(), |value| format!("{value:.digits$}"));
    format!("{} / {}", say(pair.live), say(pair.simulated))
}

fn times(pair: Pair) -> String {
    let difference = pair.difference_pct.map_or("-".into(), |percent| format!("{percent:+.1} %"));
    format!("{} {difference:>9}", both(pair, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::Topology;

    fn pair(live: f64, simulated: f64) -> Pair {
        Pair::new(live, simulated)
    }

    #[test]
    fn what_has_no_value_on_one_side_has_no_difference() {
        assert_eq!(pair(800.0, 900.0).difference_pct, Some(12.5));
        assert_eq!(Pair::new(None, 1.0).difference_pct, None);
        assert_eq!(Pair::new(1.0, None).difference_pct, None);
        assert_eq!(both(Pair::new(1.26, None), 1), "1.3 / never");
    }

    #[test]
    fn base_fails_when_either_class_is_more_than_15_pct_off() {
        let arm = |healthy, straggler| Arm {
            arm: "base",
            healthy_jct_ms: healthy,
            straggler_jct_ms: straggler,
            max_lead_steps: pair(3.0, 3.0),
            extra_marks: pair(0.0, 0.0),
        };
        assert_eq!(arm(pair(1000.0, 1149.0), pair(7000.0, 5951.0)).too_far(), Vec::<String>::new());
        let beyond = arm(pair(1000.0, 1151.0), pair(7000.0, 5949.0)).too_far();
        assert_eq!(beyond.len(), 2);
        assert!(beyond[0].contains("healthy: 1000 / 1151 ms"), "{beyond:?}");
        assert_eq!(arm(pair(0.0, 1.0), pair(1.0, 1.0)).too_far().len(), 1, "what was not measured is no twin");
    }

    #[test]
    fn the_simulated_arms_have_the_parameters_of_the_live_ones() {
        let study = study(STRAGGLER_3, 7, 3, &[]).expect("it is built in");
        let live = demo::Scenario { rate_bps: demo::RATE_BPS };
        for arm in ["base", "symphony", "symphony-bold"] {
            let setup = study.arm_setup(arm, 1).expect("it is sound");
            assert_eq!(setup.seed, 7, "the demo's first seed");
            let live = live.parameters(arm, 0.0);
            assert_eq!(setup.symphony, live.enabled.then_some(live), "{arm}");
        }
    }

    #[test]
    fn the_simulated_prototype_has_the_flows_of_the_live_one_and_both_end() {
        let study = study(PROTOTYPE, 1, 1, &[]).expect("it is built in");
        let setup = study.arm_setup("base", 1).expect("it is sound");
        let (job, live) = (&setup.jobs[0], prototype::step_bytes(demo::RATE_BPS));
        assert_eq!(setup.fabric.topology, Topology::Single { hosts: 4 });
        assert_eq!((u64::from(job.chunk_bytes), job.collective), (live, prototype::COLLECTIVE));
        assert_eq!(job.hosts.len(), 4);
        assert_eq!(job.hosts[prototype::LEADER + 1], job.hosts[prototype::LAGGARD + 1], "one port is the bottleneck");
        assert_eq!(job.start_at, [0, 0, prototype::lag_ns(100), prototype::lag_ns(100)]);
        // 64 steps of 80 ms each alone; together two flows need twice as long, less what the first did before.
        let base = simulated_prototype("base", 100, 1).expect("it runs");
        let alone_ms = 64.0 * live as f64 * 8e3 / demo::RATE_BPS as f64;
        for jct in [base.leader_jct_ms, base.laggard_jct_ms] {
            assert!((1.5 * alone_ms..2.2 * alone_ms).contains(&jct), "{jct} of {alone_ms}");
        }
        assert!((7.0..8.0).contains(&base.lead_at_start_steps), "{}", base.lead_at_start_steps);
    }
}
