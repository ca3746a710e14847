//! Stage `round`: whose contribution is in which round of a segment, and whether this one releases it.
//!
//! A segment's rounds share a ring of 16 slots: the rule bounds how far apart two workers can be, so that a round's slot is
//! not taken over while the round is open. What was overwritten is known to be over.

use std::cmp::Ordering;

use super::strategy::{RING_DEPTH, Rule, Visibility};
use crate::dataplane::{Cx, Register, Tracer, pair};
use crate::wire::aggregation::MAX_WORKERS;

pair! {
    /// Register `seen`.
    SeenCell {
        /// The latest round that the slot was used for.
        tag: u32,
        /// A bit for each worker that has contributed to it.
        bits: u32,
    }
}

/// A round's count once the controller has closed it: no rule needs so many.
pub const CLOSED: u8 = u8::MAX;

/// A round against its slot of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It takes the slot over.
    New,
    /// The slot is its own.
    Same,
    /// A later round has the slot.
    Old,
}

/// Register `clock`: the worker's latest round. How this one compares with the one before.
pub fn clock_action(cell: &mut u32, round: u32) -> Ordering {
    let order = round.cmp(cell);
    *cell = round.max(*cell);
    order
}

/// Register `seen`: the round's class, and who is in, this worker included. A repeated contribution changes nothing.
pub fn seen_action(cell: &mut SeenCell, round: u32, bit: u32, again: bool) -> (Class, u32) {
    let class = match round.cmp(&cell.tag) {
        Ordering::Greater => Class::New,
        Ordering::Equal => Class::Same,
        Ordering::Less => Class::Old,
    };
    let bits = if class == Class::Same { cell.bits } else { 0 };
    if again || class == Class::Old {
        return (class, bits);
    }
    *cell = SeenCell { tag: round, bits: bits | bit };
    (class, bits | bit)
}

/// Register `count`: how many are in before this contribution and with it.
pub fn count_action(cell: &mut u8, class: Class, again: bool) -> (u8, u8) {
    let before = if class == Class::Same { *cell } else { 0 };
    if again || class == Class::Old {
        return (before, before);
    }
    *cell = before.saturating_add(1);
    (before, *cell)
}

/// Register `count`, for CLOSE: whether that releases the round.
pub fn close_action(cell: &mut u8, eligible: bool, at_least: u8, need: u8) -> bool {
    let closes = eligible && *cell < need && *cell >= at_least;
    if closes {
        *cell = CLOSED;
    }
    closes
}

/// What a contribution is to its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It counts, and the round is still open.
    Counts,
    /// It counts, and it is the last that the round needed.
    Releases,
    /// The round was released without it.
    Late,
    /// It was in before, and the round is still open.
    Again,
    /// It was in before or was late before, and the round is released.
    Replay,
    /// It came before, and its slot has been taken over: nobody knows.
    Unknown,
}

/// What the stage found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) fate: Fate,
    /// A bit for each worker that is in the round, as far as the answer may say so.
    pub(super) included: u32,
    /// The round was closed by the controller.
    pub(super) closed: bool,
}

/// Table `decide`. `is_in`: the worker's contribution is known to have been in before.
fn decide(rule: &Rule, class: Class, again: bool, is_in: bool, before: u8, after: u8) -> Fate {
    let released = before >= rule.need;
    match (rule.visibility, again) {
        (Visibility::Deferred, false) if released || class == Class::Old => Fate::Late,
        (_, false) if !released && after >= rule.need => Fate::Releases,
        (_, false) => Fate::Counts,
        (_, true) if class == Class::Old && rule.visibility == Visibility::Deferred => Fate::Unknown,
        (Visibility::Deferred, true) => {
            if released {
                Fate::Replay
            } else {
                Fate::Again
            }
        }
        // A label that an earlier process of this worker has jumped over, or whose slot has been taken over since.
        (Visibility::Immediate, true) if !is_in => Fate::Unknown,
        (Visibility::Immediate, true) => Fate::Replay,
    }
}

