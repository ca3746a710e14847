//! What is counted by job, in packets.

use serde::Serialize;

/// Counters of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Contributions that came from processes that have joined, whatever became of them.
    pub pushes: u64,
    /// Those among them that say they were sent before.
    pub retransmissions: u64,
    /// Those among them that were in before, and did not count again.
    pub duplicates: u64,
    /// Rounds of segments released by their last contribution.
    pub released: u64,
    /// Rounds of segments released by the controller.
    pub closed: u64,
    /// Contributions that came after the release, and did not count.
    pub late: u64,
    /// Contributions to rounds before the last completed swap.
    pub old: u64,
    /// Repeated contributions to rounds of which the switch no longer knows who was in.
    pub unknown: u64,
    /// Contributions divided by another norm than that of their round's rule.
    pub norm_mismatches: u64,
    /// WAIT answers.
    pub waits: u64,
    /// Requests for a segment's sum.
    pub pulls: u64,
    /// Joins, repeated ones too.
    pub joins: u64,
    /// Leaves, repeated ones too.
    pub leaves: u64,
    /// NOTICE answers: to processes that are unknown, replaced or no members.
    pub notices: u64,
}
