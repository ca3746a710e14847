//! Releasing rounds that would not be over by themselves: a member is gone, or a deadline has passed.
//!
//! One CLOSE a segment, sent again until the segment's STATUS says that the round is over: it is idempotent.

use crate::dataplane::Nanos;

/// How long to wait for a CLOSE to take effect before it is sent again.
pub const CLOSE_RETRY_NS: Nanos = 10_000_000;

/// A CLOSE to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) segment: u32,
    pub(super) round: u32,
    /// Only if all of these are in.
    pub(super) required: u32,
    /// Only if so many are in; 0: even if nobody is.
    pub(super) at_least: u8,
}

/// Who may still contribute to the rounds that go by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// First round that goes by another rule.
    pub(super) before: u32,
    /// A bit for each of them.
    pub(super) workers: u32,
    /// The rule waits for more than these.
    pub(super) too_few: bool,
}

impl Expected {
    /// Of a rule that has no end, and waits for nobody in vain.
    pub(super) const ALL: Expected = Expected { before: u32::MAX, workers: u32::MAX, too_few: false };

    /// Nobody is left, and who is to take part by the next rule waits for these rounds to be over.
    fn abandoned(&self) -> bool {
        self.workers == 0 && self.before < u32::MAX
    }
}

/// What to close, and how far that has got.
#[derive(Clone, Debug)]
pub(super) struct Closer {
    /// Last round released, by segment, as far as is known.
    frontiers: Vec<u32>,
    /// Rounds before this one are over, released or not: workers that are behind jump over them.
    first: u32,
    /// Rounds up to this one, with so many contributions: their deadline has passed.
    due: Option<(u32, u8)>,
    /// By the rule in force, and by the one that is armed.
    expected: [Expected; 2],
    next_at: Nanos,
}

impl Closer {
    pub(super) fn new(segments: u32) -> Self {
        let frontiers = vec![0; segments as usize];
        Closer { frontiers, first: 1, due: None, expected: [Expected::ALL; 2], next_at: 0 }
    }

    /// The deadline of `round` has passed.
    pub(super) fn set_due(&mut self, now: Nanos, round: u32, at_least: u8) {
        if !self.is_busy() {
            self.frontiers.fill(round.saturating_sub(1));
        }
        (self.due, self.next_at) = (Some((round, at_least)), now);
    }

    /// Who may still contribute, by the rule in force and by the one that is armed.
    pub(super) fn set_expected(&mut self, now: Nanos, expected: [Expected; 2]) {
        if self.expected == expected {
            return;
        }
        if !self.is_busy() {
            self.frontiers.fill(0); // digests are about the last segment only: the answers will tell of the others
        }
        (self.expected, self.next_at) = (expected, now);
    }

    /// Rounds before `first` are over, released or not.
    pub(super) fn set_first(&mut self, first: u32) {
        self.first = first;
    }

    fn is_busy(&self) -> bool {
        self.due.is_some() || self.expected.iter().any(|expected| expected.too_few || expected.abandoned())
    }

    /// The CLOSE that a segment needs, if any. `max_round`: nobody has pushed beyond.
    fn close(&self, segment: usize, max_round: u32) -> Option<Close> {
        let round = (self.frontiers.get(segment)? + 1).max(self.first);
        let expected = self.expected.iter().find(|expected| round < expected.before)?;
        let present = expected.workers.count_ones() as u8;
        let (required, at_least) = match self.due {
            _ if expected.abandoned() => (0, 0),
            Some((due, at_least)) if round <= due => (0, at_least.min(present).max(1)),
            _ if expected.too_few && round <= max_round => (expected.workers, 1),
            _ => return None,
        };
        Some(Close { segment: segment as u32, round, required, at_least })
    }

    /// A segment stands there, says the answer to a CLOSE of `round`. Returns the next CLOSE, if that got it on.
    pub(super) fn on_status(&mut self, segment: u32, round: u32, frontier: u32, max_round: u32) -> Option<Close> {
        *self.frontiers.get_mut(segment as usize)? = frontier;
        if frontier < round { None } else { self.close(segment as usize, max_round) }
    }

    /// What is to be sent now.
    pub(super) fn poll(&mut self, now: Nanos, max_round: u32, out: &mut Vec<Close>) {
        if let Some((due, _)) = self.due
            && self.frontiers.iter().all(|frontier| *frontier >= due)
        {
            self.due = None;
        }
        if self.next_wakeup().is_some_and(|at| at <= now) {
            out.extend((0..self.frontiers.len()).filter_map(|segment| self.close(segment, max_round)));
            self.next_at = now + CLOSE_RETRY_NS;
        }
    }

