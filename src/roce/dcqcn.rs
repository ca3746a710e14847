//! DCQCN: the sender's reaction point and the receiver's notification point (Zhu et al., SIGCOMM 2015).
//!
//! Timers are evaluated when somebody looks, not when they fire: no event an alpha tick. Both halves owe the queue pair
//! one answer each: how fast may I send now, and is this CE mark worth a CNP.

use crate::dataplane::Nanos;

/// What a NIC is set to. Rates in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Weight of a new observation in alpha: `alpha = (1-g) alpha + g` on a CNP, `alpha = (1-g) alpha` without one.
    pub g: f64,
    /// Alpha decays once per this time without a CNP.
    pub alpha_timer_ns: Nanos,
    /// The rate rises once per this time.
    pub rate_timer_ns: Nanos,
    /// The rate also rises once per so many bytes sent; `None`: by time alone, and the first rise after fast recovery is
    /// additive, all later ones hyper (the ns-3 model's rule).
    pub byte_counter: Option<u64>,
    /// F: stages of fast recovery.
    pub fast_recovery_stages: u32,
    /// RAI.
    pub additive_bps: f64,
    /// RHAI.
    pub hyper_bps: f64,
    /// Cuts stop here.
    pub min_rate_bps: f64,
    /// Notification point: at most one CNP a flow in this time; 0: one for each CE mark.
    pub cnp_interval_ns: Nanos,
    /// Reaction point: CNPs sooner than this after a cut do nothing. 0 where the receiver's interval alone limits them, as
    /// in the 2015 paper: a second limit of the same length would swallow every CNP that jitter brings a little early.
    pub cut_interval_ns: Nanos,
    /// Every cut sets the target to the current rate. If not, only the first cut after a timer's rise does.
    pub clamp_target: bool,
}

impl Parameters {
    /// Names that [`Parameters::named`] knows.
    pub const NAMES: [&'static str; 5] = ["dc55", "dc300", "hpcc300", "hpcc900", "mlx4"];

    /// SIGCOMM 2015 style, at 10 Gbit/s.
    pub const DC55: Self = Parameters {
        g: 1.0 / 256.0,
        alpha_timer_ns: 55_000,
        rate_timer_ns: 55_000,
        byte_counter: Some(10_000_000),
        fast_recovery_stages: 5,
        additive_bps: 100e6,
        hyper_bps: 1e9,
        min_rate_bps: 100e6,
        cnp_interval_ns: 50_000,
        cut_interval_ns: 0,
        clamp_target: true,
    };

    /// [`Self::DC55`] with a slow rate timer.
    pub const DC300: Self = Parameters { rate_timer_ns: 300_000, additive_bps: 50e6, hyper_bps: 500e6, ..Self::DC55 };

    /// The HPCC authors' ns-3 model.
    pub const HPCC300: Self = Parameters {
        g: 1.0 / 256.0,
        alpha_timer_ns: 1_000,
        rate_timer_ns: 300_000,
        byte_counter: None,
        fast_recovery_stages: 1,
        additive_bps: 50e6,
        hyper_bps: 100e6,
        min_rate_bps: 100e6,
        cnp_interval_ns: 0,
        cut_interval_ns: 4_000,
        clamp_target: false,
    };

    /// [`Self::HPCC300`] with a slower rate timer.
    pub const HPCC900: Self = Parameters { rate_timer_ns: 900_000, ..Self::HPCC300 };

    /// ConnectX defaults (mlx5 `cc_params`): dce_tcp_g 1019/1024 weighs the old value. rpg_byte_reset 32767 is taken in
    /// units of 64 bytes; in bytes it would undo a cut within eight packets.
    pub const MLX4: Self = Parameters {
        g: 5.0 / 1024.0,
        alpha_timer_ns: 4_000,
        rate_timer_ns: 300_000,
        byte_counter: Some(32_767 * 64),
        fast_recovery_stages: 1,
        additive_bps: 5e6,
        hyper_bps: 50e6,
        min_rate_bps: 1e6,
        cnp_interval_ns: 4_000,
        cut_interval_ns: 4_000,
        clamp_target: false,
    };

    /// A set by its name, one of [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dc55" => Self::DC55,
            "dc300" => Self::DC300,
            "hpcc300" => Self::HPCC300,
            "hpcc900" => Self::HPCC900,
            "mlx4" => Self::MLX4,
            _ => return None,
        })
    }

    /// The same proportions on a link that is `f` times slower: times x f, rates / f, bytes as they are.
    pub fn scaled(self, f: f64) -> Self {
        let time = |ns: Nanos| (ns as f64 * f).round() as Nanos;
        Parameters {
            alpha_timer_ns: time(self.alpha_timer_ns).max(1),
            rate_timer_ns: time(self.rate_timer_ns).max(1),
            cnp_interval_ns: time(self.cnp_interval_ns),
            cut_interval_ns: time(self.cut_interval_ns),
            additive_bps: self.additive_bps / f,
            hyper_bps: self.hyper_bps / f,
            min_rate_bps: self.min_rate_bps / f,
            ..self
        }
    }

    /// R = F x rate timer: how long a cut flow needs to be nearly back.
    pub fn recovery_ns(&self) -> Nanos {
        Nanos::from(self.fast_recovery_stages) * self.rate_timer_ns
    }
}

