//! `symphony sim`: what Symphony does to a cluster, in virtual time.
//!
//! ```text
//! sweep (what is asked) -> study (scenario, arms) -> runner (all cores) -> records -> report -> table, JSON, CSV, pictures
//!                                                      shard: records -> file -> merge ^
//! ```

mod arm;
mod blind;
mod figures;
mod matrix;
mod output;
mod page;
mod record;
mod report;
mod runner;
mod statistics;
mod study;
mod text;
mod twin;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::json;

use self::output::OutputArgs;
use self::record::Sweep;
use self::study::Study;
use super::progress;
use super::table::Table;
use crate::control::scenario::Scenario;

/// Seeds of a first look.
const QUICK_SEEDS: u64 = 3;

/// Arguments.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Arms, all run by default on the same seeds, so that they share start times, paths and RED's random numbers:
  base           switches without Symphony; what the others are compared with
  symphony       Symphony with its defaults
  symphony-bold  the stronger preset: T 0.25 steps, any queue, gap 50us
  gold           lead over the exact minimum of a job's flows; no switch keeps that
  null           draws random numbers where symphony marks, never marks: how far chance goes
  blind          marks as often as symphony, whoever leads: what marking alone does
  oracle         senders without congestion control, the packet of least lead first: how far alignment could go
  fifo           senders without congestion control, first in, first out
Parameters of Symphony for --arm: threshold (or t) in steps, queue (or qthr) as a fraction of Kmin, gap, epoch, recovery,
gold-idle (times such as 50us), growing, only-below-kmin (or c3), enabled (true, false), min-step in recoveries, policy
(owner-min, gold, null, blind), blind-probability; or of:ARM, a blind arm that is matched to ARM. What is left out is as in
symphony.
  symphony sim straggler-3 --arm eager=t:0.25,gap:50us --arm eager-blind=of:eager

Without --seeds, seeds are added (10 to 200) until the 95 % interval of the null arm is within +-1 %; else the row says
\"not resolved\". A change is the ratio of mean completion times over the seeds, with a bootstrap interval.

Many machines: each runs a share, any one of them merges.
  symphony sim multi --seeds 40 --shard 0/8 --out part-0.jsonl      (.. and 1/8 to 7/8; see bench/cluster)
  symphony sim merge part-*.jsonl

Exit status: 0 done; 1 a check failed (packets not conserved, a job that did not finish, an arm that marks and must not,
Symphony switched off that is not identical to base); 2 could not run.")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Show the built-in scenarios
    List(ListArgs),
    /// Run every built-in scenario and make the table of results
    Matrix(matrix::Args),
    /// Put the shards of a sweep together and say what the whole sweep says
    Merge(MergeArgs),
    /// Run the live demo and its simulated twin; say how far they are from each other
    Twin(twin::Args),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Name of a scenario (`symphony sim list`) or path of a TOML file
    #[arg(required = true)]
    scenario: Option<String>,
    #[command(flatten)]
    sweep: SweepArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Threads; all cores if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Run only every N-th run, from number I (0 to N-1), and write it to --out
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "out", conflicts_with_all = ["json", "csv", "report"])]
    shard: Option<(u64, u64)>,
    /// Where the shard goes, as JSON lines for `symphony sim merge`
    #[arg(long, value_name = "FILE", requires = "shard")]
    out: Option<PathBuf>,
    /// Run nothing; print the scenario with every value in force, as a file to start from
    #[arg(long)]
    print_config: bool,
}

#[derive(clap::Args)]
struct SweepArgs {
    /// Run seeds 1 to N; without it, as many as it takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Draw what seeds 1, 2, .. are by K more: to judge on other seeds than those that parameters were tuned on
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    seed_offset: u64,
    /// Three seeds: a first look
    #[arg(long, conflicts_with = "seeds")]
    quick: bool,
    /// Congestion control: dc55, dc300, hpcc300, hpcc900, mlx4; the scenario's if left out, mostly dc55
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// How hosts behave: roce, or astra as ASTRA-sim has it; short for --set model=NAME
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Change a value of the scenario, for instance job.chunk=4MB or fabric.pfc=true; may be given many times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Add an arm or redefine one, for instance eager=t:0.25,gap:50us; may be given many times
    #[arg(long, value_name = "NAME=KEY:VALUE,..")]
    arm: Vec<String>,
    /// Run only these arms, and base
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    arms: Vec<String>,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct MergeArgs {
    /// Files that --out wrote
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

fn shard(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
    parts.filter(|(index, of)| index < of).ok_or_else(|| "write I/N with I from 0 to N-1, for instance 0/8".into())
}

/// Runs a scenario's arms and says what they did to its jobs. Status 1 when a check failed.
///
/// # Errors
/// What keeps it from running.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        None => sweep(args.run),
        Some(Command::List(args)) => list(&args),
        Some(Command::Matrix(args)) => matrix::run(args),
        Some(Command::Merge(args)) => merge(args),
        Some(Command::Twin(args)) => twin::run(&args),
    }
}

