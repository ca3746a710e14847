//! What the control language says (until the engine has these types).

use std::fmt;

use crate::control::units::Duration;
use crate::dataplane::Nanos;

/// What becomes of a late contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Forgotten.
    Drop,
    /// Added to the worker's next one.
    Return,
}

/// A number of members, whatever their number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// Exactly so many.
    Exactly(u8),
    /// All but so many.
    AllBut(u8),
    /// The ceiling of so many thousandths of all.
    PerMille(u16),
}

impl Quorum {
    /// For `n` members.
    pub fn of(self, n: u8) -> Option<u8> {
        let count = match self {
            Quorum::Exactly(count) => count,
            Quorum::AllBut(out) => n.checked_sub(out)?,
            Quorum::PerMille(thousandths) => {
                u8::try_from((u32::from(n) * u32::from(thousandths)).div_ceil(1000)).ok()?
            }
        };
        (1..=n).contains(&count).then_some(count)
    }
}

/// How a round ends and who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All.
    Bsp,
    /// The first `k`.
    Partial {
        /// How many.
        k: Quorum,
        /// The others.
        late: Late,
    },
    /// At most so many rounds ahead.
    Ssp {
        /// Rounds.
        slack: u8,
    },
    /// Nobody.
    Asp,
    /// Who came in time.
    Timed {
        /// After the first arrival.
        deadline_ns: Nanos,
        /// At least so many.
        kmin: Quorum,
        /// The others.
        late: Late,
    },
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Median wait.
    WaitP50,
    /// 95th percentile of it.
    WaitP95,
    /// The longest.
    WaitMax,
    /// Release less first arrival.
    Span,
    /// Rounds between the first and the last worker.
    LagMax,
    /// Late contributions of all.
    LateRate,
    /// Retransmissions of all.
    RetxRate,
    /// From release to release.
    RoundTime,
    /// Fewest workers included.
    IncludedMin,
    /// Since a worker was heard.
    Silent,
}

/// How it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// When a policy acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `metric cmp value for N rounds`
    Compare {
        /// What.
        metric: Metric,
        /// How.
        comparison: Comparison,
        /// With what: nanoseconds, millionths, or a number.
        value: u64,
        /// So many rounds in a row.
        rounds: u32,
    },
    /// All of them.
    All(Vec<Condition>),
    /// One of them.
    Any(Vec<Condition>),
}

/// What a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Swaps to it.
    Swap(Strategy),
    /// Drops the silent worker.
    DropMember,
    /// Nothing, and no later policy.
    Hold,
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
        match *self {
            Quorum::Exactly(count) => write!(f, "{count}"),
            Quorum::AllBut(0) => f.write_str("n"),
            Quorum::AllBut(out) => write!(f, "n-{out}"),
            Quorum::PerMille(thousandths) => write!(f, "ceil({}*n)", f64::from(thousandths) / 1000.0),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Strategy::Bsp => f.write_str("bsp"),
            Strategy::Partial { k, late } => write!(f, "partial(k = {k}, late = {late})"),
            Strategy::Ssp { slack } => write!(f, "ssp({slack})"),
            Strategy::Asp => f.write_str("asp"),
            Strategy::Timed { deadline_ns, kmin, late } => {
                write!(f, "timed({}, kmin = {kmin}, late = {late})", Duration(deadline_ns))
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Swap(strategy) => strategy.fmt(f),
            Action::DropMember => f.write_str("drop_member(worker)"),
            Action::Hold => f.write_str("hold"),
        }
    }
}

/// A strategy without its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See [`Strategy`].
    Bsp,
    /// See [`Strategy`].
    Partial,
    /// See [`Strategy`].
    Ssp,
    /// See [`Strategy`].
    Asp,
    /// See [`Strategy`].
    Timed,
}

impl Strategy {
    /// Without its numbers.
    pub fn kind(&self) -> Kind {
        match self {
            Strategy::Bsp => Kind::Bsp,
            Strategy::Partial { .. } => Kind::Partial,
            Strategy::Ssp { .. } => Kind::Ssp,
            Strategy::Asp => Kind::Asp,
            Strategy::Timed { .. } => Kind::Timed,
        }
    }
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only under.
    pub within: Option<Kind>,
    /// Condition.
    pub when: Condition,
    /// Action.
    pub then: Action,
    /// Rounds.
    pub cooldown_rounds: u32,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number.
    pub id: u8,
    /// Workers.
    pub members: Vec<std::net::SocketAddrV4>,
    /// Segments.
    pub segments: u32,
    /// Lanes.
    pub lanes: u16,
    /// Scale.
    pub scale_log2: u8,
    /// At start.
    pub start: Strategy,
    /// T_fail.
    pub silent_ns: Nanos,
    /// Policies.
    pub policies: Vec<Policy>,
}
