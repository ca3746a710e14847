//! `symphony ctl`: looks into a running switch and changes it, over its control socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::{Map, Value, json};

mod aggregation;

use super::table::Table;
use crate::control::config::{JobTable, jobs_from_toml};
use crate::control::protocol::{Command, ask, sockets};

/// Where switches put their sockets unless told otherwise.
const SOCKETS: &str = "/run/symphony";

const JOBS: [(&str, &str); 11] = [
    ("job", "/job"),
    ("name", "/name"),
    ("enabled", "/enabled"),
    ("armed", "/armed"),
    ("min step", "/min_step"),
    ("max step", "/max_step"),
    ("minimum/256", "/minimum"),
    ("packets", "/packets"),
    ("lead tests", "/lead_tests"),
    ("red", "/marks/red"),
    ("symphony", "/marks/symphony"),
];

const FLOWS: [(&str, &str); 11] = [
    ("job", "/job"),
    ("src", "/src"),
    ("dst", "/dst"),
    ("qpn", "/qpn"),
    ("packets", "/packets"),
    ("retransmitted", "/retransmitted"),
    ("messages", "/messages"),
    ("resyncs", "/resyncs"),
    ("step", "/step"),
    ("progress/256", "/progress"),
    ("takes part", "/takes_part"),
];

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Control socket; the only one in /run/symphony unless given
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Jobs that Symphony follows: steps, lead tests, marks
    Jobs,
    /// Flows of these jobs: packets, retransmissions, messages, steps
    Flows,
    /// Aggregation jobs: strategy, rounds, workers, waits
    Status,
    /// Swaps of aggregation jobs: boundary, refusals, drain time, cause
    Trace(aggregation::TraceArgs),
    /// Have an aggregation job go over to another strategy, while it runs
    ///
    /// The swap happens between two rounds, the same two for all workers: the switch takes a boundary that nobody has reached
    /// yet (one that came too late is refused, and a later one is asked for), and it is over when everybody is past it. While
    /// another swap is under way, the wish waits; the latest wish counts.
    Swap(aggregation::SwapArgs),
    /// Every counter, in the form of `ethtool -S`
    Stats,
    /// Change keys of [symphony], live; without any, show those in force
    Set {
        /// Such as threshold=0.25 queue=0 gap=50us epoch=20ms policy=gold enabled=false
        #[arg(value_name = "KEY=VALUE", value_parser = assignment)]
        keys: Vec<(String, Value)>,
    },
    /// Add, remove, switch jobs that Symphony follows; load, unload aggregation jobs
    #[command(subcommand)]
    Job(JobCommand),
}

#[derive(Subcommand)]
enum JobCommand {
    /// Load an aggregation job from its job file
    Load(aggregation::LoadArgs),
    /// Forget an aggregation job and its sums
    Unload {
        /// Number of the aggregation job
        id: u8,
    },
    /// Add the jobs of a file, or one by its keys, for Symphony to follow
    Add(AddArgs),
    /// Remove a job and its state
    Remove {
        /// Number of the job
        id: u32,
    },
    /// Switch a job on
    Enable {
        /// Number of the job
        id: u32,
    },
    /// Switch a job off
    Disable {
        /// Number of the job
        id: u32,
    },
}

/// The keys of `[[job]]` as flags.
#[derive(clap::Args)]
struct AddArgs {
    /// TOML with one or more [[job]] tables
    #[arg(value_name = "FILE", conflicts_with_all = ["id", "ring"], required_unless_present = "ring")]
    file: Option<PathBuf>,
    /// Number of the job
    #[arg(long, requires = "ring")]
    id: Option<u32>,
    /// Addresses of the ranks in ring order
    #[arg(long, value_name = "ADDRESS,..", value_delimiter = ',', requires = "id")]
    ring: Vec<String>,
    /// Name, for people
    #[arg(long)]
    name: Option<String>,
    /// message, psn, imm or udp_sport
    #[arg(long)]
    step_source: Option<String>,
    /// With-immediate messages a step
    #[arg(long)]
    requests_per_step: Option<u16>,
    /// Bytes that a rank sends in one step, such as 64KiB
    #[arg(long, value_name = "BYTES")]
    step_size: Option<String>,
    /// RoCE path MTU
    #[arg(long, value_name = "BYTES")]
    path_mtu: Option<u32>,
    /// Data packets a step, instead of a step size
    #[arg(long)]
    packets_per_step: Option<u32>,
    /// Ring steps of one collective; 2(n-1) unless given
    #[arg(long)]
    steps_per_collective: Option<u32>,
    /// Idle time after which the counters restart, such as "10 steps" or 500ms
    #[arg(long)]
    idle: Option<String>,
    /// Add it switched off
    #[arg(long)]
    disabled: bool,
}