/// The stage's registers: `clock` by segment and worker, the others by segment and slot of the ring.
#[derive(Clone, Debug)]
pub(super) struct Rounds {
    clock: Register<u32>,
    seen: Register<SeenCell>,
    count: Register<u8>,
    winners: Register<u32>,
}

impl Rounds {
    pub(super) fn new(segments: usize) -> Self {
        let slots = segments * RING_DEPTH as usize;
        Rounds {
            clock: Register::new("clock", segments * usize::from(MAX_WORKERS)),
            seen: Register::new("seen", slots),
            count: Register::new("count", slots),
            winners: Register::new("winners", slots),
        }
    }

    fn slot(segment: u32, round: u32) -> usize {
        (segment * RING_DEPTH + round % RING_DEPTH) as usize
    }

    fn clock_index(segment: u32, worker: u8) -> usize {
        segment as usize * usize::from(MAX_WORKERS) + usize::from(worker)
    }

    /// A contribution's pass.
    #[inline]
    pub(super) fn push<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        rule: &Rule,
        segment: u32,
        round: u32,
        worker: u8,
        guard: bool,
    ) -> Finding {
        let (slot, bit) = (Self::slot(segment, round), 1 << worker);
        let order = self.clock.execute(cx, Self::clock_index(segment, worker), |cell| clock_action(cell, round));
        let again = order != Ordering::Greater && guard;
        let (class, bits) = self.seen.execute(cx, slot, |cell| seen_action(cell, round, bit, again));
        let (before, after) = self.count.execute(cx, slot, |cell| count_action(cell, class, again));
        let is_in = bits & bit != 0 || (class == Class::Old && order == Ordering::Equal);
        let fate = decide(rule, class, again, is_in, before, after);
        cx.table("decide", true);
        let winners = self.winners.execute(cx, slot, |cell| {
            match (fate, class) {
                (Fate::Releases, _) => *cell = bits,
                (_, Class::New) if !again => *cell = 0,
                _ => {}
            }
            *cell
        });
        let included = match (rule.visibility, fate) {
            (_, Fate::Unknown) => 0,
            (Visibility::Deferred, Fate::Counts | Fate::Again) => bits,
            (Visibility::Deferred, _) if class == Class::Old => 0,
            (Visibility::Deferred, _) => winners,
            // At once, whatever has become of the slot.
            (Visibility::Immediate, _) => bits | bit,
        };
        Finding { fate, included, closed: before == CLOSED }
    }

    /// The pass of CLOSE: who is in the round if this releases it. It does so if all of `required` are in, and at least
    /// `at_least`; with none at all, even a round that nobody has contributed to.
    pub(super) fn close<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        rule: &Rule,
        segment: u32,
        round: u32,
        required: u32,
        at_least: u8,
    ) -> Option<u32> {
        let slot = Self::slot(segment, round);
        let (opens, seen) = self.seen.execute(cx, slot, |cell| {
            let opens = at_least == 0 && cell.tag < round;
            if opens {
                *cell = SeenCell { tag: round, bits: 0 };
            }
            (opens, *cell)
        });
        let eligible = seen.tag == round && seen.bits & required == required;
        let closes = self.count.execute(cx, slot, |cell| {
            *cell = if opens { 0 } else { *cell };
            close_action(cell, eligible, at_least, rule.need)
        });
        self.winners.execute(cx, slot, |cell| {
            if closes {
                *cell = seen.bits;
            }
        });
        closes.then_some(seen.bits)
    }

    /// The pass of PULL: the worker's latest round.
    pub(super) fn look<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, segment: u32, worker: u8) -> u32 {
        self.clock.execute(cx, Self::clock_index(segment, worker), |cell| *cell)
    }

    /// The worker's latest round of a segment, as the control plane reads it.
    pub(super) fn clock(&self, segment: u32, worker: u8) -> u32 {
        self.clock.peek(Self::clock_index(segment, worker)).unwrap_or_default()
    }
}
