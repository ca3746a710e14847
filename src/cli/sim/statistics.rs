//! Figures over paired seeds: means, medians, ranges, and how sure a change is. Pure.
//!
//! Value number i of an arm and of base come from the same seed, so they share start times, paths and RED's random
//! numbers; resampling keeps them together. What is left is what the arm changed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;
/// The same for every interval, so that a result does not depend on what was computed before it.
const SEED: u64 = 1;

/// A sample in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Middle value; the mean of the two middle ones of an even number.
    pub median: f64,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

/// Of a ratio of means, in per cent: `100 (mean(arm) / mean(base) - 1)`; negative is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Change {
    /// Of the sample.
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub ci_low: f64,
    /// Upper end.
    pub ci_high: f64,
}

impl Change {
    /// Half of the interval's width: how far chance alone may move the figure.
    pub fn half_width(&self) -> f64 {
        (self.ci_high - self.ci_low) / 2.0
    }
}

/// Mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Summarises a sample; zeros of nothing.
pub fn summarise(values: &[f64]) -> Summary {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Summary::default() };
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Summary { mean: mean(values), median, min, max }
}

/// The change from `base` to `arm`, both by seed, with its 95 % bootstrap interval (percentiles over resampled seeds).
/// Zeros where there is nothing to compare.
pub fn change(arm: &[f64], base: &[f64]) -> Change {
    let seeds = arm.len().min(base.len());
    let (arm, base) = (&arm[..seeds], &base[..seeds]);
    let percent = |arm: f64, base: f64| if base > 0.0 { 100.0 * (arm / base - 1.0) } else { 0.0 };
    let point = percent(arm.iter().sum(), base.iter().sum());
    if seeds < 2 {
        return Change { mean: point, ci_low: point, ci_high: point };
    }
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut resampled: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let (mut of_arm, mut of_base) = (0.0, 0.0);
            for _ in 0..seeds {
                let seed = ((u64::from(rng.next_u32()) * seeds as u64) >> 32) as usize;
                of_arm += arm[seed];
                of_base += base[seed];
            }
            percent(of_arm, of_base)
        })
        .collect();
    resampled.sort_by(f64::total_cmp);
    let tail = RESAMPLES / 40;
    // Where all seeds agree, sums in another order may differ from the point in the last digit.
    let (low, high) = (resampled[tail].min(point), resampled[RESAMPLES - 1 - tail].max(point));
    Change { mean: point, ci_low: low, ci_high: high }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let summary = summarise(&[4.0, 1.0, 2.0, 9.0]);
        assert_eq!(summary, Summary { mean: 4.0, median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(summarise(&[]), Summary::default());
    }

    #[test]
    fn a_change_is_the_ratio_of_means_and_not_the_mean_of_ratios() {
        let change = change(&[50.0, 300.0], &[100.0, 300.0]);
        assert_eq!(change.mean, -12.5);
        assert_eq!((change.ci_low, change.ci_high), (-50.0, 0.0));
    }

    #[test]
    fn seeds_that_agree_on_the_ratio_leave_no_doubt_however_much_they_differ_themselves() {
        let base = [10.0, 1000.0, 77.0, 3.0];
        let arm = base.map(|ms| ms * 0.5);
        assert!(change(&arm, &base).half_width() < 1e-9);
    }

    #[test]
    fn an_interval_covers_the_truth_about_95_times_in_100() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut uniform = || f64::from(rng.next_u32()) / f64::from(u32::MAX);
        let covered = (0..400)
            .filter(|_| {
                let base: Vec<f64> = (0..40).map(|_| 90.0 + 20.0 * uniform()).collect();
                let arm: Vec<f64> = base.iter().map(|ms| 0.8 * ms + 10.0 * (uniform() - 0.5)).collect();
                let change = change(&arm, &base);
                (change.ci_low..=change.ci_high).contains(&-20.0)
            })
            .count();
        assert!((360..=396).contains(&covered), "{covered} of 400");
    }

    fn paired() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((1.0..1e6f64, 1.0..1e6f64), 1..40)
    }

    proptest! {
        #[test]
        fn an_interval_contains_its_point(seeds in paired()) {
            let (arm, base): (Vec<f64>, Vec<f64>) = seeds.into_iter().unzip();
            let change = change(&arm, &base);
            prop_assert!(change.ci_low <= change.mean && change.mean <= change.ci_high);
        }

        #[test]
        fn an_arm_that_changes_nothing_gives_exactly_zero(seeds in paired()) {
            let base: Vec<f64> = seeds.into_iter().map(|(base, _)| base).collect();
            prop_assert_eq!(change(&base, &base), Change::default());
        }

        #[test]
        fn the_point_does_not_depend_on_the_order_of_the_seeds(seeds in paired(), turn in 0usize..40) {
            let (arm, base): (Vec<f64>, Vec<f64>) = seeds.iter().copied().unzip();
            let mut turned = seeds;
            let turn = turn % turned.len();
            turned.rotate_left(turn);
            let (turned_arm, turned_base): (Vec<f64>, Vec<f64>) = turned.into_iter().unzip();
            let (one, other) = (change(&arm, &base).mean, change(&turned_arm, &turned_base).mean);
            prop_assert!((one - other).abs() <= 1e-9 * one.abs().max(1.0), "{} {}", one, other);
        }

        #[test]
        fn a_mean_lies_within_its_range(values in prop::collection::vec(0.0..1e9f64, 1..40)) {
            let summary = summarise(&values);
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
            prop_assert!(summary.min - 1e-3 <= summary.mean && summary.mean <= summary.max + 1e-3);
        }
    }
}
