//! Align (egress): whether a packet gets an extra mark.

use rand_chacha::rand_core::Rng;

use super::compiled::{tick, ticks};
use super::config::{Parameters, Policy};
use crate::dataplane::pair;
use crate::dataplane::{Cx, Egress, Phv, Register, Tracer};

pair! {
    /// Register `gap`: G.
    GapCell {
        /// When the flow was looked at last, the lowest bit set; 0: never.
        last_tick: u32,
        /// Its lead then, in 1/256 steps.
        lead: u32,
    }
}

/// A look that is more than so many gaps old says nothing about now.
const STALE_GAPS: u32 = 4;

/// One packet's action on register `gap`: whether to mark it. At most one packet a gap is looked at; with `growing`, it is
/// marked unless its flow's lead has shrunk since the look before.
#[inline]
pub fn gap_action(cell: &mut GapCell, tick: u32, lead: i32, gap_ticks: u32, growing: bool) -> bool {
    let tick = tick | 1;
    let fresh = cell.last_tick != 0;
    let since = tick.wrapping_sub(cell.last_tick);
    if fresh && since <= gap_ticks {
        return false;
    }
    let stale = !fresh || since > gap_ticks.saturating_mul(STALE_GAPS);
    let shrinks = lead < cell.lead as i32;
    *cell = GapCell { last_tick: tick, lead: lead as u32 };
    !growing || stale || !shrinks
}

/// What became of a packet that may be marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The lead test passed (or the coin that replaces it).
    pub(super) leads: bool,
    /// CE is wanted.
    pub(super) mark: bool,
}

/// The egress stage with its constants.
#[derive(Clone, Debug)]
pub(super) struct Align {
    policy: Policy,
    threshold: i32,
    /// QTHR over Kmin, in 1/65536.
    queue_fraction: u64,
    only_below_kmin: bool,
    gap_ticks: u32,
    growing: bool,
    /// Heads come up when a random 32-bit number is below it.
    heads_below: u64,
    gap: Register<GapCell>,
}

impl Align {
    pub(super) fn new(parameters: &Parameters, flows: usize) -> Self {
        let mut align = Align {
            policy: parameters.policy,
            threshold: 0,
            queue_fraction: 0,
            only_below_kmin: false,
            gap_ticks: 0,
            growing: false,
            heads_below: 0,
            gap: Register::new("gap", flows),
        };
        align.set_parameters(parameters);
        align
    }

    pub(super) fn set_parameters(&mut self, parameters: &Parameters) {
        self.policy = parameters.policy;
        self.threshold = parameters.threshold;
        self.queue_fraction = (parameters.queue_fraction * 65536.0) as u64; // saturates; NaN is 0
        self.only_below_kmin = parameters.only_below_kmin;
        self.gap_ticks = ticks(parameters.gap_ns);
        // A coin knows no lead, so it can't shrink.
        self.growing = parameters.growing && !matches!(parameters.policy, Policy::Blind { .. });
        self.heads_below = match parameters.policy {
            Policy::Blind { probability } => (probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64,
            _ => 0,
        };
    }

    /// A flow's slot is free: its next user starts afresh.
    pub(super) fn forget(&mut self, flow: u32) {
        self.gap.poke(flow as usize, GapCell::default());
    }

    /// Runs the stage on an ECN-capable data packet of a job that is switched on.
    #[inline]
    pub(super) fn run<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, egress: &mut Egress<'_>, phv: &Phv) -> Alignment {
        let bridged = &phv.bridged;
        let flow = bridged.flow as usize;
        if !bridged.armed || flow >= self.gap.len() {
            return Alignment::default();
        }
        cx.stage("egress", "align");
        let leads = match self.policy {
            Policy::Blind { .. } => u64::from(egress.rng.next_u32()) < self.heads_below,
            _ => bridged.lead >= self.threshold,
        };
        let (now, gap_ticks, growing) = (tick(cx.now), self.gap_ticks, self.growing);
        let mark = leads
            && self.queue_stands(egress.depth_bytes, egress.kmin_bytes)
            && self.gap.execute(cx, flow, |cell| gap_action(cell, now, bridged.lead, gap_ticks, growing));
        if mark && self.policy == Policy::Null {
            egress.rng.next_u32();
            return Alignment { leads, mark: false };
        }
        Alignment { leads, mark }
    }

    /// Whether there is a queue to get out of the way of, and none so long that RED is at work where that counts.
    #[inline]
    fn queue_stands(&self, depth_bytes: u64, kmin_bytes: u64) -> bool {
        let threshold = kmin_bytes.saturating_mul(self.queue_fraction) >> 16;
        depth_bytes >= threshold.max(1) && !(self.only_below_kmin && depth_bytes > kmin_bytes)
    }
}
