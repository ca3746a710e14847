//! The commands of `symphony`, one file each: `Args` for clap and `run`, which returns 0 (ran) or 1 (ran, and a check
//! failed). Whatever could not run is an error: its text goes to stderr, and the status is 2.
//!
//! stdout is for the result alone. With `--json` it is exactly one object, for errors too (`{"version":1,"error":".."}`).
//! Everything else goes to stderr. A reader who closes the pipe early is not an error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::control::config::{Config, Purpose};

mod check;
mod ctl;
mod demo;
mod picture;
mod progress;
mod replay;
mod ring;
pub mod run;
mod sim;
mod table;
mod train;

/// Status of a command that ran and found that something is wrong.
pub const FAILED: u8 = 1;
/// Status of a command that could not run.
pub const COULD_NOT_RUN: u8 = 2;

#[derive(Parser)]
#[command(name = "symphony", version, about, max_term_width = 100)]
#[command(after_help = "Exit status: 0 done, 1 ran and a check failed, 2 could not run.\n\
                        SYMPHONY_LOG=debug shows more on stderr (error, warn, info, debug, trace; or per module).")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at a configuration and at this machine; say what is wrong and how to cure it
    Check(check::Args),
    /// Look into a running switch and change it, live
    Ctl(ctl::Args),
    /// Run a ring collective, one rank or all, over RoCEv2 between addresses or network namespaces
    Ring(ring::Args),
    /// Run a capture through the switch in virtual time; say what is in it and what the switch does to it
    Replay(replay::Args),
    /// Show, between namespaces and with real packets, what Symphony does to training jobs
    Demo(demo::Args),
    /// Simulate what Symphony does to a cluster: scenarios, arms, seeds, intervals
    Sim(Box<sim::Args>),
    /// Train a network with others, aggregating in the switch: one worker, or all of them
    Train(train::Args),
    /// Run the switch on interfaces until SIGTERM or SIGINT
    Run(run::Args),
}

/// The whole command: parses the arguments, runs, reports.
pub fn main() -> ExitCode {
    // Looked for by hand, so that wrong arguments too are answered in the form asked for.
    let json = std::env::args_os().any(|arg| arg == "--json");

    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) => {
            if json && wrong.use_stderr() {
                print_error(&first_paragraph(&wrong.to_string()));
            }
            let _ = wrong.print(); // a closed stderr leaves nobody to tell
            return ExitCode::from(if wrong.use_stderr() { COULD_NOT_RUN } else { 0 });
        }
    };
    // What a switch that runs for days does is worth a line; the ports of a demo's are not.
    let quiet = if matches!(cli.command, Command::Run(_)) { "info" } else { "warn" };
    let log = EnvFilter::try_from_env("SYMPHONY_LOG").unwrap_or_else(|_| EnvFilter::new(quiet));
    let ansi = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(log).with_writer(io::stderr).with_ansi(ansi).init();
    let done = match cli.command {
        Command::Check(args) => check::run(args),
        Command::Ctl(args) => ctl::run(args),
        Command::Ring(args) => ring::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Sim(args) => sim::run(*args),
        Command::Train(args) => train::run(args),
        Command::Run(args) => run::run(args),
    };
    done.unwrap_or_else(|error| {
        let text = reason(&error);
        if json {
            print_error(&text);
        }
        let _ = writeln!(io::stderr(), "symphony: {text}");
        ExitCode::from(COULD_NOT_RUN)
    })
}

/// Prints a result and a newline on stdout. A closed pipe is success: the reader has seen enough.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn print(result: impl Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{result}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// Prints a result as one JSON object on one line.
///
/// # Errors
/// As [`print`].
pub fn print_json(result: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string(result)?)
}

/// Reads the configuration that `--config` names.
///
/// # Errors
/// What is wrong with it, with file, line, key, value and cure.
pub fn load_config(path: &Path, purpose: Purpose) -> anyhow::Result<Config> {
    Ok(Config::load(path, purpose)?)
}

/// What clap says before the usage, in one line.
fn first_paragraph(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// An error and its causes, without those that the text before names already.
fn reason(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

fn print_error(error: &str) {
    let _ = print_json(&serde_json::json!({ "version": 1, "error": error })); // the text on stderr and the status remain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn wrong_arguments_are_told_in_one_line_with_what_is_missing() {
        let missing = Cli::try_parse_from(["symphony", "run"]).err().map(|wrong| first_paragraph(&wrong.to_string()));
        assert_eq!(missing.as_deref(), Some("the following required arguments were not provided: --config <FILE>"));
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let plain = anyhow::Error::from(denied()).context("cannot read it");
        assert_eq!(reason(&plain), "cannot read it: permission denied");
        let named = anyhow::Error::from(denied()).context("cannot read it: permission denied. Are you root?");
        assert_eq!(reason(&named), "cannot read it: permission denied. Are you root?");
    }
}
