//! Tuning of the blind arm: the coin with which it marks as often as the arm it is paired with. Pure.

use serde::{Deserialize, Serialize};

/// How near the marks of both arms must come.
const TOLERANCE: f64 = 0.10;
/// Runs that a seed may take; the nearest counts if none comes near enough.
const TRIES: u32 = 8;
/// A coin below this comes up never, for all we can simulate.
const LEAST_COIN: f64 = 1e-7;

/// How well blind matches its partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Match {
    /// Extra marks of the partner.
    pub target: u64,
    /// Of blind.
    pub marks: u64,
    /// Probability of heads.
    pub coin: f64,
    /// Runs that it took.
    pub tries: u32,
}

impl Match {
    /// Whether both mark as often within 10 %.
    pub fn holds(&self) -> bool {
        self.marks.abs_diff(self.target) as f64 <= TOLERANCE * self.target as f64
    }
}

/// Looks for the coin with which `run` sets `target` extra marks, `first` being a guess. The coin is scaled by what is
/// missing as long as that leads inside of what is known to be too little and too much, which are halved where it does not:
/// more marks slow flows down, so that the queue is empty more often and the same coin gives fewer.
///
/// # Errors
/// What `run` says.
pub fn tune<T, E>(target: u64, first: f64, mut run: impl FnMut(f64) -> Result<(u64, T), E>) -> Result<(Match, T), E> {
    let (mut too_little, mut too_much) = (0.0, 1.0);
    let mut coin = if target == 0 { 0.0 } else { first.clamp(LEAST_COIN, 1.0) };
    let mut tries = 1;
    let (marks, value) = run(coin)?;
    let mut best = (Match { target, marks, coin, tries }, value);
    let mut last = marks;
    while !best.0.holds() && tries < TRIES {
        if last < target {
            too_little = coin;
        } else {
            too_much = coin;
        }
        if last < target && coin >= 1.0 {
            break; // it marks whatever may be marked
        }
        let scaled = (coin * target as f64 / last.max(1) as f64).min(1.0);
        let inside = too_little < scaled && (scaled < too_much || (scaled == 1.0 && too_much == 1.0));
        coin = if inside { scaled } else { (f64::max(too_little, LEAST_COIN) * too_much).sqrt() };
        tries += 1;
        let (marks, value) = run(coin)?;
        last = marks;
        if marks.abs_diff(target) < best.0.marks.abs_diff(target) {
            best = (Match { target, marks, coin, tries }, value);
        }
    }
    best.0.tries = tries;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn tuned(target: u64, first: f64, marks: impl Fn(f64) -> f64) -> Match {
        let run = |coin: f64| Ok::<_, Infallible>((marks(coin) as u64, ()));
        tune(target, first, run).map(|(found, ())| found).unwrap_or_default()
    }

    #[test]
    fn a_first_guess_that_is_right_takes_one_run() {
        let found = tuned(1000, 0.1, |coin| coin * 10_500.0);
        assert!(found.holds());
        assert_eq!((found.tries, found.marks), (1, 1050));
    }

    #[test]
    fn marks_that_saturate_or_barely_come_are_matched_within_the_tries() {
        for marks in [
            |coin: f64| 5_000.0 * coin / (coin + 0.05), // fewer and fewer for each coin
            |coin: f64| 20_000.0 * coin * coin,         // more and more
            |coin: f64| 3_000.0 * coin.sqrt(),          // many from a small coin
            |coin: f64| if coin < 0.2 { 10.0 } else { 950.0 + coin }, // a cliff
        ] {
            for first in [1e-4, 0.03, 0.5, 1.0] {
                let found = tuned(1000, first, marks);
                assert!(found.holds(), "{first}: {found:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_reached_is_reported_as_it_is() {
        let found = tuned(1000, 0.5, |coin| 100.0 * coin);
        assert!(!found.holds());
        assert_eq!((found.marks, found.coin), (100, 1.0));
        let found = tuned(1000, 0.5, |_| 3000.0);
        assert!(!found.holds());
        assert_eq!(found.tries, TRIES);
    }

    #[test]
    fn a_partner_without_marks_is_matched_by_none() {
        let found = tuned(0, 0.5, |coin| 1000.0 * coin);
        assert!(found.holds());
        assert_eq!((found.marks, found.coin), (0, 0.0));
    }
}
