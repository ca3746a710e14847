//! `symphony demo serene`: workers train through the switch, one of them straggles, and the strategy changes meanwhile.

mod live;
mod picture;
mod report;
mod scenario;
mod simulated;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use self::live::Live;
use self::report::{Findings, Report, RunResult};
use self::scenario::{Arm, GATE_ROUNDS, Pattern, Scenario};
use super::lab::Lab;
use crate::cli::progress;
use crate::cli::train::baseline::Baseline;
use crate::cli::train::data::{Data, Source};
use crate::cli::train::measure::SMOOTHING;
use crate::control::units::Duration;
use crate::dataplane::Nanos;
use crate::functions::serene::Late;
use crate::training::Stragglers;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "\
The scenario: a worker process in each of several namespaces trains a 784-32-10 network on its share of Fashion-MNIST; the \
switch between them sums their gradients. Computation is padded by sleep, so that the processor is not the straggler. \
Arms: bsp (all wait for all), dynamic (bsp, and while somebody straggles nobody waits for the last), partial (nobody ever \
waits for the last), ssp(3), asp, and ps: bsp through a UDP parameter server instead of the switch's pipeline.

Needs root, and makes namespaces of its own that it removes again.")]
pub struct Args {
    /// Who straggles
    #[arg(long, value_enum, default_value = "phase")]
    pattern: Pattern,
    /// Paired runs of bsp and dynamic, on seeds that follow each other; more than 3: of every arm
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// One run of bsp and dynamic each, in under 40 s
    #[arg(long)]
    quick: bool,
    /// Only these arms
    #[arg(long, value_enum, value_name = "ARM,..", value_delimiter = ',')]
    arms: Vec<Arm>,
    /// Worker processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=32))]
    workers: u8,
    /// What becomes of contributions that are late in dynamic and partial: dropped, and the others' are divided by their
    /// number; or returned, to be pushed again with the next
    #[arg(long, value_name = "drop|return", default_value = "drop", value_parser = late)]
    late: Late,
    /// What an iteration's computation takes: gradient, and sleep
    #[arg(long, value_name = "TIME", default_value = "20ms")]
    padding: Duration,
    /// Length of a run
    #[arg(long, value_name = "TIME", default_value = "12s")]
    time: Duration,
    /// fashion-mnist (Debian: dataset-fashion-mnist), digits (built in), or a directory with MNIST's four files
    #[arg(long, value_name = "DATA", default_value = "fashion-mnist")]
    data: Source,
    /// Seed of network, minibatches and stragglers; run number K uses SEED + K
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// In virtual time: real gradients through the same switch, but neither namespaces nor root, and up to 32 workers
    #[arg(long)]
    simulate: bool,
    /// Where the picture goes: waiting and strategy over time, bsp beside dynamic
    #[arg(long, value_name = "FILE.svg", default_value = "symphony-demo-serene.svg")]
    picture: PathBuf,
    /// Print the job file of an arm that changes its strategy, and exit
    #[arg(long)]
    print_job: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

fn late(text: &str) -> Result<Late, &'static str> {
    match text {
        "drop" => Ok(Late::Drop),
        "return" => Ok(Late::Return),
        _ => Err("write drop or return"),
    }
}

impl Args {
    fn scenario(&self) -> Scenario {
        Scenario {
            workers: self.workers,
            padding_ns: self.padding.0,
            run_ns: self.time.0,
            pattern: self.pattern,
            late: self.late,
            source: self.data.clone(),
            segments: 0,
        }
    }

    fn arms(&self) -> &[Arm] {
        match self.arms.as_slice() {
            [] if self.quick => &[Arm::Bsp, Arm::Dynamic],
            [] if self.simulate => &[Arm::Bsp, Arm::Dynamic, Arm::Partial, Arm::Ssp, Arm::Asp],
            [] => &[Arm::Bsp, Arm::Dynamic, Arm::Partial, Arm::Ssp, Arm::Asp, Arm::Ps],
            arms => arms,
        }
    }
}