/// What a command has to say, and whether it did what was asked.
struct Outcome {
    json: Value,
    text: String,
    status: ExitCode,
}

impl Outcome {
    fn ok(json: Value, text: impl Into<String>) -> Self {
        Outcome { json, text: text.into(), status: ExitCode::SUCCESS }
    }

    fn failed(json: Value, text: impl Into<String>) -> Self {
        Outcome { status: ExitCode::from(super::FAILED), ..Outcome::ok(json, text) }
    }
}

/// Talks to the switch and prints what it says.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = args.socket.map_or_else(only_socket, Ok)?;
    let snapshot = || -> anyhow::Result<Value> {
        ask(&socket, Command::Snapshot)?.remove("snapshot").context("the switch sent no snapshot")
    };
    let outcome = match args.what {
        What::Jobs => {
            let jobs = snapshot()?["jobs"].take();
            let text = Table::of_objects(&jobs, &JOBS).to_string();
            Outcome::ok(json!({ "version": 1, "jobs": jobs }), text)
        }
        What::Flows => {
            let flows = snapshot()?["flows"].take();
            let text = Table::of_objects(&flows, &FLOWS).to_string();
            Outcome::ok(json!({ "version": 1, "flows": flows }), text)
        }
        What::Status => aggregation::status(&socket)?,
        What::Trace(trace) => match aggregation::trace(&socket, &trace, args.json)? {
            Some(outcome) => outcome,
            None => return Ok(ExitCode::SUCCESS),
        },
        What::Swap(swap) => aggregation::swap(&socket, &swap)?,
        What::Stats => {
            let mut snapshot = snapshot()?;
            if let Some(snapshot) = snapshot.as_object_mut() {
                snapshot.remove("flows"); // state, not counters, and many
                for job in snapshot.get_mut("aggregation").and_then(Value::as_array_mut).into_iter().flatten() {
                    job.as_object_mut().and_then(|job| job.remove("swaps"));
                }
            }
            let text = format!("{} statistics:\n{}", text_of(&snapshot["name"]), statistics(&snapshot).join("\n"));
            Outcome::ok(snapshot, text)
        }
        What::Set { keys } => {
            let mut answer = ask(&socket, Command::Set { parameters: keys.into_iter().collect() })?;
            let parameters = answer.remove("symphony").context("the switch sent no parameters")?;
            let text = toml::to_string(&parameters)?.trim_end().to_owned();
            Outcome::ok(json!({ "version": 1, "symphony": parameters }), text)
        }
        What::Job(command) => change_jobs(&socket, command)?,
    };
    if args.json {
        super::print_json(&outcome.json)?
    } else {
        super::print(outcome.text)?
    }
    Ok(outcome.status)
}

fn change_jobs(socket: &Path, command: JobCommand) -> anyhow::Result<Outcome> {
    let one = |id, command| ask(socket, command).map(|_| vec![id]);
    let (done, ids) = match command {
        JobCommand::Load(load) => return aggregation::load(socket, &load.file),
        JobCommand::Unload { id } => return aggregation::unload(socket, id),
        JobCommand::Remove { id } => ("removed", one(id, Command::RemoveJob { id })?),
        JobCommand::Enable { id } => ("enabled", one(id, Command::EnableJob { id, enabled: true })?),
        JobCommand::Disable { id } => ("disabled", one(id, Command::EnableJob { id, enabled: false })?),
        JobCommand::Add(args) => {
            let jobs = args.jobs()?;
            let ids = jobs.iter().map(|job| job.id.unwrap_or_default()).collect();
            for job in jobs {
                let id = job.id.unwrap_or_default();
                ask(socket, Command::AddJob { job }).with_context(|| format!("job {id}"))?;
            }
            ("added", ids)
        }
    };
    let text = ids.iter().map(|id| format!("job {id} {done}")).collect::<Vec<_>>().join("\n");
    Ok(Outcome::ok(json!({ "version": 1, "jobs": ids, "done": done }), text))
}