/// The sender's half of one flow. Starts at line rate and stays there until the first CNP, which halves it.
#[derive(Clone, Debug)]
pub struct ReactionPoint {
    parameters: Parameters,
    line_bps: f64,
    current_bps: f64,
    target_bps: f64,
    alpha: f64,
    /// No CNP yet: no timer runs.
    fresh: bool,
    last_cut: Nanos,
    alpha_since: Nanos,
    timer_since: Nanos,
    timer_stage: u32,
    bytes: u64,
    byte_stage: u32,
}

impl ReactionPoint {
    /// A flow on a NIC of `line_bps`, which is its ceiling and starting rate.
    pub fn new(parameters: Parameters, line_bps: f64) -> Self {
        ReactionPoint {
            parameters,
            line_bps,
            current_bps: line_bps,
            target_bps: line_bps,
            alpha: 1.0,
            fresh: true,
            last_cut: 0,
            alpha_since: 0,
            timer_since: 0,
            timer_stage: 0,
            bytes: 0,
            byte_stage: 0,
        }
    }

    /// The rate at which to send now, bit/s.
    pub fn rate_bps(&mut self, now: Nanos) -> f64 {
        self.advance(now);
        self.current_bps
    }

    /// Alpha, the estimate of how congested the path is, 0..=1.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// A CNP for this flow has come.
    pub fn on_cnp(&mut self, now: Nanos) {
        self.advance(now);
        if !self.fresh && now.saturating_sub(self.last_cut) < self.parameters.cut_interval_ns {
            return;
        }
        if self.fresh || self.parameters.clamp_target || self.timer_stage > 0 {
            self.target_bps = self.current_bps;
        }
        let floor = self.parameters.min_rate_bps.min(self.line_bps);
        self.current_bps = (self.current_bps * (1.0 - self.alpha / 2.0)).max(floor);
        self.alpha += (1.0 - self.alpha) * self.parameters.g;
        self.fresh = false;
        self.last_cut = now;
        self.alpha_since = now;
        self.timer_since = now;
        self.timer_stage = 0;
        self.bytes = 0;
        self.byte_stage = 0;
    }

    /// `bytes` of this flow have been sent.
    pub fn on_sent(&mut self, now: Nanos, bytes: u64) {
        let Some(limit) = self.parameters.byte_counter.filter(|_| !self.fresh) else { return };
        self.advance(now);
        self.bytes += bytes;
        while self.bytes >= limit {
            self.bytes -= limit;
            self.byte_stage = self.byte_stage.saturating_add(1);
            self.rise();
        }
    }

