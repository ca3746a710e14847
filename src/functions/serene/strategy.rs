//! Synchronisation strategies, and what they are to the pipeline: one entry of its rule table each.

use std::fmt;

use crate::dataplane::Nanos;

/// Labels of one segment that the pipeline tells apart: its rings are so deep.
pub const RING_DEPTH: u32 = 16;

/// Most rounds that a worker may be ahead under [`Strategy::Ssp`]: one more would alias with an open round in the rings.
pub const MAX_SLACK: u8 = RING_DEPTH as u8 - 1;

/// Slack of a rule without a bound: no two rounds lie further apart.
pub const UNBOUNDED: u32 = i32::MAX as u32;

/// What becomes of a contribution that comes after its round was released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Late {
    /// It is forgotten.
    #[default]
    Drop,
    /// The worker adds it to its next one (error feedback).
    Return,
}

/// How many of the members a round waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quorum {
    /// This many.
    Exactly(u8),
    /// All but this many: `AllBut(0)` is `n`, `AllBut(1)` is `n-1`.
    AllBut(u8),
    /// This many thousandths of them, rounded up.
    PerMille(u16),
}

/// How the workers of a job keep step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Bulk-synchronous: everybody waits for everybody.
    Bsp,
    /// A round is over when `k` are in.
    Partial {
        /// How many.
        k: Quorum,
        /// What becomes of the others' contributions.
        late: Late,
    },
    /// Stale-synchronous: contributions count at once, and nobody gets more than `slack` rounds ahead of the slowest.
    Ssp {
        /// 1 to [`MAX_SLACK`] rounds.
        slack: u8,
    },
    /// Asynchronous: contributions count at once, and nobody waits.
    Asp,
    /// As [`Strategy::Bsp`], but `deadline_ns` after its first contribution a round is over with at least `kmin`.
    Timed {
        /// From a round's first contribution on.
        deadline_ns: Nanos,
        /// How many there must be at least.
        kmin: Quorum,
        /// What becomes of later contributions.
        late: Late,
    },
}

/// When a contribution becomes part of what others see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// When its round is released.
    #[default]
    Deferred,
    /// At once.
    Immediate,
}

/// An entry of the rule table, `set_rule`: all that the pipeline knows of a strategy. There are two banks of them a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// When contributions become visible.
    pub visibility: Visibility,
    /// Contributions that release a round.
    pub need: u8,
    /// Rounds that a worker may be ahead of the last one released, beyond the next.
    pub slack: u32,
    /// What becomes of late contributions. Means nothing under [`Visibility::Immediate`], where none is late.
    pub late: Late,
    /// Whether a release is sent to all members.
    pub multicast: bool,
    /// What workers divide their contributions by.
    pub norm: u8,
    /// Its version, which answers carry.
    pub version: u16,
    /// A bit for each worker that takes part.
    pub members: u32,
    /// The rule before it was immediate: its first round may be reached by a jump over rounds that were never released.
    pub from_immediate: bool,
}

impl Quorum {
    /// How many that is of `members`: at least one, at most all.
    pub fn of(self, members: u8) -> u8 {
        let count = match self {
            Quorum::Exactly(count) => count,
            Quorum::AllBut(count) => members.saturating_sub(count),
            Quorum::PerMille(share) => (u32::from(members) * u32::from(share)).div_ceil(1000).min(255) as u8,
        };
        count.clamp(1, members.max(1))
    }
}

impl Rule {
    /// Whether a worker adds what came too late to its next contribution.
    pub fn returns_late(&self) -> bool {
        self.visibility == Visibility::Deferred && self.late == Late::Return
    }
}

impl Strategy {
    /// Its rule for the workers in `members`, as entered for a swap from a rule of visibility `from`.
    pub fn compile(&self, members: u32, version: u16, from: Visibility) -> Rule {
        let count = members.count_ones() as u8;
        let deferred = Rule {
            visibility: Visibility::Deferred,
            need: count,
            slack: 0,
            late: Late::Drop,
            multicast: true,
            norm: count,
            version,
            members,
            from_immediate: from == Visibility::Immediate,
        };
        let immediate = Rule { visibility: Visibility::Immediate, ..deferred };
        match *self {
            Strategy::Bsp => deferred,
            // What is dropped does not count in the mean either; what is returned does, a round later.
            Strategy::Partial { k, late } => {
                let need = k.of(count);
                Rule { need, late, norm: if late == Late::Drop { need } else { count }, ..deferred }
            }
            Strategy::Ssp { slack } => Rule { slack: slack.into(), ..immediate },
            Strategy::Asp => Rule { slack: UNBOUNDED, multicast: false, ..immediate },
            Strategy::Timed { late, .. } => Rule { late, ..deferred },
        }
    }

