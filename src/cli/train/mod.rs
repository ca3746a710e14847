//! `symphony train`: workers that train one network together, through the switch.
//!
//! ```text
//! order  what they say to each other        worker  one process: compute, push, report
//! data   data sets                          coordinator  starts them, collects       measure  what the record says
//! baseline  a single process that does it all, to compare with bit for bit
//! ```

pub mod baseline;
pub mod coordinator;
pub mod data;
pub mod measure;
pub mod order;
pub mod patterns;
mod report;
pub mod simulated;
mod worker;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use self::coordinator::{Limits, Record};
use self::data::Source;
use self::order::{Order, Task};
use self::report::Report;
pub use self::worker::SAMPLES_ON_THE_WAY;
use crate::control::serene::JobFile;
use crate::control::units::Duration;
use crate::dataplane::Nanos;
use crate::functions::serene::Job;
use crate::training::Stragglers;
use crate::wire::AGGREGATION_PORT;

const EVALUATE_EVERY_NS: Nanos = 250_000_000;

const EXAMPLES: &str = "\
Examples:
  All workers of a job between namespaces sym-h1, sym-h2, .. (netns-scripts/up.sh), through a switch that runs there with
  [serene] address = \"10.0.255.254\" and the job:
    symphony train --job job.toml --switch 10.0.255.254 --netns-prefix sym-h --seconds 30

  One worker here, the others wherever they are; a job's round begins when all of them have joined:
    h1# symphony train --job job.toml --switch 10.0.255.254 --worker 0
    h2# symphony train --job job.toml --switch 10.0.255.254 --worker 1

  A straggler, and a check of every sum against a single process (strategy bsp):
    symphony train .. --stragglers phase=8s..22s
    symphony train .. --rounds 100 --padding 0ms --verify

Workers of one job must be told the same but for --worker and --bind.

Exit status: 0 trained, 1 a sum was wrong (--verify), 2 could not run.";

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub struct Args {
    /// Job file: members, segments, lanes
    #[arg(long, value_name = "JOB.toml", required_unless_present = "ordered")]
    job: Option<PathBuf>,
    /// Address that the switch aggregates at, or of a parameter server
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = service, required_unless_present = "ordered")]
    switch: Option<SocketAddrV4>,
    /// Be this worker, from 0 [default: start a process for each]
    #[arg(long, value_name = "N")]
    worker: Option<u8>,
    /// Local address of the worker [default: the job's member]
    #[arg(long, value_name = "ADDR:PORT", requires = "worker")]
    bind: Option<SocketAddrV4>,
    /// Worker 0 runs in namespace NAME1, worker 1 in NAME2, .. [default: here]
    #[arg(long, value_name = "NAME")]
    netns_prefix: Option<String>,
    /// fashion-mnist (Debian: dataset-fashion-mnist), digits (built in), or a directory with MNIST's four files
    #[arg(long, value_name = "DATA", default_value = "fashion-mnist")]
    data: Source,
    /// Units of each hidden layer; 0: none
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "100")]
    hidden: Vec<usize>,
    /// Samples of a worker's minibatch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Learning rate
    #[arg(long, value_name = "RATE", default_value_t = 0.04)]
    learning_rate: f32,
    /// What an iteration's computation takes: the gradient, and sleep
    #[arg(long, value_name = "TIME", default_value = "20ms")]
    padding: Duration,
    #[arg(long, value_name = "PATTERN", default_value = "none", value_parser = patterns::parse, help = format!("Who is slow: {}", patterns::PATTERNS))]
    stragglers: Stragglers,
    /// Stop after so many rounds of the job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Stop after so many seconds, in the middle of a round; --rounds ends with the same one everywhere
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::run::seconds)]
    seconds: Option<std::time::Duration>,
    /// Stop when the test accuracy is this, 0 to 1
    #[arg(long, value_name = "ACCURACY", value_parser = share)]
    target: Option<f64>,
    /// Seed of the network, the minibatches and the stragglers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Compare every sum with that of a single process, bit for bit (strategy bsp)
    #[arg(long)]
    verify: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Be a worker of a coordinator that speaks through pipes
    #[arg(long, hide = true, exclusive = true)]
    ordered: bool,
}

