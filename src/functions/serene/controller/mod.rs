//! The control plane of one job: a pure state machine that swaps strategies and membership.

mod policy;

pub use policy::{Action, Comparison, Condition, Metric, Policy, Relation, Unit, WINDOW_ROUNDS};
