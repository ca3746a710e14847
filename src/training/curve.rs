//! An accuracy curve, and when it reaches a target.

use crate::dataplane::Nanos;

/// One evaluation of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When the model was what was evaluated.
    pub at_ns: Nanos,
    /// Share of the test samples in the right class, 0..=1.
    pub accuracy: f64,
}

/// Evaluations in the order of time, smoothed: a single evaluation between two steps of SGD is noisy, and the first of many
/// noisy values to touch a target comes too early.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve(Vec<Point>);

impl Curve {
    /// Every value becomes the mean of the last `window` ones. The time stays that of the last, so a crossing is told late
    /// rather than early, and for every curve alike.
    pub fn smoothed(points: &[Point], window: usize) -> Self {
        let window = window.max(1);
        let mean = |last: usize| {
            let from = &points[(last + 1).saturating_sub(window)..=last];
            from.iter().map(|point| point.accuracy).sum::<f64>() / from.len() as f64
        };
        Curve(points.iter().enumerate().map(|(i, point)| Point { accuracy: mean(i), ..*point }).collect())
    }

    /// When it first is at `target`, between two evaluations in proportion; `None`: never.
    pub fn reaches(&self, target: f64) -> Option<Nanos> {
        let at = self.0.iter().position(|point| point.accuracy >= target)?;
        let after = self.0.get(at)?;
        let Some(before) = at.checked_sub(1).and_then(|before| self.0.get(before)) else { return Some(after.at_ns) };
        let share = (target - before.accuracy) / (after.accuracy - before.accuracy);
        Some(before.at_ns + ((after.at_ns - before.at_ns) as f64 * share).round() as Nanos)
    }

    /// Accuracy at a moment: the last value not after it.
    pub fn at(&self, moment: Nanos) -> Option<f64> {
        self.0.iter().take_while(|point| point.at_ns <= moment).last().map(|point| point.accuracy)
    }

    /// The points.
    pub fn points(&self) -> &[Point] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(accuracies: &[f64]) -> Vec<Point> {
        accuracies.iter().zip(1..).map(|(&accuracy, n)| Point { at_ns: n * 100, accuracy }).collect()
    }

    #[test]
    fn one_lucky_evaluation_is_no_crossing() {
        let noisy = points(&[0.5, 0.5, 0.9, 0.5, 0.6, 0.8, 0.8, 0.8, 0.8]);
        assert_eq!(Curve::smoothed(&noisy, 1).reaches(0.79), Some(273));
        assert_eq!(Curve::smoothed(&noisy, 4).reaches(0.79), Some(880));
        assert_eq!(Curve::smoothed(&noisy, 4).reaches(0.81), None);
    }

    #[test]
    fn a_crossing_lies_between_evaluations_in_proportion() {
        let curve = Curve::smoothed(&points(&[0.2, 0.4]), 1);
        assert_eq!(curve.reaches(0.3), Some(150));
        assert_eq!(curve.reaches(0.1), Some(100));
        assert_eq!((curve.at(99), curve.at(199), curve.at(200)), (None, Some(0.2), Some(0.4)));
    }
}
