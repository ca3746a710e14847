//! What the controller tells the log, and the record of swaps.

use std::fmt;

use super::super::strategy::Strategy;
use crate::dataplane::Nanos;

/// Why rules are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody said so.
    Operator,
    /// The policy of this number, from 0 in the order of the job file.
    Policy(usize),
    /// A worker that was no member wants to take part.
    Joined(u8),
    /// A worker left.
    Left(u8),
    /// A policy dropped a worker.
    Dropped(u8),
}

/// A strategy and who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// How workers keep step.
    pub strategy: Strategy,
    /// A bit for each worker that takes part.
    pub members: u32,
}

/// How a swap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has not.
    Pending,
    /// Its rule is the only one.
    Stable,
    /// It was taken back before anybody was past its boundary, since by then something else was wanted, for this cause.
    Superseded(Cause),
}

/// One swap, for `ctl trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapRecord {
    /// Its number.
    pub id: u32,
    /// What was in force.
    pub from: Target,
    /// What is to be.
    pub to: Target,
    /// Version of the new rule.
    pub version: u16,
    /// First round of the new rule: asked for until it is armed, true from then on.
    pub boundary: u32,
    /// Boundaries that were refused because somebody had pushed for them.
    pub naks: u32,
    /// When it was asked for.
    pub asked_at: Nanos,
    /// When the switch accepted it.
    pub armed_at: Option<Nanos>,
    /// When the first worker was seen past the boundary.
    pub switching_at: Option<Nanos>,
    /// When the old rule was gone.
    pub stable_at: Option<Nanos>,
    /// Why.
    pub cause: Cause,
    /// How it ended.
    pub outcome: Outcome,
}

/// Something for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process took a worker's place.
    Joined {
        /// The worker.
        worker: u8,
        /// Another process was in its place before.
        restarted: bool,
        /// It was no member; it is once a rule with it is in force.
        admitted: bool,
    },
    /// A worker left.
    Left {
        /// The worker.
        worker: u8,
    },
    /// A worker was given up.
    Dropped {
        /// The worker.
        worker: u8,
        /// How long it had been silent, if that was why.
        silent_ns: Option<Nanos>,
    },
    /// Others are ahead of a worker that has not been heard of for long.
    Silent {
        /// The worker.
        worker: u8,
        /// For how long.
        silent_ns: Nanos,
    },
    /// A worker that was silent no longer is.
    Heard {
        /// The worker.
        worker: u8,
    },
    /// Nobody is left.
    Deserted,
    /// The switch did not take a boundary.
    Refused {
        /// The swap.
        id: u32,
        /// Somebody has pushed for this round.
        max_round: u32,
        /// The boundary asked for next.
        boundary: u32,
    },
    /// The switch took a boundary.
    Armed(SwapRecord),
    /// Somebody is past it.
    Switching(SwapRecord),
    /// Everybody is.
    Stable(SwapRecord),
    /// A swap was taken back.
    Aborted(SwapRecord),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Operator => f.write_str("asked for"),
            Cause::Policy(number) => write!(f, "policy {}", number + 1),
            Cause::Joined(worker) => write!(f, "worker {worker} joins"),
            Cause::Left(worker) => write!(f, "worker {worker} left"),
            Cause::Dropped(worker) => write!(f, "worker {worker} dropped"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} workers", self.strategy, self.members.count_ones())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Pending => f.write_str("pending"),
            Outcome::Stable => f.write_str("stable"),
            Outcome::Superseded(Cause::Operator) => f.write_str("superseded: another was asked for"),
            Outcome::Superseded(cause) => write!(f, "superseded: {cause}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swap =
            |f: &mut fmt::Formatter<'_>, what: &str, SwapRecord { id, from, to, boundary, cause, .. }: &SwapRecord| {
                write!(f, "swap {id} {what}: {from} -> {to} at round {boundary} ({cause})")
            };
        match self {
            Event::Joined { worker, restarted: false, admitted: false } => write!(f, "worker {worker} joined"),
            Event::Joined { worker, restarted: true, admitted: false } => {
                write!(f, "worker {worker} joined again: a new process")
            }
            Event::Joined { worker, admitted: true, .. } => write!(f, "worker {worker} asks to take part again"),
            Event::Left { worker } => write!(f, "worker {worker} left"),
            Event::Dropped { worker, silent_ns: Some(ns) } => {
                write!(f, "worker {worker} dropped: silent for {} ms", ns / 1_000_000)
            }
            Event::Dropped { worker, silent_ns: None } => write!(f, "worker {worker} dropped"),
            Event::Silent { worker, silent_ns } => {
                let seconds = silent_ns / 1_000_000_000;
                write!(f, "worker {worker} is behind and silent for {seconds} s; no policy has dropped it")
            }
            Event::Heard { worker } => write!(f, "worker {worker} is heard of again"),
            Event::Deserted => f.write_str("no worker is left"),
            Event::Refused { id, max_round, boundary } => {
                write!(f, "swap {id}: round {max_round} was pushed already; asking for round {boundary}")
            }
            Event::Armed(record) => swap(f, "armed", record),
            Event::Switching(record) => swap(f, "under way", record),
            Event::Stable(record) => {
                swap(f, "complete", record)?;
                let took_ns = record.stable_at.zip(record.armed_at).map_or(0, |(end, start)| end.saturating_sub(start));
                write!(f, ", {} us after it was armed", took_ns / 1000)
            }
            Event::Aborted(record) => {
                swap(f, "taken back", record)?;
                write!(f, ", {}", record.outcome)
            }
        }
    }
}
