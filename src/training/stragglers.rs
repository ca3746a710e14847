//! How long a worker's computation takes: a mean, and a pattern of who is slower and when.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use serde::{Deserialize, Serialize};

use crate::dataplane::Nanos;

/// Who is slower, and when. A pure function of [`Moment`] and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stragglers {
    /// Nobody.
    None,
    /// Any worker, now and then: with `probability` an iteration takes longer by `least` to `most` times the mean. Serene's
    /// `slow_worker`: 0.15, 0.5, 2.0.
    Transient {
        /// 0..=1, of each iteration.
        probability: f64,
        /// Least extra time, in means.
        least: f64,
        /// Most extra time, in means.
        most: f64,
    },
    /// Worker 0, always.
    Persistent {
        /// Its iterations take so many means.
        factor: f64,
    },
    /// Worker 0, from one time to another.
    Phase {
        /// Its iterations take so many means.
        factor: f64,
        /// Since the start of the run.
        from_ns: Nanos,
        /// The first moment at which it is as fast as the others again.
        to_ns: Nanos,
    },
    /// Worker 0 stops once, and goes on.
    Pause {
        /// Since the start of the run.
        from_ns: Nanos,
        /// How long.
        for_ns: Nanos,
    },
}

/// Start of an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Whose.
    pub worker: u32,
    /// Its number on that worker.
    pub iteration: u64,
    /// When, since the start of the run.
    pub since_start_ns: Nanos,
}

impl Stragglers {
    /// As Serene's client has it (p 0.15, 0.5 to 2 means more).
    pub const SERENE: Self = Stragglers::Transient { probability: 0.15, least: 0.5, most: 2.0 };

    /// What the iteration takes when one takes `mean_ns` on a healthy worker.
    pub fn compute_ns(&self, moment: Moment, mean_ns: Nanos, seed: u64) -> Nanos {
        let Moment { worker, iteration, since_start_ns } = moment;
        let means = |factor: f64| (mean_ns as f64 * factor) as Nanos;
        match *self {
            Stragglers::Transient { probability, least, most } => {
                let [coin, share] = draw(seed, worker, iteration);
                if coin < probability { mean_ns + means(least + share * (most - least)) } else { mean_ns }
            }
            Stragglers::Persistent { factor } if worker == 0 => means(factor),
            Stragglers::Phase { factor, from_ns, to_ns }
                if worker == 0 && (from_ns..to_ns).contains(&since_start_ns) =>
            {
                means(factor)
            }
            Stragglers::Pause { from_ns, for_ns } if worker == 0 => {
                // Stopped from one moment to another, wherever the iteration began.
                let (end, stopped) = (since_start_ns + mean_ns, from_ns + for_ns);
                if end > from_ns && since_start_ns < stopped {
                    mean_ns + stopped - since_start_ns.max(from_ns)
                } else {
                    mean_ns
                }
            }
            _ => mean_ns,
        }
    }

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Stragglers::None => "none",
            Stragglers::Transient { .. } => "transient",
            Stragglers::Persistent { .. } => "persistent",
            Stragglers::Phase { .. } => "phase",
            Stragglers::Pause { .. } => "pause",
        }
    }
}

/// Two numbers in 0..1 that belong to this iteration of this worker.
fn draw(seed: u64, worker: u32, iteration: u64) -> [f64; 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((1 << 32) + u64::from(worker)); // apart from those of the samplers
    rng.set_word_pos(u128::from(iteration) * 4);
    let unit = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
    [unit(rng.next_u64()), unit(rng.next_u64())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Nanos = 20_000_000;
    const SECOND: Nanos = 1_000_000_000;

    fn at(worker: u32, iteration: u64, since_start_ns: Nanos) -> Moment {
        Moment { worker, iteration, since_start_ns }
    }

    #[test]
    fn transient_stragglers_come_at_their_rate_with_their_mean_on_every_worker() {
        for worker in [0, 3] {
            let extra: Vec<f64> = (0..20_000)
                .map(|i| Stragglers::SERENE.compute_ns(at(worker, i, 0), MEAN, 1) - MEAN)
                .filter(|extra| *extra > 0)
                .map(|extra| extra as f64 / MEAN as f64)
                .collect();
            let rate = extra.len() as f64 / 20_000.0;
            let mean = extra.iter().sum::<f64>() / extra.len() as f64;
            assert!((rate - 0.15).abs() < 0.01, "rate {rate}");
            assert!((mean - 1.25).abs() < 0.03, "mean extra {mean}");
            assert!(extra.iter().all(|extra| (0.5..=2.0).contains(extra)));
        }
    }

    #[test]
    fn a_draw_belongs_to_seed_worker_and_iteration_and_not_to_the_time() {
        let times = |seed, worker, now| -> Vec<Nanos> {
            (0..100).map(|i| Stragglers::SERENE.compute_ns(at(worker, i, now), MEAN, seed)).collect()
        };
        assert_eq!(times(1, 0, 0), times(1, 0, SECOND));
        assert_ne!(times(1, 0, 0), times(1, 1, 0));
        assert_ne!(times(1, 0, 0), times(2, 0, 0));
    }

    #[test]
    fn worker_0_alone_is_slow_always_or_in_its_phase() {
        let persistent = Stragglers::Persistent { factor: 3.0 };
        assert_eq!(persistent.compute_ns(at(0, 9, 0), MEAN, 1), 3 * MEAN);
        assert_eq!(persistent.compute_ns(at(1, 9, 0), MEAN, 1), MEAN);
        let phase = Stragglers::Phase { factor: 4.0, from_ns: 4 * SECOND, to_ns: 9 * SECOND };
        let times = [4 * SECOND - 1, 4 * SECOND, 9 * SECOND - 1, 9 * SECOND];
        assert_eq!(times.map(|now| phase.compute_ns(at(0, 0, now), MEAN, 1) / MEAN), [1, 4, 4, 1]);
        assert_eq!(times.map(|now| phase.compute_ns(at(2, 0, now), MEAN, 1) / MEAN), [1; 4]);
    }

    #[test]
    fn a_pause_ends_at_one_moment_and_delays_one_iteration() {
        let pause = Stragglers::Pause { from_ns: 2 * SECOND, for_ns: 5 * SECOND };
        let (mut now, mut delayed) = (0, Vec::new());
        for iteration in 0..500 {
            let takes = pause.compute_ns(at(0, iteration, now), MEAN, 1);
            if takes != MEAN {
                delayed.push((now, takes));
            }
            now += takes;
        }
        assert_eq!(delayed, [(2 * SECOND, MEAN + 5 * SECOND)]);
        assert_eq!(pause.compute_ns(at(0, 0, 2 * SECOND - 1), MEAN, 1), MEAN + 5 * SECOND);
        assert_eq!(pause.compute_ns(at(1, 0, 2 * SECOND), MEAN, 1), MEAN);
    }
}
