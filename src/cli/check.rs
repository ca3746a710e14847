//! `symphony check`: are the configuration and this machine fit for each other? And what does a job file compile to?

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use crate::control::config::{Config, ConfigError, Purpose};
use crate::control::machine::{self, Finding, Severity};
use crate::control::serene::{JobFile, Plan};

/// The control language in short, for `--help`.
const LANGUAGE: &str = "\
A job file describes an aggregation job (not to be mixed up with [[job]] in a switch's configuration, a ring collective):

  [job]
  id = 1
  members = [\"10.0.0.1:7001\", \"10.0.0.2:7001\", \"10.0.0.3:7001\", \"10.0.0.4:7001\"]
  segments = 311                  # the vector's length / lanes, rounded up
  lanes = 256                     # values of a packet, a multiple of 8 up to 352
  scale_log2 = 24                 # fixed point: value x 2^24 as a 32-bit integer
  start = \"bsp\"

  [[policy]]                      # the first that applies and holds acts
  in = \"bsp\"                      # optional: only under this strategy
  when = \"wait_p95 > 20ms for 3 rounds and lag_max > 1\"
  then = \"partial(k = n-1, late = return)\"
  cooldown = \"50 rounds\"          # optional: not again so soon

Strategies, for `start`, `then` and `ctl swap`:
  bsp                             a round waits for all workers
  partial(k, late = drop|return)  for k of them: a number, n, n-1, ceil(0.75*n)
  timed(30ms, kmin = n-1, late)   for all, but at most so long after the first
  ssp(3)                          nobody waits, nobody gets more than 3 rounds ahead
  asp                             nobody waits
Other actions: ssp(3..8) with a slack chosen in the range, drop_member(worker), hold

Metrics, of the rounds released last:
  wait_p50 wait_p95 wait_max      how long workers waited for a round's result (ms)
  span                            from a round's first contribution to its release (ms)
  round_time                      from one release to the next (ms)
  lag_max                         rounds between the foremost worker and the hindmost
  late_rate retx_rate             late and repeated contributions (%)
  included_min                    workers whose contribution is in
  silent(worker)                  time since a worker was heard of (s)";

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = LANGUAGE)]
pub struct Args {
    /// Job file of an aggregation job: print what it compiles to. Without --config the machine is not looked at
    #[arg(value_name = "JOB.toml")]
    job: Option<PathBuf>,
    /// Configuration file; without it only the machine is looked at
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Looks at everything, changes nothing. Status 1 if anything is a failure.
///
/// # Errors
/// That a file cannot be read.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    if args.config.is_some() || args.job.is_none() {
        findings.extend(machine::machine());
    }
    if let Some(path) = &args.config {
        findings.extend(configuration(path)?);
    }
    let plan = match &args.job {
        Some(path) => job(path, &mut findings)?,
        None => None,
    };
    let worst = findings.iter().map(|finding| finding.status).max().unwrap_or(Severity::Ok);
    if args.json {
        let mut result = json!({ "version": 1, "ok": worst < Severity::Failure, "findings": findings });
        if let Some(plan) = plan {
            result["job"] = serde_json::to_value(plan)?;
        }
        super::print_json(&result)?;
    } else {
        if let Some(plan) = plan {
            super::print(format!("{plan}\n"))?;
        }
        super::print(text(&findings, io::stdout().is_terminal()))?;
    }
    Ok(ExitCode::from(if worst == Severity::Failure { super::FAILED } else { 0 }))
}

/// What a job file compiles to, where it can be.
fn job(path: &Path, findings: &mut Vec<Finding>) -> anyhow::Result<Option<Plan>> {
    let file = match JobFile::load(path) {
        Ok(file) => file,
        Err(error @ ConfigError::Read { .. }) => return Err(error.into()),
        Err(error) => {
            findings.push(Finding::failure("job", error.to_string(), "correct the file"));
            return Ok(None);
        }
    };
    let JobFile { job, warnings, .. } = file;
    let policies = match job.policies.len() {
        1 => "1 policy".to_owned(),
        number => format!("{number} policies"),
    };
    findings.push(Finding::ok(format!("job {}", job.id), format!("starts as {}, {policies}", job.start)));
    let cure = "leave it out, or keep it for swaps by hand";
    findings.extend(warnings.into_iter().map(|warning| Finding::warning("policy", warning, cure)));
    Ok(Some(Plan::new(&job)))
}

