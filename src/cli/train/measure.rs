//! What a run's record says: waiting, progress, and whether the machine could keep the schedule.

use super::coordinator::{Record, WorkerRecord};
use super::order::Round;
use crate::dataplane::Nanos;
use crate::training::Curve;

/// Evaluations that one point of a smoothed curve is the mean of.
pub const SMOOTHING: usize = 4;
/// A run whose computation is late by more than this share of the padding, once in a hundred rounds, measures the machine.
pub const MOST_OVERRUN: f64 = 0.10;

impl Record {
    /// Forgets what came after a moment.
    pub fn cut(&mut self, end_ns: Nanos) {
        let waited_before = |round: &Round| round.wait_ns.saturating_sub(round.done_ns.saturating_sub(end_ns));
        self.open_wait_ns += self.rounds().filter(|round| round.done_ns > end_ns).map(waited_before).sum::<Nanos>();
        self.workers.iter_mut().for_each(|worker| worker.rounds.retain(|round| round.done_ns <= end_ns));
        self.accuracy.retain(|point| point.at_ns <= end_ns);
        self.elapsed_ns = self.elapsed_ns.min(end_ns);
    }

    /// Every round of every worker.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.workers.iter().flat_map(|worker| &worker.rounds)
    }

    /// Last round that any worker completed.
    pub fn last_round(&self) -> u32 {
        self.rounds().map(|round| round.round).max().unwrap_or(0)
    }

    /// Time that all workers together spent waiting for others.
    pub fn wait_ns(&self) -> Nanos {
        self.rounds().map(|round| round.wait_ns).sum::<Nanos>() + self.open_wait_ns
    }

    /// The same with the transfer in it, as the published Serene experiments count it.
    pub fn exchange_ns(&self) -> Nanos {
        self.rounds().map(|round| round.wait_ns + round.transfer_ns).sum::<Nanos>() + self.open_wait_ns
    }

    /// Contributions that came too late for their round.
    pub fn late(&self) -> f64 {
        self.rounds().map(|round| f64::from(round.late)).sum()
    }

    /// Sums that differ from a single process's.
    pub fn wrong(&self) -> usize {
        self.rounds().filter(|round| round.wrong).count()
    }

    /// Packets sent again.
    pub fn retransmissions(&self) -> u64 {
        self.rounds().map(|round| u64::from(round.retransmissions)).sum()
    }

    /// The accuracy curve, smoothed.
    pub fn curve(&self) -> Curve {
        Curve::smoothed(&self.accuracy, SMOOTHING)
    }

    /// Gradients that are in the model, and when they came into it, in the order of time.
    pub fn contributions(&self) -> Vec<(Nanos, f64)> {
        let mut all: Vec<_> = self.workers.iter().flat_map(WorkerRecord::contributions).collect();
        all.sort_by_key(|(at_ns, _)| *at_ns);
        all
    }

    /// When so many gradients were in the model; `None`: there never were.
    pub fn when_contributed(&self, gradients: f64) -> Option<Nanos> {
        let mut sum = 0.0;
        self.contributions().into_iter().find_map(|(at_ns, count)| {
            sum += count;
            (sum >= gradients).then_some(at_ns)
        })
    }

    /// Where a run is, in a line, on the worker that evaluates: the last one.
    pub fn now(&self) -> String {
        let Some([.., before, last]) = self.workers.last().map(|worker| worker.rounds.as_slice()) else {
            return "waiting for the first rounds".into();
        };
        let accuracy = self.accuracy.last().map_or("-".into(), |point| format!("{:.1} %", 100.0 * point.accuracy));
        format!(
            "round {} took {:.1} ms, {:.1} of them waiting; rule {}; accuracy {accuracy}",
            last.round,
            last.done_ns.saturating_sub(before.done_ns) as f64 / 1e6,
            last.wait_ns as f64 / 1e6,
            last.rule_version
        )
    }

    /// The share of `padding_ns` by which computation ends late at the 99th percentile of all rounds.
    pub fn overrun_p99(&self, padding_ns: Nanos) -> f64 {
        percentile(self.rounds().map(|round| round.overrun_ns).collect(), 0.99) as f64 / padding_ns.max(1) as f64
    }
}

impl WorkerRecord {
    /// A contribution that was late and returned is counted in the round that it gets into; one that was dropped, never.
    fn contributions(&self) -> impl Iterator<Item = (Nanos, f64)> {
        let mut carried = 0.0;
        self.rounds.iter().map(move |round| {
            let pushed = 1.0 + carried;
            carried = pushed * f64::from(round.returned);
            (round.done_ns, pushed * f64::from(round.included))
        })
    }
}

/// Of values in any order; 0 of none.
pub fn percentile(mut values: Vec<Nanos>, share: f64) -> Nanos {
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(rounds: &[(f32, f32)]) -> WorkerRecord {
        let round = |(&(included, returned), n): (&(f32, f32), u64)| Round {
            done_ns: n * 10,
            included,
            late: 1.0 - included,
            returned,
            ..Round::default()
        };
        WorkerRecord { rounds: rounds.iter().zip(1..).map(round).collect(), summary: None }
    }

    #[test]
    fn a_returned_contribution_counts_once_in_the_round_it_gets_into_and_a_dropped_one_never() {
        let record = |rounds: &[(f32, f32)]| Record { workers: vec![worker(rounds)], ..Record::default() };
        let returned = record(&[(1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 0.0)]);
        assert_eq!(returned.contributions(), [(10, 1.0), (20, 0.0), (30, 0.0), (40, 3.0)]);
        assert_eq!(returned.when_contributed(2.0), Some(40));
        let dropped = record(&[(1.0, 0.0), (0.0, 0.0), (1.0, 0.0)]);
        assert_eq!((dropped.when_contributed(2.0), dropped.when_contributed(2.1)), (Some(30), None));
        assert_eq!(dropped.late(), 1.0);
    }

    #[test]
    fn of_a_round_that_ends_after_the_run_the_waiting_before_its_end_counts() {
        let round = |done_ns: Nanos, wait_ns: Nanos| Round { done_ns, wait_ns, ..Round::default() };
        let rounds = vec![round(50, 10), round(150, 90), round(180, 5)];
        let mut record = Record { workers: vec![WorkerRecord { rounds, summary: None }], ..Record::default() };
        record.cut(100);
        assert_eq!((record.last_round(), record.rounds().count(), record.wait_ns()), (0, 1, 10 + 40));
    }

    #[test]
    fn a_percentile_is_the_least_value_that_so_many_do_not_exceed() {
        let hundred: Vec<Nanos> = (1..=100).rev().collect();
        assert_eq!(percentile(hundred.clone(), 0.99), 99);
        assert_eq!(percentile(hundred, 0.5), 50);
        assert_eq!(percentile(vec![7], 0.99), 7);
        assert_eq!(percentile(vec![], 0.5), 0);
    }
}
