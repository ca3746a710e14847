//! How much the log takes: a burst at once, then so many lines a second. What flaps shall be seen without filling the disk.

use crate::dataplane::Nanos;

/// Lines at once.
const BURST: u32 = 64;
/// A further line each.
const REFILL_NS: Nanos = 100_000_000;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimit {
    tokens: u32,
    refilled_at: Nanos,
    suppressed: u64,
}

/// Whether a line may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// After so many that were not.
    Yes {
        /// Since the last one that was.
        suppressed: u64,
    },
    /// It counts as suppressed.
    No,
}

impl Default for LogLimit {
    fn default() -> Self {
        LogLimit { tokens: BURST, refilled_at: 0, suppressed: 0 }
    }
}

impl LogLimit {
    /// Asks for one line.
    pub(super) fn admit(&mut self, now: Nanos) -> Admitted {
        let new = now.saturating_sub(self.refilled_at) / REFILL_NS;
        if new > 0 {
            self.tokens = u32::try_from(new).unwrap_or(u32::MAX).saturating_add(self.tokens).min(BURST);
            self.refilled_at += new * REFILL_NS;
        }
        if self.tokens == 0 {
            self.suppressed += 1;
            return Admitted::No;
        }
        self.tokens -= 1;
        Admitted::Yes { suppressed: std::mem::take(&mut self.suppressed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_and_then_ten_lines_a_second_with_the_number_of_those_left_out() {
        let mut limit = LogLimit::default();
        let start = 1_000_000_000_000;
        let written = (0..1000).filter(|_| limit.admit(start) != Admitted::No).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(limit.admit(start + REFILL_NS - 1), Admitted::No);
        assert_eq!(limit.admit(start + REFILL_NS), Admitted::Yes { suppressed: 1000 - u64::from(BURST) + 1 });
        assert_eq!(limit.admit(start + REFILL_NS), Admitted::No);
    }
}
