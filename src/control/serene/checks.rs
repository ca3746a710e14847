//! What only all policies of a job together can be wrong about: conditions that cannot hold, policies that never act, and
//! policies that swap back and forth without end.

use super::compile::{MAX_RTO_NS, too_short};
use crate::control::config::{Key, Wrong};
use crate::control::units::Duration;
use crate::functions::serene::controller::{Action, Comparison, Condition, Metric, Relation, Unit};
use crate::functions::serene::{Job, Policy, Strategy};

/// Refuses what cannot be meant.
///
/// # Errors
/// The first thing found.
pub(super) fn refuse(job: &Job) -> Result<(), Wrong> {
    let strategies = reachable(job);
    for (index, policy) in job.policies.iter().enumerate() {
        let key = Key::new("policy").index(index);
        let when = key.name("when");
        if let Some(silence) = too_short_silence(&policy.when) {
            return Err(when.wrong(too_short(silence)));
        }
        if policy.then == Action::DropMember(None) && !names_worker(&policy.when) {
            let wrong = "which worker? `when` has to say silent(worker) > .. in each of its alternatives";
            return Err(key.name("then").wrong(wrong));
        }
        if matches!(policy.then, Action::SspWithin { .. }) && policy.cooldown_rounds == 0 {
            let wrong = format!("{} chooses anew whenever it acts; add cooldown = \"50 rounds\"", policy.then);
            return Err(key.name("then").wrong(wrong));
        }
        if !possible(&policy.when, job.members.len() as f64) {
            return Err(when.wrong(format!("`{}` can never hold; correct it, or leave the policy out", policy.when)));
        }
        if let Some(first) = shadow(job, index, &strategies, 0) {
            return Err(when.wrong(format!(
                "never looked at: whenever `{}` holds, policy {} above holds too and acts first; put the narrower one first",
                policy.when,
                first + 1
            )));
        }
    }
    flapping(job, &strategies)
}

/// What may be meant, but has no effect by itself.
pub(super) fn warnings(job: &Job) -> Vec<Wrong> {
    let strategies = reachable(job);
    let mut warnings = Vec::new();
    for (index, policy) in job.policies.iter().enumerate() {
        let key = Key::new("policy").index(index);
        if strategies.iter().any(|current| acts_in(policy, current)) {
            let first = shadow(job, index, &strategies, u32::MAX);
            warnings.extend(first.map(|first| {
                let message = "holds only when policy {} above holds too: it acts only while that one cools down";
                key.name("when").wrong(message.replace("{}", &(first + 1).to_string()))
            }));
            continue;
        }
        let is_there = |strategy: &Strategy| policy.within.is_none_or(|within| within == strategy.name());
        warnings.push(match strategies.iter().find(|current| is_there(current)) {
            Some(current) => key.name("then").wrong(format!("{current} is what it acts under: it has no effect")),
            None => {
                let message =
                    "neither `start` nor another policy leads to this strategy: it acts only after `ctl swap`";
                key.name("in").wrong(message)
            }
        });
    }
    warnings
}

/// The strategies that `start` and the policies lead to.
fn reachable(job: &Job) -> Vec<Strategy> {
    let mut strategies = vec![job.start];
    let mut next = 0;
    while let Some(current) = strategies.get(next).copied() {
        for policy in job.policies.iter().filter(|policy| acts_in(policy, &current)) {
            strategies.extend(target(policy).filter(|to| !strategies.contains(to)));
        }
        next += 1;
    }
    strategies
}

/// Where a policy swaps to; of a range, its lower end stands for all of it.
fn target(policy: &Policy) -> Option<Strategy> {
    match policy.then {
        Action::Swap(to) => Some(to),
        Action::SspWithin { low, .. } => Some(Strategy::Ssp { slack: low }),
        Action::DropMember(_) | Action::Hold => None,
    }
}

/// Whether a policy has an effect under a strategy.
fn acts_in(policy: &Policy, current: &Strategy) -> bool {
    policy.within.is_none_or(|within| within == current.name()) && policy.then != Action::Swap(*current)
}

/// An earlier policy that always acts instead, among those with at most such a cooldown: while they cool down, others have their
/// turn.
fn shadow(job: &Job, index: usize, strategies: &[Strategy], cooldown_rounds: u32) -> Option<usize> {
    let policy = &job.policies[index];
    let mut places = strategies.iter().filter(|current| acts_in(policy, current)).peekable();
    places.peek()?;
    let mut first = None;
    let shadowed = places.all(|current| {
        let found = job.policies[..index].iter().enumerate().find(|(_, other)| {
            other.cooldown_rounds <= cooldown_rounds && acts_in(other, current) && implies(&policy.when, &other.when)
        });
        first = first.or(found.map(|(place, _)| place));
        found.is_some()
    });
    first.filter(|_| shadowed)
}