    /// Runs the timers up to `now`.
    fn advance(&mut self, now: Nanos) {
        if self.fresh {
            return;
        }
        let ticks = now.saturating_sub(self.alpha_since) / self.parameters.alpha_timer_ns;
        if ticks > 0 {
            self.alpha *= (1.0 - self.parameters.g).powi(ticks.min(i32::MAX as u64) as i32);
            self.alpha_since += ticks * self.parameters.alpha_timer_ns;
        }
        let mut ticks = now.saturating_sub(self.timer_since) / self.parameters.rate_timer_ns;
        self.timer_since += ticks * self.parameters.rate_timer_ns;
        while ticks > 0 {
            if self.current_bps >= self.line_bps {
                // At the ceiling only the stage counts on.
                self.timer_stage = self.timer_stage.saturating_add(ticks.min(u64::from(u32::MAX)) as u32);
                break;
            }
            self.timer_stage = self.timer_stage.saturating_add(1);
            self.rise();
            ticks -= 1;
        }
    }

    /// One increase; the stage that caused it is counted already.
    fn rise(&mut self) {
        let f = self.parameters.fast_recovery_stages;
        let (most, least) = match self.parameters.byte_counter {
            Some(_) => (self.timer_stage.max(self.byte_stage), self.timer_stage.min(self.byte_stage)),
            None => (self.timer_stage, self.timer_stage.saturating_sub(1)),
        };
        if least > f {
            self.target_bps += self.parameters.hyper_bps;
        } else if most > f {
            self.target_bps += self.parameters.additive_bps;
        }
        self.target_bps = self.target_bps.min(self.line_bps);
        self.current_bps = (self.current_bps + self.target_bps) / 2.0;
        // Halving never quite arrives; a part in a million below the ceiling is the ceiling.
        if self.line_bps - self.current_bps < self.line_bps * 1e-6 {
            self.current_bps = self.line_bps;
        }
    }
}

/// The receiver's half of one flow.
#[derive(Clone, Debug, Default)]
pub struct NotificationPoint {
    last: Option<Nanos>,
}

