//! DCQCN as that simulator has it ("mlx"): rates in whole bit/s, three timers a queue pair, no byte counter, and a target
//! rate that is clamped only where the parameters say so. The byte counter of [`Parameters`] is ignored, and of its two
//! intervals between cuts the longer one counts.
//!
//! Timers run only while a queue pair lives and nothing but packets and windows looks at what they do, so they are
//! evaluated when it is looked at: equal results, and no events.

use std::cmp::Ordering;

use crate::dataplane::Nanos;
use crate::roce::dcqcn::Parameters;

/// The rate of one queue pair.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    line_bps: u64,
    current_bps: u64,
    target_bps: u64,
    alpha: f64,
    /// Timers that have been started fire next at; `None` until the first flag.
    timers: Option<Timers>,
    /// Increases since the last cut.
    stage: u32,
}

#[derive(Clone, Debug)]
struct Timers {
    alpha_at: Nanos,
    decrease_at: Nanos,
    /// [`Nanos::MAX`] until the first cut.
    increase_at: Nanos,
    /// A flag came since the last alpha timer.
    alpha_flag: bool,
    /// A flag came since the last decrease timer.
    decrease_flag: bool,
}

impl Rate {
    /// A new queue pair: line rate.
    pub(super) fn new(line_bps: u64) -> Self {
        Rate { line_bps, current_bps: line_bps, target_bps: line_bps, alpha: 1.0, timers: None, stage: 0 }
    }

    /// The rate in bit/s at `now`, which never goes back.
    #[inline]
    pub(super) fn at(&mut self, now: Nanos, parameters: &Parameters) -> u64 {
        self.catch_up(now, parameters);
        self.current_bps
    }

    /// An acknowledgement said that its packet was marked.
    pub(super) fn flag(&mut self, now: Nanos, parameters: &Parameters) {
        self.catch_up(now, parameters);
        match &mut self.timers {
            Some(timers) => {
                timers.alpha_flag = true;
                timers.decrease_flag = true;
            }
            None => {
                self.timers = Some(Timers {
                    alpha_at: now + parameters.alpha_timer_ns,
                    decrease_at: now + decrease_interval_ns(parameters) + 1,
                    increase_at: Nanos::MAX,
                    alpha_flag: false,
                    decrease_flag: true,
                });
                self.target_bps = self.current_bps;
            }
        }
    }

    /// Runs all timers up to `now`. At the same time the one that was started first fires first: increase, then decrease.
    #[inline]
    fn catch_up(&mut self, now: Nanos, parameters: &Parameters) {
        while let Some(Timers { alpha_at, decrease_at, increase_at, .. }) = self.timers {
            let next = alpha_at.min(decrease_at).min(increase_at);
            if next > now {
                break;
            }
            if next == alpha_at {
                self.update_alpha(parameters);
            } else if next == increase_at {
                self.increase(parameters);
            } else {
                self.decrease(parameters);
            }
        }
    }

    fn update_alpha(&mut self, parameters: &Parameters) {
        let Some(timers) = &mut self.timers else { return };
        let flag = if std::mem::take(&mut timers.alpha_flag) { parameters.g } else { 0.0 };
        self.alpha = (1.0 - parameters.g) * self.alpha + flag;
        timers.alpha_at += parameters.alpha_timer_ns;
    }

    fn decrease(&mut self, parameters: &Parameters) {
        let Some(timers) = &mut self.timers else { return };
        let at = timers.decrease_at;
        timers.decrease_at += decrease_interval_ns(parameters);
        if !std::mem::take(&mut timers.decrease_flag) {
            return;
        }
        timers.increase_at = at + parameters.rate_timer_ns;
        if parameters.clamp_target || self.stage != 0 {
            self.target_bps = self.current_bps;
        }
        let cut_bps = (self.current_bps as f64 * (1.0 - self.alpha / 2.0)) as u64;
        self.current_bps = cut_bps.max(parameters.min_rate_bps as u64);
        self.stage = 0;
    }

    fn increase(&mut self, parameters: &Parameters) {
        let Some(timers) = &mut self.timers else { return };
        timers.increase_at += parameters.rate_timer_ns;
        let step_bps = match self.stage.cmp(&parameters.fast_recovery_stages) {
            Ordering::Less => 0.0,
            Ordering::Equal => parameters.additive_bps,
            Ordering::Greater => parameters.hyper_bps,
        };
        self.target_bps = (self.target_bps + step_bps as u64).min(self.line_bps);
        self.current_bps = self.current_bps / 2 + self.target_bps / 2;
        self.stage += 1;
    }
}

/// At most one cut in this time.
fn decrease_interval_ns(parameters: &Parameters) -> Nanos {
    parameters.cut_interval_ns.max(parameters.cnp_interval_ns).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;
    const MINIMUM_BPS: u64 = 100_000_000;

    #[test]
    fn the_first_flag_cuts_one_decrease_interval_and_a_nanosecond_later() {
        // First flag at 83793 ns, cut at 87794 ns to 50.7767 Gbit/s: seen in a trace of ASTRA-sim.
        let (mut rate, parameters) = (Rate::new(100 * GBIT), Parameters::HPCC900);
        rate.flag(83_793, &parameters);
        assert_eq!(rate.at(87_793, &parameters), 100 * GBIT);
        let alpha = (255.0f64 / 256.0).powi(4);
        let cut = (100e9 * (1.0 - alpha / 2.0)) as u64;
        let rounded = (cut + 50_000) / 100_000;
        assert_eq!((rate.at(87_794, &parameters), rounded), (cut, 507_767));
    }

    #[test]
    fn cuts_in_a_row_go_to_the_floor_and_the_first_timer_jumps_to_half_of_the_old_target() {
        let (mut rate, parameters) = (Rate::new(100 * GBIT), Parameters::HPCC900);
        for us in 0..104 {
            rate.flag(us * 1000, &parameters);
        }
        assert_eq!(rate.at(104_001, &parameters), MINIMUM_BPS);
        assert_eq!(rate.at(104_001 + 900_000 - 1, &parameters), MINIMUM_BPS);
        assert_eq!(rate.at(104_001 + 900_000, &parameters), 50 * GBIT + MINIMUM_BPS / 2);
        assert_eq!(rate.at(104_001 + 1_800_000, &parameters), 75 * GBIT + MINIMUM_BPS / 4);
    }

    #[test]
    fn looking_often_or_once_makes_no_difference() {
        let (mut often, mut once, parameters) = (Rate::new(100 * GBIT), Rate::new(100 * GBIT), Parameters::HPCC900);
        for at in (0..3_000_000).step_by(37) {
            if at % 911 < 37 && at < 1_500_000 {
                often.flag(at, &parameters);
                once.flag(at, &parameters);
            }
            often.at(at, &parameters);
        }
        assert_eq!(often.at(3_000_000, &parameters), once.at(3_000_000, &parameters));
    }
}