fn service(text: &str) -> Result<SocketAddrV4, String> {
    let address = text.parse::<Ipv4Addr>().map(|address| SocketAddrV4::new(address, AGGREGATION_PORT));
    address
        .or_else(|_| text.parse())
        .map_err(|_| format!("write an IPv4 address, with a port other than {AGGREGATION_PORT} as 10.0.0.1:7000"))
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or("write a number from 0 to 1".into())
}

/// Trains, and says how it went.
///
/// # Errors
/// What keeps it from training.
pub fn run(args: Args) -> Result<ExitCode> {
    let (Some(path), Some(switch)) = (&args.job, args.switch) else {
        worker::obey()?; // --ordered
        return Ok(ExitCode::SUCCESS);
    };
    let job = JobFile::load(path)?.job;
    let task = args.task(&job);
    let orders = args.orders(&job, &task, switch)?;
    let stop = crate::cli::run::stop_on_signals().context("cannot catch SIGINT and SIGTERM")?;
    let limits = Limits {
        at_most_ns: args.seconds.map(|seconds| seconds.as_nanos() as Nanos),
        accuracy: args.target,
        ..Limits::default()
    };
    let progress = crate::cli::progress::spinner();
    let record = coordinator::run(&orders, limits, &stop, &mut |record| show(&progress, record))?;
    progress.finish_and_clear();
    ensure!(
        record.rounds().next().is_some(),
        "no round was completed in {:.1} s: under bsp each waits for every worker of the job; `symphony ctl status` says who \
         has not joined",
        record.elapsed_ns as f64 / 1e9
    );
    let report = Report::new(&task, &orders, &record);
    for line in &report.warnings {
        tracing::warn!("{line}");
    }
    match args.json {
        true => super::print_json(&report)?,
        false => super::print(report.table())?,
    }
    Ok(ExitCode::from(if report.wrong_sums == 0 { 0 } else { super::FAILED }))
}

impl Args {
    fn task(&self, job: &Job) -> Task {
        Task {
            job: job.id,
            segments: job.segments,
            lanes: job.lanes.into(),
            scale_log2: job.scale_log2.into(),
            workers: job.members.len() as u8,
            data: self.data.clone(),
            hidden: self.hidden.iter().copied().filter(|units| *units > 0).collect(),
            batch: self.batch.into(),
            learning_rate: self.learning_rate,
            padding_ns: self.padding.0,
            stragglers: self.stragglers,
            seed: self.seed,
            rounds: self.rounds,
            verify: self.verify,
        }
    }

    /// For one worker, or for all.
    fn orders(&self, job: &Job, task: &Task, switch: SocketAddrV4) -> Result<Vec<Order>> {
        let order = |(worker, member): (u8, &SocketAddrV4)| Order {
            task: task.clone(),
            worker,
            netns: self.netns_prefix.as_ref().map(|prefix| format!("{prefix}{}", u32::from(worker) + 1)),
            local: self.bind.unwrap_or(*member),
            switch,
            evaluate_every_ns: None,
        };
        let mut orders: Vec<Order> = (0..).zip(&job.members).map(order).collect();
        if let Some(worker) = self.worker {
            ensure!(
                usize::from(worker) < orders.len(),
                "--worker {worker}: the job has workers 0 to {}",
                orders.len() - 1
            );
            orders = vec![orders.swap_remove(worker.into())];
        }
        // The last one: most patterns slow the first one down.
        if let Some(last) = orders.last_mut() {
            last.evaluate_every_ns = Some(EVALUATE_EVERY_NS);
        }
        Ok(orders)
    }
}

/// Where a run is, on the worker that evaluates.
fn show(progress: &ProgressBar, record: &Record) {
    if !progress.is_hidden() {
        progress.set_message(record.now());
    }
}
