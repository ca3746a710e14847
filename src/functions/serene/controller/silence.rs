//! Workers that are not heard of: what policies look at, and what the log is told where no policy does.

use super::{Condition, Controller, Event, Metric};
use crate::dataplane::Nanos;
use crate::functions::serene::ALIVE_NS;

/// A worker that is behind and silent for so long is worth a line in the log.
pub(super) const SILENCE_NS: Nanos = 5_000_000_000;

impl Controller {
    /// Tells, once, of each worker that has long been silent while others are ahead of it, and when it is heard of again.
    pub(super) fn tell_of_silence(&mut self, now: Nanos) {
        for worker in 0..self.job.members.len() as u8 {
            let Some(silent_ns) = self.silence(now, worker) else { continue };
            let (bit, silent) = (1 << (worker & 31), silent_ns >= SILENCE_NS);
            if silent && self.silent & bit == 0 && self.is_behind(worker) {
                self.silent |= bit;
                self.say(Event::Silent { worker, silent_ns });
            } else if !silent && self.silent & bit != 0 {
                self.silent &= !bit;
                self.say(Event::Heard { worker });
            }
        }
        self.silent &= self.wanted.members;
    }

    /// When a silence becomes long that nobody was told of.
    pub(super) fn next_long_silence(&self) -> Option<Nanos> {
        let untold = self.silences(Nanos::MAX).filter(|(worker, _)| self.silent >> (worker & 31) & 1 == 0);
        let behind = untold.filter(|(worker, _)| self.is_behind(*worker));
        behind.map(|(_, since)| (Nanos::MAX - since).saturating_add(SILENCE_NS)).min()
    }

    fn is_behind(&self, worker: u8) -> bool {
        self.observer.clock(worker) < self.max_round
    }

    /// Members that have been heard of, and how long ago.
    pub(super) fn silences(&self, now: Nanos) -> impl Iterator<Item = (u8, Nanos)> {
        (0..self.job.members.len() as u8).filter_map(move |worker| Some((worker, self.silence(now, worker)?)))
    }

    fn silence(&self, now: Nanos, worker: u8) -> Option<Nanos> {
        let live = self.wanted.members >> (worker & 31) & 1 != 0;
        self.observer.heard_at(worker).filter(|_| live).map(|heard_at| now.saturating_sub(heard_at))
    }

    /// When to look for silence next. One that nothing could be done about is looked at again a while later.
    pub(super) fn next_silence(&self) -> Option<Nanos> {
        let heard_at = self.silences(Nanos::MAX).map(|(_, since)| Nanos::MAX - since).min()?;
        let thresholds = self.job.policies.iter().filter_map(|policy| least_silence(&policy.when));
        let at = thresholds.map(|ns| heard_at.saturating_add(ns as Nanos + 1)).min()?;
        Some(at.max(self.silence_judged_at.map_or(0, |judged_at| judged_at + ALIVE_NS)))
    }
}

/// The least silence that a condition looks for.
fn least_silence(condition: &Condition) -> Option<f64> {
    match condition {
        Condition::Compare(comparison) => (comparison.metric == Metric::Silent).then_some(comparison.value),
        Condition::All(conditions) | Condition::Any(conditions) => {
            conditions.iter().filter_map(least_silence).min_by(f64::total_cmp)
        }
    }
}
