//! What digests say about the latest rounds.

use std::collections::VecDeque;

use super::super::digest::{Digest, DigestKind};
use super::super::strategy::{Rule, Visibility};
use super::policy::{Metric, WINDOW_ROUNDS};
use crate::dataplane::Nanos;
use crate::wire::aggregation::MAX_WORKERS;

const WORKERS: usize = MAX_WORKERS as usize;

/// Rounds whose first contribution is remembered.
const OPEN_ROUNDS: usize = 64;

/// The metrics of one round, taken when it was over.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The round.
    pub round: u32,
    /// When it was over.
    pub at: Nanos,
    /// Waits of the contributions answered since the round before: median, 95th percentile, longest.
    pub wait_ns: [Nanos; 3],
    /// From its first contribution.
    pub span_ns: Nanos,
    /// From the end of the round before; 0 if that is not known.
    pub round_ns: Nanos,
    /// Rounds between the foremost worker and the hindmost.
    pub lag: u32,
    /// Late contributions, over all, since the round before.
    pub late_rate: f64,
    /// Repeated contributions, over all others, since the round before.
    pub retx_rate: f64,
    /// Workers in it.
    pub included: u32,
}

impl Sample {
    /// A metric in its unit. [`Metric::Silent`] is none of a round.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        Some(match metric {
            Metric::WaitP50 => self.wait_ns[0] as f64,
            Metric::WaitP95 => self.wait_ns[1] as f64,
            Metric::WaitMax => self.wait_ns[2] as f64,
            Metric::Span => self.span_ns as f64,
            Metric::RoundTime => self.round_ns as f64,
            Metric::LagMax => self.lag.into(),
            Metric::LateRate => self.late_rate,
            Metric::RetxRate => self.retx_rate,
            Metric::IncludedMin => self.included.into(),
            Metric::Silent => return None,
        })
    }
}

/// What happened since the last round was over.
#[derive(Clone, Debug, Default)]
struct Interval {
    waits: Vec<Nanos>,
    contributions: u32,
    late: u32,
    again: u32,
}

/// Keeps the books.
#[derive(Clone, Debug, Default)]
pub(super) struct Observer {
    /// Latest round by worker.
    clock: [u32; WORKERS],
    heard_at: [Option<Nanos>; WORKERS],
    /// First contribution of rounds that are not over.
    open: VecDeque<(u32, Nanos)>,
    /// Contributions without an answer: worker, round, when.
    parked: Vec<(u8, u32, Nanos)>,
    interval: Interval,
    over_at: Option<Nanos>,
    /// The last round over, whose sample was taken.
    sampled: u32,
    /// The last round released.
    released: u32,
    window: VecDeque<Sample>,
    /// Earlier rounds are not looked at.
    from_round: u32,
}

impl Observer {
    /// Takes a digest in. `rule` is that of its round, `live` the workers that are there. Says whether a round is over by it.
    pub(super) fn observe(&mut self, digest: &Digest, rule: &Rule, live: u32) -> bool {
        let Digest { round, worker, at, kind, .. } = *digest;
        let Some(heard) = self.heard_at.get_mut(usize::from(worker)) else { return false };
        if !matches!(kind, DigestKind::Released { .. } | DigestKind::Reached) {
            *heard = Some(at);
        }
        let immediate = rule.visibility == Visibility::Immediate;
        match kind {
            DigestKind::Arrived { parked } => {
                self.advance(worker, round);
                self.interval.contributions += 1;
                if !self.open.iter().any(|(open, _)| *open == round) {
                    self.open.truncate(OPEN_ROUNDS - 1);
                    self.open.push_front((round, at));
                }
                if parked {
                    self.parked.push((worker, round, at));
                } else {
                    self.interval.waits.push(0);
                }
                if !immediate {
                    return false;
                }
                // Nothing is released where nobody waits: a round is over when all have been there.
                let over = self.hindmost(live);
                self.released = self.released.max(over);
                over > self.sampled && self.sample(over, at, live, live.count_ones())
            }
            DigestKind::Late => {
                self.advance(worker, round);
                self.interval.contributions += 1;
                self.interval.late += 1;
                false
            }
            DigestKind::Again => {
                self.interval.again += 1;
                false
            }
            DigestKind::Released { included, .. } => {
                self.released = self.released.max(round);
                let answered = round.saturating_add(if immediate { rule.slack } else { 0 });
                let waits = &mut self.interval.waits;
                self.parked.retain(|(_, parked, since)| {
                    let waits_on = *parked > answered;
                    if !waits_on {
                        waits.push(at.saturating_sub(*since));
                    }
                    waits_on
                });
                !immediate && self.sample(round, at, live, included.count_ones())
            }
            DigestKind::Joined { .. } | DigestKind::Left | DigestKind::Alive | DigestKind::Reached => false,
        }
    }

