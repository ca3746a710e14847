//! `symphony demo`: real packets between namespaces, with and without Symphony.

mod lab;
mod live;
pub mod prototype;
mod report;
mod scenario;
mod serene;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;

use self::lab::Lab;
use self::live::RunSettings;
use self::report::{RankTrace, RunResult};
use crate::cli::{picture, progress};
use crate::control::units::Rate;

pub use self::report::{Report, summarise};
pub use self::scenario::{ARMS, RATE_BPS, Scenario};

/// The runs of each arm.
pub type Runs = BTreeMap<&'static str, Vec<RunResult>>;

/// How many blind runs in all may be repeated because their marks did not match those of their symphony run.
const RECALIBRATIONS: usize = 2;
/// How near the extra marks of blind must come to those of the paired symphony run.
const BLIND_TOLERANCE: f64 = 0.10;
/// A rank that has not finished by then never will: the slowest rank alone needs 7 s.
const RUN_LIMIT: Duration = Duration::from_secs(30);

/// Arguments.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The scenario: one switch, 4 servers, 4 ring all-reduce jobs with a rank in each server. Job 1 is undisturbed; jobs 2 to 4
have a rank with a NIC of 5 % of the rate. Their other ranks run ahead and compete with job 1 for bandwidth that they
cannot use; Symphony marks them. Arms: base (Symphony off), symphony (defaults), symphony-bold (T 0.25, QTHR 0, GAP 50 us)
and blind, a placebo that marks as many packets without looking at steps.

Needs root, and makes namespaces of its own that it removes again."
)]
pub struct Args {
    #[command(subcommand)]
    serene: Option<Other>,
    /// What to show; prototype runs each lag once with Symphony off and on, in about 70 s
    #[arg(value_enum, default_value = "straggler-3")]
    scenario: Which,
    /// One run of each arm, in under 40 s
    #[arg(long)]
    quick: bool,
    /// Runs of each arm
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Line rate of the switch's ports and of a healthy rank's NIC
    #[arg(long, value_name = "RATE", default_value = "200Mbit", value_parser = rate)]
    rate: u64,
    /// Seed of start times and of RED; repeat number K uses SEED + K
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the picture goes: steps of each rank over time, base beside symphony
    #[arg(long, value_name = "FILE.svg", default_value = "symphony-demo.svg")]
    picture: PathBuf,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Demos with options of their own.
#[derive(clap::Subcommand)]
enum Other {
    /// Workers that train a network through the switch, with a straggler and a strategy that changes
    Serene(serene::Args),
}

/// The scenarios.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// One undisturbed job among three that each have a slow rank
    #[value(name = "straggler-3")]
    Straggler3,
    /// The paper's testbed: two flows into one port, one starts late; lags 20, 100 and 400 ms, scaled
    Prototype,
}

fn rate(text: &str) -> Result<u64, String> {
    let Rate(bps) = text.parse().map_err(|error| format!("{error}"))?;
    match bps {
        20_000_000..=1_000_000_000 => Ok(bps),
        _ => Err("use 20Mbit to 1Gbit: below, a run takes minutes; above, the machine is what is measured".into()),
    }
}

/// Runs all arms in turn and says what they did to the jobs. Status 1 when a reduced value is wrong or a packet is not
/// accounted for.
///
/// # Errors
/// What keeps the demo from running.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(Other::Serene(args)) = &args.serene {
        return serene::run(args);
    }
    let demo = Demo::new(args.rate, args.quick)?;
    match args.scenario {
        Which::Straggler3 => straggler_3(demo, &args),
        Which::Prototype => prototype(&demo, &args),
    }
}

fn straggler_3(mut demo: Demo, args: &Args) -> Result<ExitCode> {
    let repeats = if args.quick { 1 } else { args.repeats };
    let progress = progress::bar(u64::from(repeats) * ARMS.len() as u64);
    let runs = demo.straggler_3(args.seed, repeats, &progress)?;
    progress.finish_and_clear();

    let report = Report::new("demo-straggler-3", args.rate, &runs);
    draw(&args.picture, &runs)?;
    match args.json {
        true => super::print_json(&report)?,
        false => super::print(format!("{}picture: {}", report.table(), args.picture.display()))?,
    }
    let failures = report.failures();
    for failure in &failures {
        tracing::error!("{failure}");
    }
    Ok(status(failures.is_empty()))
}

fn prototype(demo: &Demo, args: &Args) -> Result<ExitCode> {
    let progress = progress::bar(prototype::RUNS);
    let report = prototype::run(demo, args.seed, &progress)?;
    progress.finish_and_clear();
    match args.json {
        true => super::print_json(&report)?,
        false => super::print(report.table().trim_end())?,
    }
    Ok(status(report.is_sound()))
}

fn status(sound: bool) -> ExitCode {
    if sound { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) }
}

