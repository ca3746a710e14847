//! What a worker counts over its life.

/// What a worker counts over its life. "Segments" are counted once a round, however many packets they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rounds that ended.
    pub rounds: u64,
    /// Packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Packets that came for this worker.
    pub packets_received: u64,
    /// Packets that are none, or for another job or worker, or of another shape.
    pub foreign: u64,
    /// Answers to a round that is over, and copies.
    pub stale: u64,
    /// Times that the switch said that a round is not over.
    pub waits: u64,
    /// Segments whose contribution came after their round had been released.
    pub late: u64,
    /// Those of `late` that go into the next round.
    pub returned: u64,
    /// Segments of whose contribution nothing is known. Never pushed again, as that might count it twice.
    pub forgotten: u64,
    /// Values that were too large for a contribution and became the largest.
    pub clipped: u64,
    /// Times that the worker joined.
    pub joins: u64,
}
