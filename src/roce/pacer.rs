//! Pacing: when may the next packet leave.

use crate::dataplane::Nanos;

/// Spaces packets at a rate. Keeps its clock in picoseconds, so that rounding does not bend a 400 Gbit/s line.
///
/// A driver that comes late may make up for a few packets' worth of time; what is beyond is lost. Idle time earns nothing:
/// whoever gives an idle sender work calls [`Pacer::wake`].
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    next_ps: u64,
}

impl Pacer {
    /// From when on the next packet may leave.
    pub fn next(&self) -> Nanos {
        self.next_ps.div_ceil(1000)
    }

    /// Work has come to an idle sender: time before `now` earns no credit.
    pub fn wake(&mut self, now: Nanos) {
        self.next_ps = self.next_ps.max(now.saturating_mul(1000));
    }

    /// `bytes` leave now at `rate_bps`; `credit` packets of this size may be made up for.
    pub fn on_sent(&mut self, now: Nanos, bytes: u64, rate_bps: f64, credit: u32) {
        let gap_ps = (bytes as f64 * 8e12 / rate_bps) as u64;
        let earliest = now.saturating_mul(1000).saturating_sub(gap_ps.saturating_mul(u64::from(credit)));
        self.next_ps = self.next_ps.max(earliest).saturating_add(gap_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_rate_without_rounding_drift() {
        let mut pacer = Pacer::default();
        for _ in 0..1_000_000 {
            let now = pacer.next();
            pacer.on_sent(now, 4170, 400e9, 4);
        }
        assert_eq!(pacer.next(), 83_400_000);
    }

    #[test]
    fn a_late_driver_makes_up_for_the_credit_and_no_more() {
        let mut pacer = Pacer::default();
        pacer.on_sent(0, 1000, 8e9, 4); // one packet a microsecond
        let mut burst = 0;
        while pacer.next() <= 100_000 {
            pacer.on_sent(100_000, 1000, 8e9, 4);
            burst += 1;
        }
        assert_eq!(burst, 5, "four made up for and the one that is due");
    }

    #[test]
    fn idle_time_earns_nothing() {
        let mut pacer = Pacer::default();
        pacer.on_sent(0, 1000, 8e9, 4);
        pacer.wake(100_000);
        pacer.on_sent(100_000, 1000, 8e9, 4);
        assert_eq!(pacer.next(), 101_000);
    }
}
