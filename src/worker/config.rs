//! What a worker is told.

use crate::dataplane::Nanos;
use crate::wire::aggregation::{LANE_GROUP, MAX_LANES, MAX_WORKERS};

/// Usual [`Config::window`].
pub const WINDOW: usize = 64;
/// Usual [`Config::scale_log2`].
pub const SCALE_LOG2: u32 = 24;
/// Usual [`Config::join_timeout_ns`].
pub const JOIN_TIMEOUT_NS: Nanos = 10_000_000_000;
/// Usual [`Config::silence_timeout_ns`].
pub const SILENCE_TIMEOUT_NS: Nanos = 30_000_000_000;

/// What a worker is told. Job, segments, lanes and scale are the same for all workers of a job, and at the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Job.
    pub job: u8,
    /// Rank within the job, below 32.
    pub worker: u8,
    /// Packets that a vector takes.
    pub segments: u32,
    /// Values of a packet: a multiple of 8, at most 352.
    pub lanes: usize,
    /// Drawn by each process when it starts, so that packets of one that was killed are not taken for its successor's.
    pub incarnation: u32,
    /// Most packets that may be on their way at once; at most half of what the switch's receive ring holds.
    pub window: usize,
    /// A value v travels as the integer nearest to v * 2^`scale_log2`.
    pub scale_log2: u32,
    /// How long the switch may leave a JOIN unanswered.
    pub join_timeout_ns: Nanos,
    /// How long the switch may be silent altogether while a round is open. A round that waits for other workers is not
    /// silent: the switch says so.
    pub silence_timeout_ns: Nanos,
    /// Mutation for the property test: goes on by the greatest `next_round` of the segments instead of the least.
    #[cfg(test)]
    pub(crate) by_greatest_next_round: bool,
}

/// What is wrong with a [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The wire has 32 ranks.
    #[error("worker {0} is out of range: ranks are 0 to 31")]
    Worker(u8),
    /// An empty vector.
    #[error("segments = 0: a vector takes at least one")]
    NoSegments,
    /// Not a size of a packet.
    #[error("lanes = {0}: must be a multiple of 8 from 8 to 352")]
    Lanes(usize),
    /// Nothing could be sent.
    #[error("window = 0: at least one packet must be allowed on its way")]
    Window,
    /// Not a scale of 32-bit integers.
    #[error("scale_log2 = {0}: must be at most 30")]
    Scale(u32),
}

impl Config {
    /// The usual one. `incarnation` is to be drawn at random when the process starts.
    pub fn new(job: u8, worker: u8, segments: u32, lanes: usize, incarnation: u32) -> Self {
        Config {
            job,
            worker,
            segments,
            lanes,
            incarnation,
            window: WINDOW,
            scale_log2: SCALE_LOG2,
            join_timeout_ns: JOIN_TIMEOUT_NS,
            silence_timeout_ns: SILENCE_TIMEOUT_NS,
            #[cfg(test)]
            by_greatest_next_round: false,
        }
    }

    /// Most values of a vector.
    pub fn capacity(&self) -> usize {
        self.segments as usize * self.lanes
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.worker >= MAX_WORKERS {
            return Err(ConfigError::Worker(self.worker));
        }
        if self.segments == 0 {
            return Err(ConfigError::NoSegments);
        }
        if self.lanes == 0 || self.lanes > MAX_LANES || !self.lanes.is_multiple_of(LANE_GROUP) {
            return Err(ConfigError::Lanes(self.lanes));
        }
        if self.window == 0 {
            return Err(ConfigError::Window);
        }
        if self.scale_log2 > 30 {
            return Err(ConfigError::Scale(self.scale_log2));
        }
        Ok(())
    }
}