/// Runs all arms in turn and says what they did. Status 1 when a sum is wrong.
///
/// # Errors
/// What keeps the demo from running.
pub fn run(args: &Args) -> Result<ExitCode> {
    let data = args.data.load()?;
    let scenario = args.scenario().learning(&data);
    if args.print_job {
        crate::cli::print(scenario.job_file(Arm::Dynamic).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = crate::cli::run::stop_on_signals()?;
    let lab = if args.simulate { None } else { Some(Lab::new(scenario.hosts(), 0)?) };
    let live = lab.as_ref().map(|lab| Live { lab, scenario: &scenario, stop: &stop });
    let demo =
        Demo { live, scenario: &scenario, data: &data, stop: &stop, target: target(&scenario, &data, args.seed) };
    let plan = plan(if args.quick { 1 } else { args.runs }, args.arms());
    let progress = progress::bar(1 + plan.len() as u64);
    let bit_exact = demo.gate(args.seed, &progress)?;
    let runs = if bit_exact { demo.runs(&plan, args.seed, &progress)? } else { BTreeMap::new() };
    progress.finish_and_clear();

    let report = Report::new(&Findings {
        pattern: scenario.task(0).stragglers.name(),
        workers: scenario.workers,
        run_ns: scenario.run_ns,
        target_accuracy: demo.target,
        target_rounds: scenario.target_rounds(),
        bit_exact,
        runs: &runs,
    });
    draw(&args.picture, &scenario, demo.target, &runs)?;
    match args.json {
        true => crate::cli::print_json(&report)?,
        false => crate::cli::print(format!("{}picture: {}", report.table(), args.picture.display()))?,
    }
    if !bit_exact {
        tracing::error!("a sum of the switch differs from a single process's: nothing was timed");
    }
    Ok(super::status(bit_exact))
}

/// Accuracy that a single process has after as many rounds as the scenario says, on the evaluations' samples and smoothed as
/// they are. It has no network, no straggler and no strategy, so no arm's figures are in it.
fn target(scenario: &Scenario, data: &Data, seed: u64) -> f64 {
    let mut baseline = Baseline::new(&scenario.task(seed), data);
    let mut test = data.test.clone();
    test.truncate(crate::cli::train::SAMPLES_ON_THE_WAY);
    let rounds = scenario.target_rounds();
    // Evaluations lie as far apart as in a run without a straggler.
    let apart = (scenario::EVALUATE_EVERY_NS / scenario.padding_ns.max(1)).max(1) as u32;
    let mut sum = 0.0;
    for round in 1..=rounds {
        baseline.round(data);
        let before_end = rounds - round;
        if before_end.is_multiple_of(apart) && before_end / apart < SMOOTHING as u32 {
            sum += baseline.mlp().map_or(0.0, |mlp| mlp.accuracy(&test));
        }
    }
    sum / SMOOTHING as f64
}

/// Which arm runs on which seed, in which order: bsp and dynamic as pairs that take turns at going first; the others once, or
/// as often in the long form.
fn plan(runs: u32, arms: &[Arm]) -> Vec<(Arm, u32)> {
    let mut plan = Vec::new();
    for run in 0..runs {
        let mut pair = [Arm::Bsp, Arm::Dynamic];
        if run % 2 == 1 {
            pair.reverse();
        }
        let others = arms.iter().filter(|arm| !pair.contains(arm) && (run == 0 || runs > 3));
        plan.extend(pair.iter().filter(|arm| arms.contains(arm)).chain(others).map(|arm| (*arm, run)));
    }
    plan
}

struct Demo<'a> {
    /// `None`: in virtual time.
    live: Option<Live<'a>>,
    scenario: &'a Scenario,
    data: &'a Data,
    stop: &'a AtomicBool,
    target: f64,
}

impl Demo<'_> {
    /// BSP through the switch against a single process, before anything is timed.
    fn gate(&self, seed: u64, progress: &ProgressBar) -> Result<bool> {
        progress.set_message(format!("gate: {GATE_ROUNDS} rounds against a single process"));
        let task = self.scenario.gate(seed);
        let result = self.once(Arm::Bsp, &task, None, progress)?;
        let record = &result.record;
        let complete = record.workers.iter().all(|worker| worker.rounds.len() == GATE_ROUNDS as usize);
        Ok(complete && record.wrong() == 0)
    }

    fn runs(&self, plan: &[(Arm, u32)], seed: u64, progress: &ProgressBar) -> Result<BTreeMap<Arm, Vec<RunResult>>> {
        let mut runs = BTreeMap::<Arm, Vec<RunResult>>::new();
        for (arm, run) in plan {
            let task = self.scenario.task(seed + u64::from(*run));
            let result = self.once(*arm, &task, Some(self.target), progress)?;
            runs.entry(*arm).or_default().push(result);
        }
        Ok(runs)
    }

    fn once(
        &self,
        arm: Arm,
        task: &crate::cli::train::order::Task,
        target: Option<f64>,
        progress: &ProgressBar,
    ) -> Result<RunResult> {
        let label = format!("{} (seed {})", arm.name(), task.seed);
        progress.set_message(label.clone());
        let result = match &self.live {
            None => simulated::run(self.scenario, self.data, arm, task, target)?,
            Some(live) => live.run(arm, task, target, &mut |record| {
                if !progress.is_hidden() {
                    progress.set_message(format!("{label}: {}", record.now()));
                }
            })?,
        };
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        progress.inc(1);
        Ok(result)
    }
}

