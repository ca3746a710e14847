//! `symphony replay`: a capture through the switch.

use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::table::Table;
use crate::backend::replay::{Outcome, Outputs, Report, Spec, replay};
use crate::capture::Reader;
use crate::control::config::{Config, Purpose};
use crate::wire::Opcode;

/// What a capture is replayed into when no configuration is given: no ports, no jobs.
const NO_CONFIG: &str = "[switch]\nname = 'replay'";

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Capture to replay: pcap or pcapng, Ethernet
    #[arg(value_name = "IN.pcap[ng]")]
    input: PathBuf,
    /// Configuration file; without ports in it nothing is forwarded, without it there are no jobs either
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the frames as they leave the switch (those that do not leave: as they came, with the reason)
    #[arg(long, value_name = "OUT.pcapng")]
    write: Option<PathBuf>,
    /// Write one JSON object a packet: every table, register and queue that it met
    #[arg(long, value_name = "OUT.jsonl")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Replays. The status is 1 when the capture breaks off; the report is then of what was read.
///
/// # Errors
/// What keeps it from being read, or the output from being written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = match &args.config {
        Some(path) => super::load_config(path, Purpose::Replay)?,
        None => Config::parse(NO_CONFIG, "built-in", Purpose::Replay)?,
    };
    let spec =
        Spec { switch: config.switch, forward: config.forward, parameters: config.parameters, jobs: config.jobs };
    let input = File::open(&args.input).with_context(|| format!("cannot open {}", args.input.display()))?;
    let metadata = input.metadata().with_context(|| format!("cannot open {}", args.input.display()))?;
    let capture = Reader::new(input).with_context(|| args.input.display().to_string())?;
    // Created before the work begins, so that a wrong path fails at once.
    let mut taken = vec![metadata];
    let outputs = Outputs { capture: create(&args.write, &mut taken)?, trace: create(&args.trace, &mut taken)? };
    let Outcome { report, conservation, cut, cut_in_bth, broken } =
        replay(capture, &spec, outputs).with_context(|| args.input.display().to_string())?;

    if cut > 0 {
        tracing::warn!("{cut} frames were cut by the capture (snap length): their ICRC was not checked");
    }
    if cut_in_bth > 0 {
        tracing::warn!(
            "{cut_in_bth} of them were cut before the end of their BTH: they are not counted as RoCEv2 and not tracked; \
             capture with a snap length of at least 128 bytes"
        );
    }
    let mut status = ExitCode::SUCCESS;
    let mut failed = Vec::new();
    failed.extend(broken.map(|error| format!("{}: {error}", args.input.display())));
    failed.extend((!conservation.holds()).then(|| format!("packets were lost in the switch itself: {conservation:?}")));
    for failure in &failed {
        tracing::error!("{failure}");
        status = ExitCode::from(super::FAILED);
    }
    match args.json {
        true => super::print_json(&report)?,
        false => super::print(summary(&report).trim_end())?,
    }
    Ok(status)
}

/// An output file, which must be none of the `taken` ones under whatever name: they are in use.
fn create(path: &Option<PathBuf>, taken: &mut Vec<Metadata>) -> anyhow::Result<Option<Box<dyn Write>>> {
    let Some(path) = path else { return Ok(None) };
    if let Ok(found) = path.metadata()
        && found.is_file()
        && taken.iter().any(|taken| (taken.dev(), taken.ino()) == (found.dev(), found.ino()))
    {
        anyhow::bail!("{} is read or written by this replay already; write to another file", path.display());
    }
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    taken.push(file.metadata().with_context(|| format!("cannot write {}", path.display()))?);
    Ok(Some(Box::new(BufWriter::new(file))))
}

/// The report for people.
fn summary(report: &Report) -> String {
    let mut out = String::new();
    let Report { icrc, ecn, marks, .. } = report;
    // Writing into a String cannot fail.
    let _ = writeln!(out, "packets    {}", report.packets);
    let _ = writeln!(out, "RoCEv2     {}  (ICRC: {} right, {} wrong)", report.rocev2, icrc.ok, icrc.bad);
    let _ = writeln!(out, "malformed  {}", report.malformed);
    let _ = writeln!(
        out,
        "ECN        {} not capable, {} ECT(0), {} ECT(1), {} CE",
        ecn.not_ect, ecn.ect0, ecn.ect1, ecn.ce
    );
    let _ = writeln!(out, "marks      {} by RED, {} more by Symphony", marks.red, marks.symphony);
    for (reason, packets) in &report.drops {
        let _ = writeln!(out, "dropped    {packets}  {reason}");
    }
    if !report.by_opcode.is_empty() {
        out.push_str("\n   packets  opcode\n");
    }
    for (opcode, packets) in &report.by_opcode {
        let opcode = Opcode(u8::from_str_radix(opcode, 16).unwrap_or_default());
        let _ = writeln!(out, "{packets:>10}  {opcode}");
    }
    if let Ok(flows) = serde_json::to_value(&report.flows)
        && !report.flows.is_empty()
    {
        let columns = ["src", "dst", "qpn", "packets", "retransmitted", "messages", "step"];
        let places = columns.map(|column| format!("/{column}"));
        let columns: Vec<_> = columns.into_iter().zip(places.iter().map(String::as_str)).collect();
        let _ = writeln!(out, "\n{}", Table::of_objects(&flows, &columns));
    }
    for job in &report.jobs {
        let _ = writeln!(out, "job {}: steps {} to {}", job.job, job.min_step, job.max_step);
    }
    out
}
