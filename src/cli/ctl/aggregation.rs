//! `symphony ctl status|trace|swap` and `ctl job load|unload`: aggregation jobs of a running switch.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::Outcome;
use crate::cli::table::Table;
use crate::control::protocol::{AskError, Command, ask};
use crate::control::serene::{JobFile, parse_strategy};
use crate::functions::serene::Strategy;

/// How often a waiting command looks.
const LOOK: Duration = Duration::from_millis(20);
/// How often `trace --follow` looks.
const FOLLOW: Duration = Duration::from_millis(200);

const JOBS: [(&str, &str); 13] = [
    ("job", "/job"),
    ("strategy", "/strategy"),
    ("version", "/version"),
    ("from round", "/since_round"),
    ("round", "/max_round"),
    ("released", "/released"),
    ("wait p50 ms", "/wait_p50_ms"),
    ("wait p95 ms", "/wait_p95_ms"),
    ("lag", "/latest/lag_max"),
    ("late", "/counters/late"),
    ("retx", "/counters/retransmissions"),
    ("not served", "/counters/notices"),
    ("swap", "/swap_text"),
];

const MEMBERS: [(&str, &str); 6] = [
    ("job", "/job"),
    ("worker", "/worker"),
    ("address", "/address"),
    ("state", "/state"),
    ("round", "/round"),
    ("last seen ms ago", "/silent_ms"),
];

const SWAPS: [(&str, &str); 11] = [
    ("job", "/job"),
    ("swap", "/id"),
    ("at s", "/at_s"),
    ("from", "/from"),
    ("to", "/to"),
    ("workers", "/members"),
    ("round", "/boundary"),
    ("refused", "/naks"),
    ("drain ms", "/drain_ms"),
    ("cause", "/cause"),
    ("outcome", "/outcome"),
];

/// Arguments of `ctl swap`.
#[derive(clap::Args)]
pub struct SwapArgs {
    /// Such as bsp, 'partial(k = n-1, late = return)', 'ssp(3)', asp, 'timed(30ms, kmin = n-1)'; see `symphony check --help`
    #[arg(value_name = "STRATEGY", value_parser = strategy)]
    strategy: Strategy,
    /// Number of the aggregation job; the only one unless given
    #[arg(long, value_name = "ID")]
    job: Option<u8>,
    /// Do not wait until the strategy is in force
    #[arg(long)]
    no_wait: bool,
    /// Wait at most so many seconds; after that the status is 1, and the swap goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 30, conflicts_with = "no_wait")]
    timeout: u64,
}

/// Arguments of `ctl trace`.
#[derive(clap::Args)]
pub struct TraceArgs {
    /// Number of the aggregation job; all unless given
    #[arg(long, value_name = "ID")]
    job: Option<u8>,
    /// Go on, and print each swap when it is over; with --json one object a line
    #[arg(long)]
    follow: bool,
}

fn strategy(text: &str) -> Result<Strategy, String> {
    parse_strategy(text).map_err(|wrong| wrong.to_string())
}