fn draw(path: &Path, scenario: &Scenario, target: f64, runs: &BTreeMap<Arm, Vec<RunResult>>) -> Result<()> {
    let column = |arm: Arm| {
        let run = runs.get(&arm)?.first()?;
        let time = run
            .time_to_target_ns
            .map_or("target not reached".into(), |ns: Nanos| format!("target after {:.1} s", ns as f64 / 1e9));
        let waited = run.record.wait_ns() as f64 / 1e9;
        Some(picture::Column {
            title: format!("{}: {time}, waited {waited:.1} s in all", arm.name()),
            start: "bsp".into(),
            run,
        })
    };
    let columns: Vec<_> = [Arm::Bsp, Arm::Dynamic].into_iter().filter_map(column).collect();
    let straggling_s = match scenario.task(0).stragglers {
        Stragglers::Phase { from_ns, to_ns, .. } => Some((from_ns as f64 / 1e9, to_ns as f64 / 1e9)),
        Stragglers::Pause { from_ns, for_ns } => Some((from_ns as f64 / 1e9, (from_ns + for_ns) as f64 / 1e9)),
        _ => None,
    };
    let marks = picture::Marks { end_s: scenario.run_ns as f64 / 1e9, straggling_s, target };
    fs::write(path, picture::draw(&columns, &marks)?)
        .with_context(|| format!("cannot write the picture {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bsp_and_dynamic_run_in_pairs_that_take_turns_and_the_others_once() {
        let names = |runs, arms: &[Arm]| -> Vec<String> {
            plan(runs, arms).iter().map(|(arm, run)| format!("{}{run}", arm.name())).collect()
        };
        let all = [Arm::Bsp, Arm::Dynamic, Arm::Partial, Arm::Ssp, Arm::Asp, Arm::Ps];
        assert_eq!(names(1, &[Arm::Dynamic, Arm::Bsp]), ["bsp0", "dynamic0"]);
        assert_eq!(names(2, &all), ["bsp0", "dynamic0", "partial0", "ssp0", "asp0", "ps0", "dynamic1", "bsp1"]);
        assert_eq!(names(5, &all).len(), 30);
    }

    #[test]
    fn every_arms_job_file_is_accepted_and_only_dynamic_has_policies() {
        let source = Source::Digits;
        let data = source.load().expect("built in");
        let scenario = Scenario {
            workers: 4,
            padding_ns: 20_000_000,
            run_ns: 12_000_000_000,
            pattern: Pattern::Phase,
            late: Late::Drop,
            source,
            segments: 0,
        }
        .learning(&data);
        for arm in [Arm::Bsp, Arm::Dynamic, Arm::Partial, Arm::Ssp, Arm::Asp] {
            let service = scenario.aggregation(arm).expect("it is sound").expect("the switch aggregates");
            assert_eq!(service.jobs[0].members.len(), 4);
            assert_eq!(service.jobs[0].policies.is_empty(), arm != Arm::Dynamic);
        }
        assert_eq!(scenario.aggregation(Arm::Ps).expect("nothing to refuse"), None);
        assert_eq!(scenario.target_rounds(), 300);
    }
}