/// Refuses a circle of swaps none of which has a cooldown.
fn flapping(job: &Job, strategies: &[Strategy]) -> Result<(), Wrong> {
    for from in strategies {
        let Some(circle) = circle(job, from) else { continue };
        let numbers: Vec<_> = circle.iter().map(|index| (index + 1).to_string()).collect();
        let last = circle.last().copied().unwrap_or_default(); // a circle has at least two
        return Err(Key::new("policy").index(last).wrong(format!(
            "policies {} lead from {from} back to {from} and none has a cooldown: they could swap for ever; add cooldown = \
             \"50 rounds\" to one of them",
            numbers.join(" and ")
        )));
    }
    Ok(())
}

/// The policies without a cooldown that lead from a strategy back to it.
fn circle(job: &Job, from: &Strategy) -> Option<Vec<usize>> {
    let mut paths: Vec<(Strategy, Vec<usize>)> = vec![(*from, Vec::new())];
    let mut next = 0;
    while let Some((current, path)) = paths.get(next).cloned() {
        for (index, policy) in job.policies.iter().enumerate().filter(|(_, policy)| policy.cooldown_rounds == 0) {
            let Some(to) = target(policy).filter(|_| acts_in(policy, &current)) else { continue };
            let path = [path.as_slice(), &[index]].concat();
            if to == *from {
                return Some(path);
            }
            if paths.iter().all(|(known, _)| *known != to) {
                paths.push((to, path));
            }
        }
        next += 1;
    }
    None
}

/// Whether every alternative says which worker is silent.
fn names_worker(condition: &Condition) -> bool {
    match condition {
        Condition::Compare(comparison) => comparison.metric == Metric::Silent,
        Condition::All(parts) => parts.iter().any(names_worker),
        Condition::Any(parts) => parts.iter().all(names_worker),
    }
}

fn too_short_silence(condition: &Condition) -> Option<Duration> {
    match condition {
        Condition::Compare(Comparison { metric: Metric::Silent, value, .. }) => {
            (*value < MAX_RTO_NS as f64).then_some(Duration(*value as u64))
        }
        Condition::Compare(_) => None,
        Condition::All(parts) | Condition::Any(parts) => parts.iter().find_map(too_short_silence),
    }
}

/// The least and the greatest value with which a comparison holds.
fn range(comparison: &Comparison) -> (f64, f64) {
    let value = comparison.value;
    let step = if comparison.metric.unit() == Unit::Ratio { 0.0 } else { 1.0 }; // the others are whole numbers
    match comparison.relation {
        Relation::Greater => ((value + step).max(value.next_up()), f64::INFINITY),
        Relation::AtLeast => (value, f64::INFINITY),
        Relation::Less => (0.0, (value - step).min(value.next_down())),
        Relation::AtMost => (0.0, value),
    }
}

/// Whether a condition can hold, as far as its numbers tell.
fn possible(condition: &Condition, workers: f64) -> bool {
    let limits = |comparison: &Comparison| match comparison.metric {
        Metric::LateRate => (0.0, 1.0),
        Metric::IncludedMin => (1.0, workers),
        _ => (0.0, f64::INFINITY),
    };
    let meet = |one: (f64, f64), other: (f64, f64)| one.0.max(other.0) <= one.1.min(other.1);
    match condition {
        Condition::Compare(comparison) => meet(range(comparison), limits(comparison)),
        Condition::Any(parts) => parts.iter().any(|part| possible(part, workers)),
        Condition::All(parts) => parts.iter().enumerate().all(|(place, part)| {
            // All of them look at the newest round, whatever `for` says.
            let agrees = |other: &Condition| match (part, other) {
                (Condition::Compare(own), Condition::Compare(other)) if own.metric == other.metric => {
                    meet(range(own), range(other))
                }
                _ => true,
            };
            possible(part, workers) && parts[place + 1..].iter().all(agrees)
        }),
    }
}

/// Whether `then` holds whenever `when` does, as far as their numbers tell.
fn implies(when: &Condition, then: &Condition) -> bool {
    match (when, then) {
        (Condition::Any(parts), _) => parts.iter().all(|part| implies(part, then)),
        (_, Condition::All(parts)) => parts.iter().all(|part| implies(when, part)),
        (_, Condition::Any(parts)) if parts.iter().any(|part| implies(when, part)) => true,
        (Condition::All(parts), _) => parts.iter().any(|part| implies(part, then)),
        (Condition::Compare(narrow), Condition::Compare(wide)) => {
            let (inner, outer) = (range(narrow), range(wide));
            narrow.metric == wide.metric
                && outer.0 <= inner.0
                && inner.1 <= outer.1
                && (narrow.rounds >= wide.rounds || narrow.metric == Metric::Silent)
        }
        (Condition::Compare(_), Condition::Any(_)) => false,
    }
}