    /// When contributions become visible under it.
    pub fn visibility(&self) -> Visibility {
        match self {
            Strategy::Ssp { .. } | Strategy::Asp => Visibility::Immediate,
            Strategy::Bsp | Strategy::Partial { .. } | Strategy::Timed { .. } => Visibility::Deferred,
        }
    }

    /// Its name in the control language, without arguments.
    pub fn name(&self) -> &'static str {
        match self {
            Strategy::Bsp => "bsp",
            Strategy::Partial { .. } => "partial",
            Strategy::Ssp { .. } => "ssp",
            Strategy::Asp => "asp",
            Strategy::Timed { .. } => "timed",
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Late::Drop => "drop",
            Late::Return => "return",
        })
    }
}

impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quorum::Exactly(count) => write!(f, "{count}"),
            Quorum::AllBut(0) => f.write_str("n"),
            Quorum::AllBut(count) => write!(f, "n-{count}"),
            Quorum::PerMille(share) => write!(f, "ceil({}*n)", f64::from(*share) / 1000.0),
        }
    }
}

/// As the control language writes it.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Bsp | Strategy::Asp => f.write_str(self.name()),
            Strategy::Partial { k, late } => write!(f, "partial(k = {k}, late = {late})"),
            Strategy::Ssp { slack } => write!(f, "ssp({slack})"),
            Strategy::Timed { deadline_ns, kmin, late } => {
                write!(f, "timed({}ms, kmin = {kmin}, late = {late})", *deadline_ns as f64 / 1e6)
            }
        }
    }
}

/// As the rule table's dump writes it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { need, slack, norm, version, members, .. } = self;
        let (visibility, late) = match (self.visibility, self.late) {
            (Visibility::Immediate, _) => ("IMMEDIATE", "NA"),
            (Visibility::Deferred, Late::Drop) => ("DEFERRED", "DROP"),
            (Visibility::Deferred, Late::Return) => ("DEFERRED", "RETURN"),
        };
        let multicast = u8::from(self.multicast);
        write!(
            f,
            "set_rule(vis={visibility}, need={need}, slack={slack}, late={late}, mcast={multicast}, norm={norm}, \
             ver={version}, members={members:#x})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_is_the_row_of_the_rule_table_that_the_design_gives_it() {
        let of = |strategy: Strategy| strategy.compile(0b1111, 7, Visibility::Deferred).to_string();
        let late = Late::Return;
        let deferred = |need, late, norm| {
            format!(
                "set_rule(vis=DEFERRED, need={need}, slack=0, late={late}, mcast=1, norm={norm}, ver=7, members=0xf)"
            )
        };
        assert_eq!(of(Strategy::Bsp), deferred(4, "DROP", 4));
        assert_eq!(of(Strategy::Partial { k: Quorum::AllBut(1), late: Late::Drop }), deferred(3, "DROP", 3));
        assert_eq!(of(Strategy::Partial { k: Quorum::AllBut(1), late }), deferred(3, "RETURN", 4));
        assert_eq!(of(Strategy::Timed { deadline_ns: 1, kmin: Quorum::Exactly(2), late }), deferred(4, "RETURN", 4));
        assert_eq!(
            of(Strategy::Ssp { slack: 3 }),
            "set_rule(vis=IMMEDIATE, need=4, slack=3, late=NA, mcast=1, norm=4, ver=7, members=0xf)"
        );
        assert_eq!(
            of(Strategy::Asp),
            "set_rule(vis=IMMEDIATE, need=4, slack=2147483647, late=NA, mcast=0, norm=4, ver=7, members=0xf)"
        );
    }

    #[test]
    fn a_quorum_is_at_least_one_and_at_most_all() {
        let of = |quorum: Quorum| [1, 2, 4, 32].map(|members| quorum.of(members));
        assert_eq!(of(Quorum::AllBut(0)), [1, 2, 4, 32]);
        assert_eq!(of(Quorum::AllBut(1)), [1, 1, 3, 31]);
        assert_eq!(of(Quorum::Exactly(3)), [1, 2, 3, 3]);
        assert_eq!(of(Quorum::PerMille(750)), [1, 2, 3, 24]);
        assert_eq!(Quorum::PerMille(1).of(0), 1);
    }

    #[test]
    fn a_strategy_is_shown_as_the_control_language_writes_it() {
        let k = Quorum::PerMille(750);
        let shown = [
            Strategy::Partial { k, late: Late::Return }.to_string(),
            Strategy::Timed { deadline_ns: 30_500_000, kmin: Quorum::AllBut(2), late: Late::Drop }.to_string(),
            Strategy::Ssp { slack: 3 }.to_string(),
        ];
        assert_eq!(
            shown,
            ["partial(k = ceil(0.75*n), late = return)", "timed(30.5ms, kmin = n-2, late = drop)", "ssp(3)"]
        );
    }
}