    fn advance(&mut self, worker: u8, round: u32) {
        if let Some(clock) = self.clock.get_mut(usize::from(worker)) {
            *clock = round.max(*clock);
        }
    }

    fn of_live(&self, live: u32) -> impl Iterator<Item = u32> {
        self.clock.iter().enumerate().filter(move |(worker, _)| live >> worker & 1 != 0).map(|(_, clock)| *clock)
    }

    fn hindmost(&self, live: u32) -> u32 {
        self.of_live(live).min().unwrap_or(0)
    }

    fn sample(&mut self, round: u32, at: Nanos, live: u32, included: u32) -> bool {
        let Interval { mut waits, contributions, late, again } = std::mem::take(&mut self.interval);
        waits.sort_unstable();
        let share = |part: u32| f64::from(part) / f64::from(contributions.max(1));
        let first_at = self.open.iter().find(|(open, _)| *open == round).map(|(_, at)| *at);
        self.open.retain(|(open, _)| *open > round);
        let sample = Sample {
            round,
            at,
            wait_ns: [50, 95, 100].map(|percent| percentile(&waits, percent)),
            span_ns: first_at.map_or(0, |first| at.saturating_sub(first)),
            round_ns: self.over_at.map_or(0, |before| at.saturating_sub(before)),
            lag: self.of_live(live).max().unwrap_or(0) - self.hindmost(live),
            late_rate: share(late),
            retx_rate: share(again),
            included,
        };
        (self.over_at, self.sampled) = (Some(at), round);
        if round < self.from_round {
            return false;
        }
        self.window.truncate(WINDOW_ROUNDS as usize - 1);
        self.window.push_front(sample);
        true
    }

    /// Forgets all rounds before `from_round`: they straddle a swap.
    pub(super) fn restart(&mut self, from_round: u32) {
        self.window.clear();
        self.parked.retain(|(_, round, _)| *round >= from_round);
        self.interval = Interval::default();
        self.from_round = from_round;
    }

    /// The latest round's metrics.
    pub(super) fn latest(&self) -> Option<&Sample> {
        self.window.front()
    }

    /// The latest rounds' metrics, the latest first.
    pub(super) fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.window.iter()
    }

    /// When a worker was heard of last.
    pub(super) fn heard_at(&self, worker: u8) -> Option<Nanos> {
        self.heard_at.get(usize::from(worker)).copied().flatten()
    }

    /// The latest round of a worker.
    pub(super) fn clock(&self, worker: u8) -> u32 {
        self.clock.get(usize::from(worker)).copied().unwrap_or(0)
    }

    /// The last round released on the last segment.
    pub(super) fn released(&self) -> u32 {
        self.released
    }
}