/// The network, and what all runs in it have in common. Dropping it removes the network.
pub struct Demo {
    scenario: Scenario,
    lab: Lab,
    stop: Arc<AtomicBool>,
    /// Blind's probability of heads as known so far; 0: not yet.
    coin: f64,
    /// Blind runs that may still be repeated.
    recalibrations: usize,
}

impl Demo {
    /// Makes the network. `quick`: blind is not repeated where it misses.
    ///
    /// # Errors
    /// Not root, or a missing tool.
    pub fn new(rate_bps: u64, quick: bool) -> Result<Self> {
        let stop = super::run::stop_on_signals()?;
        let lab = Lab::new(scenario::SERVERS, scenario::JOBS)?;
        let recalibrations = if quick { 0 } else { RECALIBRATIONS };
        Ok(Demo { scenario: Scenario { rate_bps }, lab, stop, coin: 0.0, recalibrations })
    }

    /// Runs of `demo-straggler-3` by arm, on `seed` and those that follow it.
    ///
    /// # Errors
    /// What keeps a run from taking place.
    pub fn straggler_3(&mut self, seed: u64, repeats: u32, progress: &ProgressBar) -> Result<Runs> {
        let mut runs = Runs::new();
        for repeat in 0..repeats {
            for arm in ARMS {
                progress.set_message(format!("repeat {} of {repeats}: {arm}", repeat + 1));
                let seed = seed + u64::from(repeat);
                let paired = runs.get("symphony").and_then(|runs| runs.last());
                let result = match (arm, paired) {
                    ("blind", Some(paired)) => self.blind(seed, paired)?,
                    _ => self.run(arm, seed)?,
                };
                runs.entry(arm).or_default().push(result);
                progress.inc(1);
            }
        }
        Ok(runs)
    }

    fn run(&self, arm: &str, seed: u64) -> Result<RunResult> {
        let settings = RunSettings {
            switch: self.scenario.switch(seed),
            parameters: self.scenario.parameters(arm, self.coin),
            jobs: self.scenario.jobs(),
            servers: self.scenario.servers(&self.lab, seed),
            limit: RUN_LIMIT,
        };
        self.once(arm, settings)
    }

    fn once(&self, arm: &str, settings: RunSettings) -> Result<RunResult> {
        let result = live::run(&self.lab, settings, &self.stop)?;
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        warn_of_starvation(arm, &result);
        Ok(result)
    }

    /// A blind run whose extra marks match those of the paired symphony run, as far as there is time to try again.
    fn blind(&mut self, seed: u64, paired: &RunResult) -> Result<RunResult> {
        if self.coin == 0.0 {
            self.coin = paired.lead_tests as f64 / paired.job_packets.max(1) as f64;
        }
        loop {
            let result = self.run("blind", seed)?;
            let ratio = result.marks.symphony as f64 / paired.marks.symphony.max(1) as f64;
            tracing::info!("blind: coin {:.4}, {ratio:.2} times the extra marks of symphony", self.coin);
            if (ratio - 1.0).abs() <= BLIND_TOLERANCE {
                return Ok(result);
            }
            self.coin = (self.coin / ratio.clamp(0.2, 5.0)).clamp(1e-5, 1.0);
            if self.recalibrations == 0 {
                tracing::warn!(
                    "blind set {ratio:.2} times the extra marks of symphony, so it says little here; more --repeats match it"
                );
                return Ok(result);
            }
            self.recalibrations -= 1;
        }
    }
}

fn draw(path: &Path, runs: &Runs) -> Result<()> {
    let rank = |trace: &RankTrace| picture::Rank {
        group: (trace.job as usize).saturating_sub(1),
        label: format!("job {}", trace.job),
        completed_ms: trace.completed_ms.clone(),
    };
    let panels: Vec<picture::Panel> = ["base", "symphony"]
        .iter()
        .filter_map(|arm| {
            let run = runs.get(arm)?.first()?;
            Some(picture::Panel {
                title: format!("{arm}: job 1 done after {:.0} ms", run.healthy_jct_ms),
                ranks: run.traces.iter().map(rank).collect(),
            })
        })
        .collect();
    let svg = picture::steps("Steps of each rank over time; jobs 2 to 4 have a slow rank", &panels)?;
    fs::write(path, svg).with_context(|| format!("cannot write the picture {}", path.display()))
}

/// Hosts that could not keep their own schedule measure this machine, not the network.
fn warn_of_starvation(arm: &str, run: &RunResult) {
    if run.host_share_lost > 0.02 {
        tracing::warn!(
            "{arm}: hosts lost {:.1} % of their sending time to a busy CPU (late by up to {:.1} ms); \
             close other programs or lower --rate",
            run.host_share_lost * 100.0,
            run.host_late_ms
        );
    }
}
