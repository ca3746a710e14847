//! Policies as the control language compiles them: when to do what.

use super::super::strategy::Strategy;

/// Rounds that are looked back upon; no condition may ask for more.
pub const WINDOW_ROUNDS: u32 = 32;

/// When a condition holds, something is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Only while a strategy of this name ([`Strategy::name`]) is in force; always if `None`.
    pub within: Option<&'static str>,
    /// When.
    pub when: Condition,
    /// What.
    pub then: Action,
    /// Rounds after it was done in which it is not done again.
    pub cooldown_rounds: u32,
}

/// A condition on the latest rounds.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// One comparison.
    Compare(Comparison),
    /// All of them hold.
    All(Vec<Condition>),
    /// One of them holds.
    Any(Vec<Condition>),
}

/// A metric against a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// What is measured.
    pub metric: Metric,
    /// How it compares.
    pub relation: Relation,
    /// With what: in the metric's unit ([`Metric::unit`]).
    pub value: f64,
    /// In each of this many rounds, the latest ones: 1 to [`WINDOW_ROUNDS`]. Means nothing for [`Metric::Silent`].
    pub rounds: u32,
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// What is measured, once a round when it is released, on the job's last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// How long workers waited from their contribution to its answer: the median over workers.
    WaitP50,
    /// The same, 95th percentile (nearest rank).
    WaitP95,
    /// The same, the longest.
    WaitMax,
    /// From the round's first contribution to its release.
    Span,
    /// Rounds between the foremost worker and the hindmost.
    LagMax,
    /// Late contributions per contribution since the release before.
    LateRate,
    /// Repeated contributions per contribution since the release before.
    RetxRate,
    /// From the release before to this one.
    RoundTime,
    /// Workers whose contribution is in the round.
    IncludedMin,
    /// How long some worker, any of them, has not been heard of. Looked at all the time, not only at a release.
    Silent,
}

/// What a metric's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A time, in nanoseconds.
    Nanoseconds,
    /// A share, 0 to 1 (or above, for [`Metric::RetxRate`]).
    Ratio,
    /// A number of rounds or workers.
    Count,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go over to this strategy.
    Swap(Strategy),
    /// Go over to `ssp`, with as much slack as the hindmost worker needs now, within these bounds.
    SspWithin {
        /// 1 or more.
        low: u8,
        /// At most [`MAX_SLACK`](super::super::MAX_SLACK).
        high: u8,
    },
    /// Go on without a worker: this one, or the one that [`Metric::Silent`] found.
    DropMember(Option<u8>),
    /// Nothing: no later policy has its turn either.
    Hold,
}

impl Metric {
    /// Every metric with its name in the control language.
    pub const NAMES: &'static [(&'static str, Metric)] = &[
        ("wait_p50", Metric::WaitP50),
        ("wait_p95", Metric::WaitP95),
        ("wait_max", Metric::WaitMax),
        ("span", Metric::Span),
        ("lag_max", Metric::LagMax),
        ("late_rate", Metric::LateRate),
        ("retx_rate", Metric::RetxRate),
        ("round_time", Metric::RoundTime),
        ("included_min", Metric::IncludedMin),
        ("silent", Metric::Silent),
    ];

    /// What its numbers are.
    pub fn unit(self) -> Unit {
        match self {
            Metric::WaitP50 | Metric::WaitP95 | Metric::WaitMax | Metric::Span | Metric::RoundTime | Metric::Silent => {
                Unit::Nanoseconds
            }
            Metric::LateRate | Metric::RetxRate => Unit::Ratio,
            Metric::LagMax | Metric::IncludedMin => Unit::Count,
        }
    }
}

impl Relation {
    /// Whether `left` compares so with `right`.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Relation::Less => left < right,
            Relation::AtMost => left <= right,
            Relation::Greater => left > right,
            Relation::AtLeast => left >= right,
        }
    }
}
