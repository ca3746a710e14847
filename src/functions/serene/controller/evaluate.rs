//! Policies against what was observed.

use super::{Action, Comparison, Condition, Metric};
use super::{Cause, Controller, Event, Target};
use crate::dataplane::Nanos;
use crate::functions::serene::Strategy;

impl Controller {
    /// Does what the first policy says that matches and would change something.
    pub(super) fn judge(&mut self, now: Nanos) {
        let silence = self.next_silence().is_some_and(|at| at <= now);
        if silence {
            self.silence_judged_at = Some(now);
        }
        if !std::mem::take(&mut self.unjudged) && !silence {
            return;
        }
        for number in 0..self.job.policies.len() {
            let Some((action, silent)) = self.matches(now, number) else { continue };
            if self.act(now, number, action, silent) {
                return;
            }
        }
    }

    /// Whether a policy has its turn: its action, and the worker that its condition found silent.
    fn matches(&self, now: Nanos, number: usize) -> Option<(Action, Option<u8>)> {
        let policy = self.job.policies.get(number)?;
        let cooled = self.cooled_at.get(number).is_none_or(|round| self.max_round >= *round);
        let within = policy.within.is_none_or(|name| name == self.in_force.strategy.name());
        let mut silent = None;
        let holds = cooled && within && self.holds(now, &policy.when, &mut silent);
        holds.then_some((policy.then, silent))
    }

    fn holds(&self, now: Nanos, condition: &Condition, silent: &mut Option<u8>) -> bool {
        match condition {
            Condition::Compare(comparison) if comparison.metric == Metric::Silent => {
                let longest = self.silences(now).max_by_key(|(_, silent_ns)| *silent_ns);
                let found = longest.filter(|(_, ns)| comparison.relation.holds(*ns as f64, comparison.value));
                *silent = found.map(|(worker, _)| worker).or(*silent);
                found.is_some()
            }
            Condition::Compare(Comparison { metric, relation, value, rounds }) => {
                // Rounds around a swap say nothing about either strategy.
                let (rounds, samples) = (*rounds as usize, self.observer.samples());
                self.swap.is_none()
                    && samples.len() >= rounds.max(1)
                    && samples.take(rounds.max(1)).all(|s| s.get(*metric).is_some_and(|it| relation.holds(it, *value)))
            }
            Condition::All(conditions) => conditions.iter().all(|condition| self.holds(now, condition, silent)),
            Condition::Any(conditions) => conditions.iter().any(|condition| self.holds(now, condition, silent)),
        }
    }

    /// Says whether that was something to do.
    fn act(&mut self, now: Nanos, number: usize, action: Action, silent: Option<u8>) -> bool {
        let strategy = match action {
            Action::Hold => return true,
            Action::DropMember(named) => {
                let Some(worker) = named.or(silent) else { return false };
                let silent_ns = self.silences(now).find(|(other, _)| silent == Some(*other)).map(|(_, ns)| ns);
                let event = Event::Dropped { worker, silent_ns };
                return self.cool(number, |this| this.without(now, worker, Cause::Dropped(worker), event));
            }
            Action::Swap(strategy) => strategy,
            Action::SspWithin { low, high } => {
                let lag = self.observer.latest().map_or(0, |sample| sample.lag).min(u8::MAX.into()) as u8;
                Strategy::Ssp { slack: lag.clamp(low, high.max(low)) }
            }
        };
        if self.wanted.strategy == strategy {
            return false;
        }
        self.cool(number, |this| {
            this.want(now, Target { strategy, ..this.wanted }, Cause::Policy(number));
            true
        })
    }

    /// Does something by a policy, which then has to wait.
    fn cool(&mut self, number: usize, act: impl FnOnce(&mut Self) -> bool) -> bool {
        let done = act(self);
        if let (true, Some(cooled_at)) = (done, self.cooled_at.get_mut(number)) {
            let wait = self.job.policies.get(number).map_or(0, |policy| policy.cooldown_rounds);
            *cooled_at = self.max_round.saturating_add(wait);
        }
        done
    }
}