    /// When to poll again.
    pub(super) fn next_wakeup(&self) -> Option<Nanos> {
        self.is_busy().then_some(self.next_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(closer: &mut Closer, now: Nanos, max_round: u32) -> Vec<(u32, u32, u32, u8)> {
        let mut out = Vec::new();
        closer.poll(now, max_round, &mut out);
        out.iter().map(|close| (close.segment, close.round, close.required, close.at_least)).collect()
    }

    fn only(workers: u32) -> [Expected; 2] {
        [Expected { workers, too_few: true, ..Expected::ALL }, Expected::ALL]
    }

    #[test]
    fn a_round_past_its_deadline_is_closed_on_every_segment_until_each_says_so() {
        let mut closer = Closer::new(2);
        assert_eq!((poll(&mut closer, 0, 9), closer.next_wakeup()), (vec![], None));
        closer.set_due(100, 5, 3);
        assert_eq!(poll(&mut closer, 100, 5), [(0, 5, 0, 3), (1, 5, 0, 3)]);
        assert_eq!(poll(&mut closer, 101, 5), []);
        assert_eq!(closer.on_status(0, 5, 5, 5), None);
        let again = 100 + CLOSE_RETRY_NS;
        assert_eq!((closer.next_wakeup(), poll(&mut closer, again, 5)), (Some(again), vec![(1, 5, 0, 3)]));
        // It was behind: an earlier round first.
        assert_eq!(closer.on_status(1, 5, 3, 5), None);
        assert_eq!(poll(&mut closer, again + CLOSE_RETRY_NS, 5), [(1, 4, 0, 3)]);
        let next = closer.on_status(1, 4, 4, 5).expect("round 5 is open");
        assert_eq!((next.segment, next.round), (1, 5));
        closer.on_status(1, 5, 5, 5);
        assert_eq!((poll(&mut closer, u64::MAX, 5), closer.next_wakeup()), (vec![], None));
    }

    #[test]
    fn a_deadline_waits_for_no_more_than_are_left() {
        let mut closer = Closer::new(1);
        closer.set_due(0, 5, 3);
        assert_eq!(poll(&mut closer, 0, 5), [(0, 5, 0, 3)]);
        closer.set_expected(1, only(0b0011));
        assert_eq!(poll(&mut closer, 1, 5), [(0, 5, 0, 2)]);
    }

    #[test]
    fn while_members_are_gone_rounds_close_with_the_others_up_to_the_last_pushed() {
        let mut closer = Closer::new(1);
        closer.set_expected(0, only(0b011));
        assert_eq!(poll(&mut closer, 0, 7), [(0, 1, 0b011, 1)]);
        assert_eq!(closer.on_status(0, 1, 7, 7), None, "nobody has pushed for round 8");
        assert_eq!(poll(&mut closer, CLOSE_RETRY_NS - 1, 7), []);
        assert_eq!(poll(&mut closer, CLOSE_RETRY_NS, 9), [(0, 8, 0b011, 1)]);
        let next = closer.on_status(0, 8, 8, 9).expect("round 9 is open");
        assert_eq!((next.round, next.required), (9, 0b011));
        assert_eq!(closer.on_status(0, 9, 9, 9), None);
        closer.set_expected(0, [Expected::ALL; 2]);
        assert_eq!(closer.next_wakeup(), None);
    }

    #[test]
    fn rounds_that_workers_jump_over_are_not_closed() {
        let mut closer = Closer::new(1);
        closer.set_expected(0, only(0b011));
        closer.set_first(20);
        assert_eq!(poll(&mut closer, 0, 20), [(0, 20, 0b011, 1)]);
        assert_eq!(closer.on_status(0, 20, 7, 20), None);
        assert_eq!(poll(&mut closer, CLOSE_RETRY_NS, 20), [(0, 20, 0b011, 1)]);
    }

    #[test]
    fn before_a_boundary_only_members_of_the_rule_in_force_are_waited_for() {
        let mut closer = Closer::new(1);
        let in_force = Expected { before: 9, workers: 0b001, too_few: true };
        closer.set_expected(0, [in_force, Expected { workers: 0b111, ..Expected::ALL }]);
        assert_eq!(poll(&mut closer, 0, 9), [(0, 1, 0b001, 1)]);
        let next = closer.on_status(0, 1, 7, 9).expect("round 8 is open");
        assert_eq!((next.round, next.required), (8, 0b001));
        assert_eq!(closer.on_status(0, 8, 8, 9), None, "round 9 waits for nobody who is gone");
    }

    #[test]
    fn rounds_before_a_boundary_that_nobody_is_left_for_are_closed_empty() {
        let mut closer = Closer::new(1);
        let deserted = Expected { before: 3, workers: 0, too_few: true };
        closer.set_expected(0, [deserted, Expected::ALL]);
        assert_eq!(poll(&mut closer, 0, 1), [(0, 1, 0, 0)]);
        let next = closer.on_status(0, 1, 1, 1).expect("nobody pushes for round 2, and who comes at 3 waits for it");
        assert_eq!((next.round, next.at_least), (2, 0));
        assert_eq!(closer.on_status(0, 2, 2, 1), None);
    }
}
