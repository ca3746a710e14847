//! `symphony run`: the live switch, until a signal.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::backend::afxdp::{RunSpec, Runner};
use crate::backend::live::Snapshot;
use crate::control::config::{Config, Purpose};
use crate::control::socket::ControlSocket;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print the last snapshot as one JSON object
    #[arg(long)]
    json: bool,
    /// Print every value in force and exit
    #[arg(long)]
    print_config: bool,
    /// Stop after so many seconds [default: at SIGTERM or SIGINT]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
}

/// Runs the switch until it is told to stop, then prints what became of all packets.
///
/// # Errors
/// What keeps it from running.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = super::load_config(&args.config, Purpose::Live)?;
    if args.print_config {
        match args.json {
            true => super::print_json(&config.file)?,
            false => super::print(config.to_toml().trim_end())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_on_signals().context("cannot catch SIGINT and SIGTERM")?;
    let (requests, receiver) = crossbeam::channel::bounded(16);
    let mut runner = Runner::new(spec(&config))?;
    let control = ControlSocket::open(&config, requests)?; // after it: who is not root should hear of that first
    if let Some(duration) = args.duration {
        let stop = stop.clone();
        thread::spawn(move || {
            thread::sleep(duration);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let snapshot = runner.run(&stop, receiver)?;
    drop(control);
    drop(runner);
    match args.json {
        true => super::print_json(&snapshot)?,
        false => super::print(summary(&snapshot).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the configuration says, as the backend wants it.
pub fn spec(config: &Config) -> RunSpec {
    RunSpec {
        name: config.name.clone(),
        switch: config.switch.clone(),
        interfaces: config.interfaces.clone(),
        forwarding: config.forward.clone(),
        parameters: config.parameters,
        jobs: config.jobs.clone(),
        aggregation: config.serene.clone(),
    }
}

/// A flag that the first SIGINT or SIGTERM sets. One that comes a while later exits at once; the kernel then detaches for us.
/// Some senders signal a process twice (coreutils' timeout: by itself and with its group), which is meant as once.
///
/// # Errors
/// That a handler cannot be installed.
pub fn stop_on_signals() -> std::io::Result<Arc<AtomicBool>> {
    const ONE_REQUEST: Duration = Duration::from_millis(500);
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, mut signals) = (stop.clone(), Signals::new([SIGINT, SIGTERM])?);
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = None;
        for _ in signals.forever() {
            flag.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > ONE_REQUEST {
                low_level::exit(super::FAILED.into()); // nobody waits for what is left to do
            }
        }
    })?;
    Ok(stop)
}

/// A number of seconds, for clap.
///
/// # Errors
/// Not one, or longer than a clock can hold.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The last snapshot for people.
fn summary(snapshot: &Snapshot) -> String {
    let all = &snapshot.conservation;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{} ran for {:.1} s", snapshot.name, snapshot.uptime_ns as f64 / 1e9);
    let _ = writeln!(
        text,
        "  packets  {} received + {} emitted + {} replicas = {} sent + {} consumed + {} dropped + {} queued",
        all.rx, all.emitted, all.replicas, all.tx, all.consumed, all.dropped, all.queued
    );
    for (reason, count) in snapshot.drops.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "  dropped  {count} {reason}");
    }
    let _ = writeln!(text, "  marked   {} by RED, {} by Symphony alone", snapshot.marks.red, snapshot.marks.symphony);
    for port in &snapshot.ports {
        let _ = writeln!(
            text,
            "  port {} ({}, {}): {} packets in, {} out, at most {} bytes queued",
            port.name,
            port.interface,
            if port.up { "up" } else { "down" },
            port.rx_packets,
            port.tx_packets,
            port.max_depth_bytes
        );
        for (name, count) in port.xdp.iter().filter(|(name, count)| **count > 0 && name.starts_with("rx_")) {
            let _ = writeln!(text, "    lost at the socket: {count} {name}");
        }
    }
    for job in &snapshot.aggregation {
        let _ = writeln!(
            text,
            "  aggregation job {}: {} in force, {} rounds released, {} swaps, {} contributions late",
            job.job,
            job.strategy,
            job.released,
            job.swaps.len(),
            job.counters.late
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::Conservation;

    #[test]
    fn the_summary_names_only_reasons_that_occurred() {
        let snapshot = Snapshot {
            name: "tor1".into(),
            uptime_ns: 1_500_000_000,
            conservation: Conservation { rx: 3, tx: 1, dropped: 2, ..Conservation::default() },
            drops: [("tail_drop", 2), ("runt", 0)].into(),
            ..Snapshot::default()
        };
        let text = summary(&snapshot);
        assert!(text.starts_with("tor1 ran for 1.5 s\n"), "{text}");
        assert!(text.contains("dropped  2 tail_drop\n"), "{text}");
        assert!(!text.contains("runt"), "{text}");
    }

    #[test]
    fn a_duration_is_a_number_of_seconds_that_a_clock_can_hold() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
        assert!(seconds("1e300").is_err());
        assert!(seconds("soon").is_err());
    }
}