/// Nearest rank of sorted values; 0 of none.
fn percentile(sorted: &[Nanos], percent: usize) -> Nanos {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::super::strategy::Strategy;
    use super::*;

    const MS: Nanos = 1_000_000;

    fn digest(worker: u8, round: u32, at_ms: u64, kind: DigestKind) -> Digest {
        Digest { job: 1, round, worker, at: at_ms * MS, kind }
    }

    fn rule(strategy: Strategy) -> Rule {
        strategy.compile(0b111, 1, Visibility::Deferred)
    }

    const PARKED: DigestKind = DigestKind::Arrived { parked: true };
    const ANSWERED: DigestKind = DigestKind::Arrived { parked: false };

    #[test]
    fn a_round_of_bsp_is_measured_from_its_contributions_to_its_release() {
        let (mut observer, rule) = (Observer::default(), rule(Strategy::Bsp));
        let mut observe = |digest| observer.observe(&digest, &rule, 0b111);
        let released = DigestKind::Released { included: 0b111, closed: false };
        for (round, start) in [(1, 100), (2, 200)] {
            assert!(!observe(digest(0, round, start, PARKED)));
            assert!(!observe(digest(0, round, start + 6, DigestKind::Again)));
            assert!(!observe(digest(1, round, start + 10, PARKED)));
            assert!(!observe(digest(2, round, start + 30, ANSWERED)));
            assert!(observe(digest(2, round, start + 30, released)));
        }
        let sample = *observer.latest().expect("two rounds");
        assert_eq!((sample.round, sample.wait_ns), (2, [20 * MS, 30 * MS, 30 * MS]));
        assert_eq!((sample.span_ns, sample.round_ns, sample.lag, sample.included), (30 * MS, 100 * MS, 0, 3));
        assert_eq!((sample.late_rate, sample.retx_rate), (0.0, 1.0 / 3.0));
        assert_eq!((observer.heard_at(1), observer.clock(1), observer.released()), (Some(210 * MS), 2, 2));
    }

    #[test]
    fn under_ssp_only_those_who_are_too_far_ahead_wait() {
        let (mut observer, rule) = (Observer::default(), rule(Strategy::Ssp { slack: 1 }));
        let mut observe = |digest| observer.observe(&digest, &rule, 0b11);
        observe(digest(0, 1, 10, ANSWERED));
        observe(digest(0, 2, 20, PARKED));
        assert!(observe(digest(1, 1, 50, ANSWERED)), "both have been in round 1");
        observe(digest(1, 1, 50, DigestKind::Released { included: 0b11, closed: false }));
        assert!(observe(digest(1, 2, 60, ANSWERED)));
        let sample = *observer.latest().expect("two rounds");
        assert_eq!((sample.round, sample.wait_ns, sample.lag), (2, [0, 30 * MS, 30 * MS], 0));
        assert_eq!(observer.samples().map(|s| s.lag).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn late_contributions_count_in_the_round_after() {
        let (mut observer, rule) = (Observer::default(), rule(Strategy::Bsp));
        let released = DigestKind::Released { included: 0b11, closed: false };
        for digest in [
            digest(0, 1, 1, PARKED),
            digest(1, 1, 2, ANSWERED),
            digest(1, 1, 2, released),
            digest(2, 1, 5, DigestKind::Late),
            digest(0, 2, 6, PARKED),
            digest(1, 2, 7, ANSWERED),
            digest(1, 2, 7, released),
        ] {
            observer.observe(&digest, &rule, 0b111);
        }
        let lates: Vec<_> = observer.samples().map(|s| (s.round, s.late_rate, s.lag)).collect();
        assert_eq!(lates, [(2, 1.0 / 3.0, 1), (1, 0.0, 1)]);
    }

    #[test]
    fn rounds_before_a_restart_are_not_looked_at_and_the_window_is_bounded() {
        let (mut observer, rule) = (Observer::default(), rule(Strategy::Bsp));
        let run = |observer: &mut Observer, round| {
            let released = DigestKind::Released { included: 1, closed: false };
            observer.observe(&digest(0, round, u64::from(round), released), &rule, 1)
        };
        assert!(run(&mut observer, 1));
        observer.restart(3);
        assert_eq!((run(&mut observer, 2), observer.samples().len()), (false, 0));
        for round in 3..100 {
            assert!(run(&mut observer, round));
        }
        assert_eq!((observer.samples().len(), observer.latest().map(|s| s.round)), (32, Some(99)));
    }
}
