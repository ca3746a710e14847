//! Serene: aggregation in the switch, with a synchronisation strategy that changes while training runs.

pub mod controller;
mod digest;
mod job;
mod strategy;

pub use controller::Policy;
pub use digest::{Digest, DigestKind};
pub use job::{Job, JobError, MAX_SEGMENTS};
pub use strategy::{Late, MAX_SLACK, Quorum, RING_DEPTH, Rule, Strategy, UNBOUNDED, Visibility};

use crate::dataplane::Nanos;

/// How often the control plane is told that a worker lives.
pub const ALIVE_NS: Nanos = 100_000_000;
