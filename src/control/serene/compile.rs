//! From the file's tables to the job that the core is told, with every check of one value.

use std::net::SocketAddrV4;

use super::action::{STRATEGIES, parse_action, parse_strategy};
use super::ast::{Action, Job, Kind, Policy, Quorum, Strategy};
use super::condition::parse_condition;
use super::cursor::SyntaxError;
use super::file::{File, JobTable, PolicyTable};
use crate::control::config::{Key, Wrong, with_guess};
use crate::control::units::Duration;
use crate::dataplane::Nanos;
use crate::wire::aggregation::{LANE_GROUP, MAX_LANES, MAX_WORKERS};

const MAX_POLICIES: usize = 64;
/// 16.7 million values of 256 lanes: the switch keeps two words of each.
const MAX_SEGMENTS: u32 = 1 << 16;
/// The longest time between two packets of a worker that waits: its retransmission timer at its slowest.
pub(super) const MAX_RTO_NS: Nanos = 200_000_000;

/// The job of a file, as far as one value at a time can be checked.
pub(super) fn job(file: &File) -> Result<Job, Wrong> {
    let key = Key::new("job");
    let table = &file.job;
    let id = u8::try_from(table.id).map_err(|_| key.name("id").wrong(format!("{}; use 0 to 255", table.id)))?;
    let members = members(&table.members, &key.name("members"))?;
    let workers = members.len() as u8; // at most MAX_WORKERS
    if !(1..=MAX_SEGMENTS).contains(&table.segments) {
        let wrong =
            format!("{} segments; use 1 to {MAX_SEGMENTS}: the vector's length / lanes, rounded up", table.segments);
        return Err(key.name("segments").wrong(wrong));
    }
    if !(1..=30).contains(&table.scale_log2) {
        let wrong = format!("a scale of 2^{}; use 1 to 30, such as 24", table.scale_log2);
        return Err(key.name("scale_log2").wrong(wrong));
    }
    if table.silent.0 < MAX_RTO_NS {
        return Err(key.name("silent").wrong(too_short(table.silent)));
    }
    let at_start = key.name("start");
    let start = parse_strategy(&table.start).map_err(|error| at_start.at(error))?;
    fits(&start, workers).map_err(|wrong| at_start.wrong(wrong))?;
    let policies = policies(&file.policies, workers)?;
    Ok(Job {
        id,
        members,
        segments: table.segments,
        lanes: lanes(table, &key.name("lanes"))?,
        scale_log2: table.scale_log2,
        start,
        silent_ns: table.silent.0,
        policies,
    })
}

fn lanes(table: &JobTable, key: &Key) -> Result<u16, Wrong> {
    let lanes = usize::try_from(table.lanes).unwrap_or(usize::MAX);
    if lanes == 0 || lanes > MAX_LANES || !lanes.is_multiple_of(LANE_GROUP) {
        let near = (lanes / LANE_GROUP * LANE_GROUP).clamp(LANE_GROUP, MAX_LANES);
        let wrong = format!("{} lanes; use a multiple of {LANE_GROUP} up to {MAX_LANES}, such as {near}", table.lanes);
        return Err(key.wrong(wrong));
    }
    Ok(lanes as u16) // at most MAX_LANES
}

fn members(texts: &[String], key: &Key) -> Result<Vec<SocketAddrV4>, Wrong> {
    if texts.is_empty() || texts.len() > usize::from(MAX_WORKERS) {
        return Err(key.wrong(format!("{} members; a job has 1 to {MAX_WORKERS}", texts.len())));
    }
    let mut members: Vec<SocketAddrV4> = Vec::with_capacity(texts.len());
    for (worker, text) in texts.iter().enumerate() {
        let key = key.index(worker);
        let member: SocketAddrV4 = text
            .parse()
            .map_err(|_| key.wrong(format!("{text:?} is no IPv4 address and UDP port; write 10.0.0.1:7001")))?;
        let address = member.ip();
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() || member.port() == 0 {
            return Err(key.wrong(format!("{member} is no worker's socket; write 10.0.0.1:7001")));
        }
        if let Some(other) = members.iter().position(|other| *other == member) {
            return Err(
                key.wrong(format!("{member} is worker {other} already; give each worker its own address or port"))
            );
        }
        members.push(member);
    }
    Ok(members)
}

fn policies(tables: &[PolicyTable], workers: u8) -> Result<Vec<Policy>, Wrong> {
    let key = Key::new("policy");
    if tables.len() > MAX_POLICIES {
        return Err(key
            .index(MAX_POLICIES)
            .wrong(format!("{} policies; a job has at most {MAX_POLICIES}", tables.len())));
    }
    tables.iter().enumerate().map(|(index, table)| policy(table, workers, &key.index(index))).collect()
}

fn policy(table: &PolicyTable, workers: u8, key: &Key) -> Result<Policy, Wrong> {
    let within = table.within.as_deref().map(|name| kind(name, &key.name("in"))).transpose()?;
    let when = parse_condition(&table.when).map_err(|error| key.name("when").at(error))?;
    let then = parse_action(&table.then).map_err(|error| key.name("then").at(error))?;
    if let Action::Swap(strategy) = &then {
        fits(strategy, workers).map_err(|wrong| key.name("then").wrong(wrong))?;
    }
    Ok(Policy { within, when, then, cooldown_rounds: table.cooldown.0 })
}

/// `in` is a strategy's name alone.
fn kind(name: &str, key: &Key) -> Result<Kind, Wrong> {
    match name {
        "bsp" => Ok(Kind::Bsp),
        "partial" => Ok(Kind::Partial),
        "ssp" => Ok(Kind::Ssp),
        "asp" => Ok(Kind::Asp),
        "timed" => Ok(Kind::Timed),
        _ => {
            let names: Vec<_> = STRATEGIES.iter().map(|(name, _)| format!("`{name}`")).collect();
            let message = format!("unknown strategy `{name}`, expected one of {}", names.join(", "));
            Err(key.wrong(with_guess(&message)))
        }
    }
}

/// Whether so many workers can follow a strategy.
///
/// # Errors
/// A sentence that says why not.
pub fn fits(strategy: &Strategy, workers: u8) -> Result<(), String> {
    let (name, count) = match strategy {
        Strategy::Partial { k, .. } => ("k", *k),
        Strategy::Timed { kmin, .. } => ("kmin", *kmin),
        Strategy::Bsp | Strategy::Ssp { .. } | Strategy::Asp => return Ok(()),
    };
    match count.of(workers) {
        Some(_) => Ok(()),
        None if matches!(count, Quorum::AllBut(_)) => {
            Err(format!("{name} = {count} leaves nobody of {workers} workers; use less"))
        }
        None => Err(format!("{name} = {count} of {workers} workers can never come; use 1 to {workers}, n or n-1")),
    }
}

pub(super) fn too_short(silence: Duration) -> String {
    format!(
        "{silence} is shorter than the pauses of a healthy worker that waits, up to {}; use for instance \"5s\", and more \
         than an iteration takes",
        Duration(MAX_RTO_NS)
    )
}

impl Key {
    /// That a text is wrong at one place.
    fn at(&self, error: SyntaxError) -> Wrong {
        Wrong { within: Some(error.at), ..self.wrong(error.message) }
    }
}
