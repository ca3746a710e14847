//! One swap on its way from ARM to COMPLETE.
//!
//! ```text
//! Arming --Done--> Armed --Reached--> Completing --Done--> stable
//!   | NAK: a higher boundary            Armed, nobody past the boundary, no longer wanted: Aborting --Done--> gone
//! ```
//!
//! Each request is sent until it is answered, with the same number; the switch answers copies alike. A rule is written into
//! its bank before ARM and stays there until the swap is over: a swap that is no longer wanted is taken back first.

use super::super::strategy::Rule;
use super::event::SwapRecord;
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Code, Type};

/// How long to wait for an answer before a request is sent again.
pub const RETRY_NS: Nanos = 10_000_000;

/// Rounds between the highest label known and the boundary asked for: who pushes for the boundary has had an answer since
/// the swap was armed, and so knows its norm.
pub const MARGIN: u32 = 2;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The answer to ARM.
    Arming,
    /// All members past the boundary, or a change of mind.
    Armed,
    /// The answer to ABORT.
    Aborting,
    /// The answer to COMPLETE.
    Completing,
}

/// What an answer changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Nothing,
    Refused,
    Armed,
    Stable,
    Aborted,
}

/// A swap under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swap {
    pub(super) record: SwapRecord,
    pub(super) rule: Rule,
    pub(super) step: Step,
    /// When the request is sent next, if a request is what the step waits for.
    pub(super) send_at: Nanos,
}

impl Swap {
    /// The request that the step waits for an answer to.
    pub(super) fn request(&self) -> Option<Type> {
        match self.step {
            Step::Arming => Some(Type::Arm),
            Step::Armed => None,
            Step::Aborting => Some(Type::Abort),
            Step::Completing => Some(Type::Complete),
        }
    }

    /// Whether it can still be taken back, as far as is known.
    pub(super) fn may_abort(&self) -> bool {
        self.step == Step::Armed && self.record.switching_at.is_none()
    }

    pub(super) fn go_to(&mut self, step: Step, now: Nanos) {
        (self.step, self.send_at) = (step, now);
    }

    /// The switch has answered a request of this type. Answers to what is no longer asked are copies.
    pub(super) fn on_answer(
        &mut self,
        now: Nanos,
        request: Option<Type>,
        code: Code,
        max_round: u32,
        boundary: u32,
    ) -> Progress {
        if request.is_none() || request != self.request() {
            return Progress::Nothing;
        }
        match (self.step, code) {
            (Step::Arming, Code::Done) => {
                (self.record.boundary, self.record.armed_at) = (boundary, Some(now));
                self.step = Step::Armed;
                Progress::Armed
            }
            (Step::Arming, Code::Nak) if max_round >= self.record.boundary => {
                self.record.naks += 1;
                self.record.boundary = max_round.saturating_add(MARGIN);
                self.send_at = now;
                Progress::Refused
            }
            // The switch knows of a later swap than this controller: only another number can be right.
            (Step::Arming, Code::Unknown) => {
                self.record.id += 1;
                Progress::Nothing
            }
            (Step::Aborting, Code::Done | Code::Unknown) => Progress::Aborted,
            (Step::Aborting, Code::TooLate) => {
                self.step = Step::Armed;
                self.record.switching_at.get_or_insert(now);
                Progress::Nothing
            }
            (Step::Completing, Code::Done) => {
                self.record.stable_at = Some(now);
                Progress::Stable
            }
            _ => Progress::Nothing,
        }
    }
}