impl NotificationPoint {
    /// A data packet with CE has come: is a CNP due?
    pub fn on_ce(&mut self, now: Nanos, interval_ns: Nanos) -> bool {
        let due = self.last.is_none_or(|last| now.saturating_sub(last) >= interval_ns);
        if due {
            self.last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G10: f64 = 10e9;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn a_flow_keeps_line_rate_and_alpha_until_the_first_cnp_which_halves_it() {
        let mut rp = ReactionPoint::new(Parameters::DC55, G10);
        rp.on_sent(900_000_000, 50_000_000);
        close(rp.rate_bps(1_000_000_000), G10);
        close(rp.alpha(), 1.0);
        rp.on_cnp(1_000_000_000);
        close(rp.rate_bps(1_000_000_000), 5e9);
        close(rp.alpha(), 1.0);
    }

    #[test]
    fn alpha_decays_once_per_timer_and_rises_by_g_on_a_cnp() {
        let mut rp = ReactionPoint::new(Parameters::DC55, G10);
        rp.on_cnp(0);
        rp.rate_bps(3 * 55_000 + 1);
        let decayed = (255.0f64 / 256.0).powi(3);
        close(rp.alpha(), decayed);
        let before = rp.rate_bps(3 * 55_000 + 1);
        rp.on_cnp(3 * 55_000 + 1);
        close(rp.rate_bps(3 * 55_000 + 1), before * (1.0 - decayed / 2.0));
        close(rp.alpha(), decayed * 255.0 / 256.0 + 1.0 / 256.0);
    }

    #[test]
    fn five_fast_stages_then_additive_increase_follow_a_cut() {
        let mut rp = ReactionPoint::new(Parameters::DC55, G10);
        rp.on_cnp(0); // 10 -> 5, target 10
        rp.on_cnp(50_000); // 5 -> 2.5, target 5, alpha still 1
        let at = |rp: &mut ReactionPoint, stage: u64| rp.rate_bps(50_000 + stage * 55_000) / 1e9;
        close(at(&mut rp, 1), 3.75);
        close(at(&mut rp, 2), 4.375);
        close(at(&mut rp, 3), 4.6875);
        close(at(&mut rp, 4), 4.84375);
        close(at(&mut rp, 5), 4.921875);
        // Additive: target 5.1, 5.2; hyper needs the byte counter's stages too.
        close(at(&mut rp, 6), 5.0109375);
        close(at(&mut rp, 7), 5.10546875);
    }

    #[test]
    fn hyper_increase_needs_both_clocks_past_fast_recovery() {
        let mut rp = ReactionPoint::new(Parameters { byte_counter: Some(1000), ..Parameters::DC55 }, 100e9);
        rp.on_cnp(0);
        rp.on_cnp(1); // 25 G, target 50 G
        for _ in 0..6 {
            rp.on_sent(1, 1000); // five fast, one additive
        }
        close(rp.target_bps, 50.1e9);
        rp.rate_bps(1 + 5 * 55_000); // timer stages 1..5: additive, for the byte counter is past F
        close(rp.target_bps, 50.6e9);
        rp.rate_bps(1 + 6 * 55_000); // both past F
        close(rp.target_bps, 51.6e9);
    }

    /// The sums, in Gbit/s: fast recovery halves the distance to 50 ten times, whichever clock ticks; then the timer's sixth
    /// stage is additive (50.1), the byte counter's sixth makes both hyper (+ 1 each).
    #[test]
    fn the_staircase_of_both_clocks_climbs_stage_by_stage() {
        let mut rp = ReactionPoint::new(Parameters::DC55, 100e9);
        rp.on_cnp(0); // 100 -> 50
        rp.on_cnp(0); // 50 -> 25, target 50
        let stairs = [
            (37.5, 43.75),
            (46.875, 48.4375),
            (49.21875, 49.609375),
            (49.8046875, 49.90234375),
            (49.951171875, 49.9755859375),         // both have had their five
            (50.03779296875, 50.568896484375),     // target 50.1, then 51.1
            (51.3344482421875, 52.21722412109375), // 52.1, 53.1
        ];
        for (stage, (by_time, by_bytes)) in (1..).zip(stairs) {
            let now = stage * 55_000;
            close(rp.rate_bps(now) / 1e9, by_time);
            rp.on_sent(now, 10_000_000);
            close(rp.current_bps / 1e9, by_bytes);
        }
        close(rp.target_bps, 53.1e9);
    }

    #[test]
    fn a_byte_stage_takes_exactly_its_bytes_and_a_cut_empties_both_clocks() {
        let mut rp = ReactionPoint::new(Parameters::DC55, 100e9);
        rp.on_cnp(0);
        rp.on_cnp(0); // 25 G, target 50 G
        rp.on_sent(1, 9_999_999);
        close(rp.current_bps, 25e9);
        rp.on_sent(1, 1);
        close(rp.current_bps, 37.5e9);
        rp.on_sent(2, 35_000_000); // three more, and half of the next
        close(rp.current_bps, 48.4375e9);
        rp.on_cnp(54_999); // alpha is still 1: 24.21875, target 48.4375
        rp.on_sent(55_000, 9_999_999); // neither the half stage nor the timer of before count
        close(rp.rate_bps(109_998), 24.21875e9);
        close(rp.rate_bps(109_999), 36.328125e9);
        rp.on_sent(109_999, 1);
        close(rp.current_bps, 42.3828125e9);
    }

    #[test]
    fn by_time_alone_one_fast_one_additive_then_hyper() {
        let mut rp = ReactionPoint::new(Parameters::HPCC300, 100e9);
        rp.on_cnp(0);
        let target = |rp: &mut ReactionPoint, stage: u64| {
            rp.rate_bps(stage * 300_000);
            rp.target_bps
        };
        rp.target_bps = 60e9;
        close(target(&mut rp, 1), 60e9);
        close(target(&mut rp, 2), 60.05e9);
        close(target(&mut rp, 3), 60.15e9);
    }

    #[test]
    fn cuts_keep_their_distance_and_spare_the_target_until_a_timer_fired() {
        let mut rp = ReactionPoint::new(Parameters::HPCC300, G10);
        rp.on_cnp(1_000_000);
        rp.on_cnp(1_003_999);
        close(rp.current_bps, 5e9);
        rp.on_cnp(1_004_000);
        assert!(rp.current_bps < 2.6e9);
        close(rp.target_bps, G10);
        let before = rp.rate_bps(1_304_000);
        rp.on_cnp(1_304_000);
        close(rp.target_bps, before);
    }

    #[test]
    fn cuts_stop_at_the_minimum_and_recovery_at_the_line() {
        let mut rp = ReactionPoint::new(Parameters::DC55, G10);
        for i in 0..1000 {
            rp.on_cnp(i * 50_000);
        }
        close(rp.rate_bps(1000 * 50_000), 100e6);
        close(rp.rate_bps(3_600_000_000_000), G10);
        let mut slow = ReactionPoint::new(Parameters::DC55, 50e6);
        slow.on_cnp(0);
        close(slow.rate_bps(0), 50e6);
    }

    #[test]
    fn looking_often_or_seldom_gives_the_same_rate() {
        let mut often = ReactionPoint::new(Parameters::DC300, G10);
        often.on_cnp(0);
        let mut seldom = often.clone();
        for t in 0..5_000 {
            often.rate_bps(t * 1_000);
        }
        close(seldom.rate_bps(4_999_000), often.rate_bps(4_999_000));
        assert!((seldom.alpha() - often.alpha()).abs() < 1e-12);
    }

    #[test]
    fn scaling_keeps_proportions() {
        let mut fast = ReactionPoint::new(Parameters::DC55, G10);
        let mut slow = ReactionPoint::new(Parameters::DC55.scaled(50.0), 200e6);
        for k in [0u64, 50_000, 100_000, 700_000, 750_000] {
            fast.on_cnp(k);
            slow.on_cnp(k * 50);
        }
        close(slow.rate_bps(2_000_000 * 50) * 50.0, fast.rate_bps(2_000_000));
        assert_eq!(Parameters::DC55.scaled(50.0).cnp_interval_ns, 2_500_000);
        assert_eq!(Parameters::DC55.scaled(50.0).byte_counter, Some(10_000_000));
        assert_eq!(Parameters::DC55.scaled(50.0).recovery_ns(), 13_750_000);
    }

    #[test]
    fn one_cnp_a_flow_an_interval() {
        let mut np = NotificationPoint::default();
        let due: Vec<bool> = [0, 1, 49_999, 50_000, 60_000, 100_000].map(|t| np.on_ce(t, 50_000)).to_vec();
        assert_eq!(due, [true, false, false, true, false, true]);
        let mut each = NotificationPoint::default();
        assert!(each.on_ce(5, 0) && each.on_ce(5, 0));
    }

    /// Two fluid flows into one 10G queue with a marking threshold: however unequal at first, they end up near half each.
    #[test]
    fn two_flows_converge_to_equal_shares() {
        let mut flows = [ReactionPoint::new(Parameters::DC55, G10), ReactionPoint::new(Parameters::DC55, G10)];
        let mut nps = [NotificationPoint::default(), NotificationPoint::default()];
        flows[0].on_cnp(0);
        flows[0].on_cnp(1);
        flows[0].on_cnp(2);
        let (mut queue, step) = (0.0f64, 1_000);
        let mut sent = [0.0f64; 2];
        // RED's random marks, told apart by a small generator so that flows are not marked in lockstep.
        let mut random = 1u64;
        for tick in 1..400_000u64 {
            let now = tick * step;
            let rates = [flows[0].rate_bps(now), flows[1].rate_bps(now)];
            queue = (queue + (rates[0] + rates[1] - G10) * step as f64 / 8e9).max(0.0);
            let probability = ((queue - 40e3) / 120e3 * 0.2).clamp(0.0, 0.2);
            for i in 0..2 {
                let bytes = rates[i] * step as f64 / 8e9;
                flows[i].on_sent(now, bytes as u64);
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let draw = (random >> 33) as f64 / (1u64 << 31) as f64;
                if (draw < probability * bytes / 4096.0 || queue > 160e3) && nps[i].on_ce(now, 50_000) {
                    flows[i].on_cnp(now);
                }
                if tick > 200_000 {
                    sent[i] += bytes;
                }
            }
        }
        let share = sent[0] / (sent[0] + sent[1]);
        assert!((share - 0.5).abs() < 0.05, "the first flow got {share}");
        let used = (sent[0] + sent[1]) * 8e9 / (200_000.0 * step as f64) / G10;
        assert!(used > 0.9, "the link was used to {used}");
    }
}