/// Takes a job in that a file describes.
pub fn load(socket: &Path, path: &Path) -> anyhow::Result<Outcome> {
    let JobFile { job, file, warnings } = JobFile::load(path)?;
    for warning in &warnings {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    ask(socket, Command::LoadAggregation { file })?;
    let text = format!("aggregation job {} loaded: {} workers, starts as {}", job.id, job.members.len(), job.start);
    Ok(Outcome::ok(json!({ "version": 1, "job": job.id, "done": "loaded", "warnings": warnings }), text))
}

/// Forgets a job.
pub fn unload(socket: &Path, id: u8) -> anyhow::Result<Outcome> {
    ask(socket, Command::UnloadAggregation { job: id })?;
    Ok(Outcome::ok(json!({ "version": 1, "job": id, "done": "unloaded" }), format!("aggregation job {id} unloaded")))
}

/// How jobs and their workers do.
pub fn status(socket: &Path) -> anyhow::Result<Outcome> {
    let jobs = jobs(socket)?;
    let (mut rows, mut members) = (Vec::new(), Vec::new());
    for job in &jobs {
        let mut row = job.clone();
        for percentile in ["p50", "p95"] {
            row[format!("wait_{percentile}_ms")] = ms(&job["latest"][format!("wait_{percentile}_ns")]);
        }
        row["swap_text"] = match &job["swap"] {
            Value::Null => Value::Null,
            swap => format!("{} to {} at round {}", swap["id"], text(&swap["to"]), swap["boundary"]).into(),
        };
        rows.push(row);
        for member in job["members"].as_array().into_iter().flatten() {
            let mut row = member.clone();
            row["job"] = job["job"].clone();
            row["silent_ms"] = ms(&member["silent_ns"]);
            members.push(row);
        }
    }
    let mut shown = Table::of_objects(&rows.into(), &JOBS).to_string();
    if !members.is_empty() {
        shown += &format!("\n\n{}", Table::of_objects(&members.into(), &MEMBERS));
    }
    let jobs: Vec<Value> = jobs.into_iter().map(without_swaps).collect();
    Ok(Outcome::ok(json!({ "version": 1, "jobs": jobs }), shown))
}

/// The latest swaps; with `--follow` prints by itself until the switch ends.
pub fn trace(socket: &Path, args: &TraceArgs, as_json: bool) -> anyhow::Result<Option<Outcome>> {
    if args.follow {
        return follow(socket, args.job, as_json).map(|()| None);
    }
    let swaps = swaps(&jobs(socket)?, args.job)?;
    let shown = Table::of_objects(&swaps.iter().map(row).collect(), &SWAPS).to_string();
    Ok(Some(Outcome::ok(json!({ "version": 1, "swaps": swaps }), shown)))
}

fn follow(socket: &Path, job: Option<u8>, as_json: bool) -> anyhow::Result<()> {
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new(); // the last swap by job
    let mut first = true;
    loop {
        let jobs = match jobs(socket) {
            Ok(jobs) => jobs,
            // A switch that was there and is no more has ended.
            Err(error) if !first && error.is::<AskError>() => return Ok(()),
            Err(error) => return Err(error),
        };
        for swap in swaps(&jobs, job)?.iter().filter(|swap| swap["outcome"] != "pending") {
            let number = |key: &str| swap[key].as_u64().unwrap_or_default();
            let last = seen.entry(number("job")).or_default();
            if number("id") <= *last {
                continue;
            }
            *last = number("id");
            match as_json {
                true => crate::cli::print_json(&json!({ "version": 1, "swap": swap }))?,
                false => crate::cli::print(line(swap))?,
            }
        }
        first = false;
        thread::sleep(FOLLOW);
    }
}

/// Goes over to another strategy and waits until it is in force.
pub fn swap(socket: &Path, args: &SwapArgs) -> anyhow::Result<Outcome> {
    let before = one(&jobs(socket)?, args.job)?;
    let (target, job) = (args.strategy.to_string(), before["job"].as_u64().unwrap_or_default());
    let answer = |outcome: &str, swap: &Value| json!({ "version": 1, "job": job, "strategy": target, "outcome": outcome, "swap": swap });
    if before["strategy"] == target.as_str() && before["wanted"] == target.as_str() {
        return Ok(Outcome::ok(answer("stable", &Value::Null), format!("job {job}: {target} is in force already")));
    }
    let number = u8::try_from(job).context("the switch sent a job without a number")?;
    ask(socket, Command::Swap { job: number, strategy: target.clone() })?;
    if args.no_wait {
        return Ok(Outcome::ok(answer("asked", &Value::Null), format!("job {job}: {target} asked for")));
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let mut told = String::new();
    loop {
        let state = one(&jobs(socket)?, Some(number))?;
        if state["wanted"] != target.as_str() {
            let by = state["swaps"].as_array().and_then(|swaps| swaps.last()).cloned().unwrap_or_default();
            let text = format!("job {job}: {} is wanted by now ({})", text(&state["wanted"]), text(&by["cause"]));
            return Ok(Outcome::failed(answer("superseded", &by), text));
        }
        if state["strategy"] == target.as_str() && state["swap"].is_null() {
            let swaps = state["swaps"].as_array();
            let swap = swaps.and_then(|swaps| swaps.iter().rev().find(|swap| swap["to"] == target.as_str()));
            let swap = swap.cloned().unwrap_or_default();
            return Ok(Outcome::ok(answer("stable", &swap), line(&with_job(&swap, job))));
        }
        let progress = progress(&state, &target);
        if let Some(why) = nobody(&state, args.timeout) {
            let text = format!("job {job}: {target} is asked for, and in force when workers go on: {why}");
            return Ok(Outcome::failed(answer("pending", &state["swap"]), text));
        }
        if Instant::now() >= deadline {
            let text = format!("job {job}: {target} is not in force after {} s: {progress}", args.timeout);
            return Ok(Outcome::failed(answer("pending", &state["swap"]), text));
        }
        if progress != told {
            let _ = writeln!(io::stderr(), "job {job}: {progress}");
            told = progress;
        }
        thread::sleep(LOOK);
    }
}

/// Why nobody will bring a swap about: no worker takes part, or all have been silent for longer than one would wait.
fn nobody(state: &Value, seconds: u64) -> Option<String> {
    let members = state["members"].as_array().into_iter().flatten();
    let silent_ns =
        members.filter(|member| member["state"] == "joined").filter_map(|member| member["silent_ns"].as_u64());
    match silent_ns.min() {
        None => Some("no worker takes part".into()),
        Some(ns) if ns / 1_000_000_000 >= seconds => {
            Some(format!("no worker has been heard of for {} s", ns / 1_000_000_000))
        }
        Some(_) => None,
    }
}

/// What is being waited for.
fn progress(state: &Value, target: &str) -> String {
    let swap = &state["swap"];
    if swap.is_null() {
        return format!("{target} is next");
    }
    let id = &swap["id"];
    if swap["to"] != target {
        return format!("swap {id} to {} is under way; {target} comes after it", text(&swap["to"]));
    }
    let refused = match swap["naks"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => ", after 1 boundary that came too late".into(),
        Some(naks) => format!(", after {naks} boundaries that came too late"),
    };
    if swap["armed_at_ns"].is_null() {
        return format!("swap {id}: the switch has not taken the boundary yet{refused}");
    }
    let missing: Vec<_> = state["waiting_for"].as_array().into_iter().flatten().map(Value::to_string).collect();
    let missing = match missing.as_slice() {
        [] => "completing".into(),
        [one] => format!("worker {one} has not pushed for it yet"),
        several => format!("workers {} have not pushed for it yet", several.join(", ")),
    };
    format!("swap {id}: armed for round {}{refused}; {missing}", swap["boundary"])
}

fn jobs(socket: &Path) -> anyhow::Result<Vec<Value>> {
    let mut answer = ask(socket, Command::Aggregation)?;
    match answer.remove("aggregation") {
        Some(Value::Array(jobs)) => Ok(jobs),
        _ => bail!("the switch sent no aggregation jobs"),
    }
}

/// The job of a number, or the only one.
fn one(jobs: &[Value], number: Option<u8>) -> anyhow::Result<Value> {
    let numbers: Vec<_> = jobs.iter().map(|job| job["job"].to_string()).collect();
    let found = match number {
        Some(number) => jobs.iter().find(|job| job["job"] == number),
        None if jobs.len() > 1 => bail!("there are aggregation jobs {}; choose one with --job", numbers.join(", ")),
        None => jobs.first(),
    };
    match (found, number) {
        (Some(job), _) => Ok(job.clone()),
        (None, Some(number)) if !jobs.is_empty() => {
            bail!("there is no aggregation job {number}; there are: {}", numbers.join(", "))
        }
        (None, _) => bail!("the switch has no aggregation job; `symphony ctl job load JOB.toml` takes one in"),
    }
}

/// All swaps, each with its job's number, the oldest first.
fn swaps(jobs: &[Value], number: Option<u8>) -> anyhow::Result<Vec<Value>> {
    let of_one = number.map(|number| one(jobs, Some(number))).transpose()?;
    let jobs = of_one.as_ref().map_or(jobs, std::slice::from_ref);
    let of = |job: &Value| {
        let number = job["job"].as_u64().unwrap_or_default();
        job["swaps"].as_array().into_iter().flatten().map(|swap| with_job(swap, number)).collect::<Vec<_>>()
    };
    let mut swaps: Vec<Value> = jobs.iter().flat_map(of).collect();
    swaps.sort_by_key(|swap| swap["asked_at_ns"].as_u64());
    Ok(swaps)
}

fn with_job(swap: &Value, job: u64) -> Value {
    let mut swap = swap.clone();
    swap["job"] = job.into();
    swap
}

fn without_swaps(mut job: Value) -> Value {
    if let Some(job) = job.as_object_mut() {
        job.remove("swaps");
    }
    job
}

/// A swap as a row of `trace`.
fn row(swap: &Value) -> Value {
    let mut row = swap.clone();
    row["at_s"] = json!(swap["asked_at_ns"].as_u64().unwrap_or_default() as f64 / 1e9);
    row["drain_ms"] = between_ms(swap, "armed_at_ns", "stable_at_ns");
    row
}

/// A swap that is over, in one line.
fn line(swap: &Value) -> String {
    let at_s = swap["asked_at_ns"].as_u64().unwrap_or_default() as f64 / 1e9;
    let number = |value: Value| value.as_f64().unwrap_or_default();
    let refused =
        swap["naks"].as_u64().filter(|naks| *naks > 0).map_or(String::new(), |naks| format!(", {naks} refused"));
    let what = format!(
        "{at_s:.3} s  job {}  swap {}  {} -> {}",
        swap["job"],
        swap["id"],
        text(&swap["from"]),
        text(&swap["to"])
    );
    let cause = text(&swap["cause"]);
    match swap["outcome"].as_str() {
        Some("stable") => format!(
            "{what} from round {} on: armed after {:.1} ms{refused}, drained in {:.1} ms ({cause})",
            swap["boundary"],
            number(between_ms(swap, "asked_at_ns", "armed_at_ns")),
            number(between_ms(swap, "armed_at_ns", "stable_at_ns")),
        ),
        outcome => format!("{what} {}{refused} ({cause})", outcome.unwrap_or_default()),
    }
}

fn between_ms(swap: &Value, from: &str, to: &str) -> Value {
    let times = swap[from].as_u64().zip(swap[to].as_u64());
    times.map_or(Value::Null, |(from, to)| json!(to.saturating_sub(from) as f64 / 1e6))
}

fn ms(ns: &Value) -> Value {
    ns.as_u64().map_or(Value::Null, |ns| json!(ns as f64 / 1e6))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Path of a job file.
#[derive(clap::Args)]
pub struct LoadArgs {
    /// Job file; `symphony check JOB.toml` says what it compiles to, `symphony check --help` how it is written
    #[arg(value_name = "JOB.toml")]
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap() -> Value {
        json!({
            "id": 7, "from": "bsp", "to": "ssp(3)", "members": 4, "version": 8, "boundary": 42, "naks": 1,
            "asked_at_ns": 12_345_000_000u64, "armed_at_ns": 12_345_300_000u64, "switching_at_ns": 12_350_000_000u64,
            "stable_at_ns": 12_463_300_000u64, "cause": "policy 1", "outcome": "stable",
        })
    }

    #[test]
    fn a_swap_that_is_over_is_one_line_with_boundary_refusals_and_drain_time() {
        assert_eq!(
            line(&with_job(&swap(), 1)),
            "12.345 s  job 1  swap 7  bsp -> ssp(3) from round 42 on: armed after 0.3 ms, 1 refused, drained in 118.0 ms \
             (policy 1)"
        );
        let superseded = json!({ "id": 8, "job": 1, "from": "bsp", "to": "asp", "naks": 0, "asked_at_ns": 0, "cause": "worker 1 left", "outcome": "superseded: worker 2 left" });
        assert_eq!(line(&superseded), "0.000 s  job 1  swap 8  bsp -> asp superseded: worker 2 left (worker 1 left)");
        assert_eq!(row(&swap())["drain_ms"], 118.0);
    }

    #[test]
    fn who_keeps_a_swap_waiting_is_named() {
        let mut state = json!({ "swap": swap(), "waiting_for": [2, 3] });
        assert_eq!(
            progress(&state, "ssp(3)"),
            "swap 7: armed for round 42, after 1 boundary that came too late; workers 2, 3 have not pushed for it yet"
        );
        state["swap"]["armed_at_ns"] = Value::Null;
        state["swap"]["naks"] = json!(0);
        assert_eq!(progress(&state, "ssp(3)"), "swap 7: the switch has not taken the boundary yet");
        assert_eq!(progress(&state, "asp"), "swap 7 to ssp(3) is under way; asp comes after it");
        assert_eq!(progress(&json!({ "swap": null }), "asp"), "asp is next");
    }

    #[test]
    fn a_swap_that_nobody_will_bring_about_is_not_waited_for() {
        let member = |state: &str, seconds: u64| json!({ "state": state, "silent_ns": seconds * 1_000_000_000 });
        let nobody = |members: &[Value]| nobody(&json!({ "members": members }), 30);
        let none = "no worker takes part";
        assert_eq!(
            nobody(&[json!({ "state": "awaited", "silent_ns": null }), member("left", 1)]).as_deref(),
            Some(none)
        );
        assert_eq!(nobody(&[member("joined", 1), member("joined", 99)]), None);
        let silent = nobody(&[member("joined", 31), member("dropped", 1)]);
        assert_eq!(silent.as_deref(), Some("no worker has been heard of for 31 s"));
    }

    #[test]
    fn the_only_job_needs_no_number_and_others_are_listed() {
        let jobs = [json!({ "job": 1 }), json!({ "job": 4 })];
        assert_eq!(one(&jobs[..1], None).unwrap()["job"], 1);
        assert_eq!(one(&jobs, Some(4)).unwrap()["job"], 4);
        assert_eq!(one(&jobs, None).unwrap_err().to_string(), "there are aggregation jobs 1, 4; choose one with --job");
        assert_eq!(one(&jobs, Some(2)).unwrap_err().to_string(), "there is no aggregation job 2; there are: 1, 4");
        assert!(one(&[], None).unwrap_err().to_string().contains("job load JOB.toml"));
    }
}