impl AddArgs {
    fn jobs(self) -> anyhow::Result<Vec<JobTable>> {
        if let Some(file) = &self.file {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            return Ok(jobs_from_toml(&text, &file.display().to_string())?);
        }
        // By the same reader as the file's tables, so that keys, defaults and complaints are the same.
        let mut keys = Map::new();
        for (key, value) in [
            ("id", json!(self.id)),
            ("ring", json!(self.ring)),
            ("name", json!(self.name)),
            ("step_source", json!(self.step_source)),
            ("requests_per_step", json!(self.requests_per_step)),
            ("step_size", json!(self.step_size)),
            ("path_mtu", json!(self.path_mtu)),
            ("packets_per_step", json!(self.packets_per_step)),
            ("steps_per_collective", json!(self.steps_per_collective)),
            ("idle", json!(self.idle)),
            ("enabled", json!(!self.disabled)),
        ] {
            if !value.is_null() {
                keys.insert(key.into(), value);
            }
        }
        Ok(vec![serde_json::from_value(Value::Object(keys))?])
    }
}

/// `KEY=VALUE`; what reads as a number or a truth value is one, anything else is text.
fn assignment(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as threshold=0.25")?;
    let value = serde_json::from_str(value).ok().filter(|value: &Value| value.is_number() || value.is_boolean());
    let text = || Value::String(text[key.len() + 1..].to_owned());
    Ok((key.to_owned(), value.unwrap_or_else(text)))
}

/// The socket of the only switch there is.
fn only_socket() -> anyhow::Result<PathBuf> {
    let sockets = sockets(Path::new(SOCKETS)).with_context(|| {
        format!("cannot look for switches in {SOCKETS}; run it as their user, or give a path with --socket")
    })?;
    match sockets.as_slice() {
        [socket] => Ok(socket.clone()),
        [] => bail!("no switch has its control socket in {SOCKETS}; give its path with --socket"),
        several => {
            let names: Vec<_> = several.iter().map(|path| path.display().to_string()).collect();
            bail!("there are several switches; choose one with --socket: {}", names.join(", "))
        }
    }
}

/// Every number of a snapshot under the path that leads to it, as `ethtool -S` shows counters.
fn statistics(snapshot: &Value) -> Vec<String> {
    fn walk(path: &str, value: &Value, lines: &mut Vec<String>) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}_{name}") };
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| walk(&below(name), value, lines)),
            Value::Array(elements) => {
                for element in elements.iter().filter(|element| element.is_object()) {
                    // Ports by name, jobs and their workers by number.
                    let name = element.get("interface").and(element.get("name"));
                    let name = name.or(element.get("job")).or(element.get("worker"));
                    let singular = path.trim_end_matches('s');
                    walk(&format!("{singular}_{}", name.map(text_of).unwrap_or_default()), element, lines);
                }
            }
            Value::Number(number) => lines.push(format!("     {path}: {number}")),
            Value::Bool(flag) => lines.push(format!("     {path}: {}", u8::from(*flag))),
            Value::String(_) | Value::Null => {}
        }
    }
    let mut lines = Vec::new();
    walk("", snapshot, &mut lines);
    lines
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbers_truth_or_text() {
        assert_eq!(assignment("threshold=0.25"), Ok(("threshold".into(), json!(0.25))));
        assert_eq!(assignment("enabled=false"), Ok(("enabled".into(), json!(false))));
        assert_eq!(assignment("gap=50us"), Ok(("gap".into(), json!("50us"))));
        assert_eq!(assignment("policy="), Ok(("policy".into(), json!(""))));
        assert!(assignment("threshold").is_err());
    }

    #[test]
    fn statistics_look_like_those_of_ethtool() {
        let snapshot = json!({
            "name": "s", "drops": { "tail_drop": 3 },
            "ports": [{ "name": "p1", "interface": "sw-h1", "up": true, "rx_packets": 7 }],
            "jobs": [{ "job": 4, "name": "a", "marks": { "red": 1 } }],
        });
        let expected =
            ["drops_tail_drop: 3", "job_4_job: 4", "job_4_marks_red: 1", "port_p1_rx_packets: 7", "port_p1_up: 1"];
        assert_eq!(statistics(&snapshot), expected.map(|line| format!("     {line}")));
    }
}
