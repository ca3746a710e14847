//! From the file's tables to the job that the core is told, with every check of one value.

use std::net::SocketAddrV4;

use super::action::{STRATEGIES, parse_action, parse_strategy};
use super::condition::parse_condition;
use super::cursor::SyntaxError;
use super::file::{File, PolicyTable};
use crate::control::config::{Key, Wrong, with_guess};
use crate::control::units::Duration;
use crate::dataplane::Nanos;
use crate::functions::serene::controller::Action;
use crate::functions::serene::{Job, JobError, Policy};

const MAX_POLICIES: usize = 64;
/// The longest time between two packets of a worker that waits: its retransmission timer at its slowest.
pub(super) const MAX_RTO_NS: Nanos = 200_000_000;

/// The job of a file, as far as one value at a time can be checked.
pub(super) fn job(file: &File) -> Result<Job, Wrong> {
    let key = Key::new("job");
    let table = &file.job;
    let id = u8::try_from(table.id).map_err(|_| key.name("id").wrong(format!("{}; give 0 to 255", table.id)))?;
    let job = Job {
        id,
        members: members(&table.members, &key.name("members"))?,
        segments: table.segments,
        lanes: table.lanes,
        scale_log2: table.scale_log2,
        start: parse_strategy(&table.start).map_err(|error| key.name("start").at(error))?,
        policies: policies(&file.policies)?,
    };
    job.check().map_err(|error| match (&error, error.to_string().split_once(": ")) {
        (JobError::Quorum { .. }, _) => key.name("start").wrong(error.to_string()),
        // The other sentences begin with the key.
        (_, Some((name, message))) => key.name(name).wrong(message),
        (_, None) => key.wrong(error.to_string()),
    })?;
    for (index, policy) in job.policies.iter().enumerate() {
        let then = Key::new("policy").index(index).name("then");
        let workers = job.members.len();
        match &policy.then {
            Action::Swap(strategy) => strategy.check(workers).map_err(|error| then.wrong(error.to_string()))?,
            Action::DropMember(Some(worker)) if usize::from(*worker) >= workers => {
                return Err(then.wrong(format!("there is no worker {worker}; they are 0 to {}", workers - 1)));
            }
            _ => {}
        }
    }
    Ok(job)
}

fn members(texts: &[String], key: &Key) -> Result<Vec<SocketAddrV4>, Wrong> {
    let member = |(worker, text): (usize, &String)| {
        let member = text.parse::<SocketAddrV4>().ok().filter(|member| {
            let address = member.ip();
            member.port() != 0 && !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
        });
        let wrong = || format!("{text:?} is no worker's IPv4 address and UDP port; write 10.0.0.1:7001");
        member.ok_or_else(|| key.index(worker).wrong(wrong()))
    };
    texts.iter().enumerate().map(member).collect()
}

fn policies(tables: &[PolicyTable]) -> Result<Vec<Policy>, Wrong> {
    let key = Key::new("policy");
    if tables.len() > MAX_POLICIES {
        return Err(key
            .index(MAX_POLICIES)
            .wrong(format!("{} policies; a job has at most {MAX_POLICIES}", tables.len())));
    }
    tables.iter().enumerate().map(|(index, table)| policy(table, &key.index(index))).collect()
}

fn policy(table: &PolicyTable, key: &Key) -> Result<Policy, Wrong> {
    Ok(Policy {
        within: table.within.as_deref().map(|name| strategy_name(name, &key.name("in"))).transpose()?,
        when: parse_condition(&table.when).map_err(|error| key.name("when").at(error))?,
        then: parse_action(&table.then).map_err(|error| key.name("then").at(error))?,
        cooldown_rounds: table.cooldown.0,
    })
}

/// `in` is a strategy's name alone.
fn strategy_name(name: &str, key: &Key) -> Result<&'static str, Wrong> {
    let known = STRATEGIES.iter().map(|(known, _)| *known).find(|known| *known == name);
    known.ok_or_else(|| {
        let names = STRATEGIES.map(|(name, _)| format!("`{name}`")).join(", ");
        key.wrong(with_guess(&format!("unknown strategy `{name}`, expected one of {names}")))
    })
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