fn configuration(path: &Path) -> anyhow::Result<Vec<Finding>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = match Config::parse(&text, &path.display().to_string(), Purpose::Live) {
        Ok(config) => config,
        Err(error) => return Ok(vec![Finding::failure("configuration", error.to_string(), "correct the file")]),
    };
    let mut findings = vec![Finding::ok(
        "configuration",
        format!("{}: {}, {}", config.name, plural(config.switch.ports.len(), "port"), plural(config.jobs.len(), "job")),
    )];
    match config.switch.ports.len() {
        0 => {
            let message = format!("{}: no [[port]], without which symphony run does not start", path.display());
            findings.push(Finding::failure(
                "ports",
                message,
                "add a [[port]] table for each interface (replay needs none)",
            ));
        }
        1 => {
            let message = "only 1 port: there is nowhere to forward to";
            findings.push(Finding::warning("ports", message, "add [[port]] tables"));
        }
        _ => {}
    }
    findings.extend(short_steps(&config));
    findings.extend(machine::interfaces(&config.interfaces, &config.jobs));
    Ok(findings)
}

/// Such as `2 ports`.
fn plural(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Jobs whose steps are too short for DCQCN to follow: they are not marked.
fn short_steps(config: &Config) -> Vec<Finding> {
    let needed_ns = (config.parameters.min_step * config.parameters.recovery_ns as f64) as u64;
    let mut findings = Vec::new();
    for job in config.jobs.iter().filter(|job| job.enabled && config.parameters.enabled) {
        let Some(step_ns) = job.step_ns else { continue };
        if step_ns < needed_ns {
            let message = format!(
                "job {}: a step takes {} us at the slowest port's rate, less than min_step x recovery = {} us: it is not marked",
                job.id,
                step_ns / 1000,
                needed_ns / 1000
            );
            findings.push(Finding::warning(
                "steps",
                message,
                "make its chunks larger, or lower [symphony] min_step, which may do harm",
            ));
        }
    }
    findings
}

fn text(findings: &[Finding], colour: bool) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for finding in findings {
        let (word, code) = match finding.status {
            Severity::Ok => ("ok     ", "32"),
            Severity::Warning => ("warning", "33"),
            Severity::Failure => ("FAILURE", "31"),
        };
        let word = if colour { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() };
        lines.push(format!("{word}  {:width$}  {}", finding.check, finding.message));
        if let Some(cure) = &finding.cure {
            lines.push(format!("{:9}{:width$}  -> {cure}", "", ""));
        }
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (failures, warnings) = (count(Severity::Failure), count(Severity::Warning));
    lines.push(format!("{}, {}", plural(failures, "failure"), plural(warnings, "warning")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_too_short_to_be_marked_are_warned_of() {
        let config = |recovery: &str| {
            let text = format!(
                "[switch]\nname = 'x'\n[[port]]\nrate = '200Mbit'\n[symphony]\nrecovery = '{recovery}'\n\
                 [[job]]\nstep_size = '1MB'\nring = ['10.0.0.1', '10.0.0.2']"
            );
            Config::parse(&text, "t", Purpose::Live).unwrap()
        };
        assert!(short_steps(&config("19ms")).is_empty(), "a step takes 40 ms");
        assert_eq!(short_steps(&config("21ms")).len(), 1);
    }

    #[test]
    fn cures_stand_below_what_they_cure() {
        let findings = [Finding::ok("a", "fine"), Finding::failure("longer", "broken", "mend it")];
        let expected =
            "ok       a       fine\nFAILURE  longer  broken\n                 -> mend it\n1 failure, 0 warnings";
        assert_eq!(text(&findings, false), expected);
    }
}