fn sweep(args: RunArgs) -> Result<ExitCode> {
    let threads = args.threads.map_or_else(cores, usize::from);
    let mut study = Study::new(Sweep {
        scenario: args.scenario.context("name a scenario")?,
        cc: args.sweep.cc.unwrap_or_default(),
        set: args.sweep.model.map(|model| format!("model={model}")).into_iter().chain(args.sweep.set).collect(),
        arm: args.sweep.arm,
        arms: args.sweep.arms,
        seeds: args.sweep.seeds.unwrap_or(if args.sweep.quick { QUICK_SEEDS } else { 0 }),
        seed_offset: args.sweep.seed_offset,
    })?;
    if args.print_config {
        super::print(study.scenario().to_toml().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(shard), Some(out)) = (args.shard, args.out) {
        let mut file = output::create(&out)?;
        let progress = progress::bar(0);
        let records = study.run_shard(shard, threads, &progress)?;
        progress.finish_and_clear();
        let done = record::write(&mut file, &study.sweep, &records).and_then(|()| Ok(file.flush()?));
        done.with_context(|| output::written(&out))?;
        return Ok(output::status(&study.report(&records)));
    }
    let targets = args.output.open()?;
    let progress = progress::bar(study.least_runs());
    let records = study.run_all(threads, &progress)?;
    progress.finish_and_clear();
    targets.say(&study, &records)
}

fn list(args: &ListArgs) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for name in Scenario::names() {
        let scenario = Scenario::named(name)?;
        let (classes, description) = (scenario.classes().join(", "), scenario.description());
        rows.push(json!({ "name": name, "cc": scenario.cc(), "classes": classes, "description": description }));
    }
    let columns = [("name", "/name"), ("cc", "/cc"), ("classes", "/classes"), ("what it is", "/description")];
    match args.json {
        true => super::print_json(&json!({ "version": 1, "scenarios": rows }))?,
        false => super::print(Table::of_objects(&json!(rows), &columns))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn merge(args: MergeArgs) -> Result<ExitCode> {
    let targets = args.output.open()?;
    let mut sweeps = Vec::new();
    for path in &args.files {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        record::read(BufReader::new(file), &mut sweeps).with_context(|| format!("cannot read {}", path.display()))?;
    }
    match &mut sweeps[..] {
        [(sweep, records)] => {
            let study = Study::new(sweep.clone())?;
            study.take(records)?;
            targets.say(&study, records)
        }
        sweeps => bail!("the files are of {} different sweeps: merge one at a time", sweeps.len()),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_nothing_to_say_before_it_is_merged() {
        use clap::Parser;
        #[derive(Parser)]
        struct Sim {
            #[command(flatten)]
            _args: Args,
        }
        let words =
            |more: &[&'static str]| [&["sim", "multi", "--seeds", "2", "--shard", "0/2", "--out", "x"], more].concat();
        assert!(Sim::try_parse_from(words(&[])).is_ok());
        for more in [&["--json"][..], &["--csv", "y"], &["--report", "z"]] {
            assert!(Sim::try_parse_from(words(more)).is_err(), "{more:?}");
        }
    }

    #[test]
    fn a_shard_counts_from_0_and_is_one_of_them() {
        assert_eq!(shard("0/1"), Ok((0, 1)));
        assert_eq!(shard("7/8"), Ok((7, 8)));
        for wrong in ["8/8", "1", "a/2", "1/0", "-1/2"] {
            assert!(shard(wrong).is_err(), "{wrong}");
        }
    }
}
