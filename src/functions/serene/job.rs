//! A job as the user describes it.

use std::net::SocketAddrV4;

use super::Policy;
use super::strategy::{MAX_SLACK, Quorum, Strategy};
use crate::wire::aggregation::{LANE_GROUP, MAX_LANES, MAX_WORKERS};

/// Most segments of one job: 65,536 of 352 lanes are 23 million parameters, and 185 MB of registers.
pub const MAX_SEGMENTS: u32 = 1 << 16;

/// Workers that train one model together.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number on the wire.
    pub id: u8,
    /// Its workers' addresses; a worker's number is its place here.
    pub members: Vec<SocketAddrV4>,
    /// Segments that the model is cut into.
    pub segments: u32,
    /// 32-bit lanes of each segment: a multiple of 8, at most 352.
    pub lanes: u16,
    /// Workers send values times 2 to this power. The switch does not need it.
    pub scale_log2: u8,
    /// How they keep step at first.
    pub start: Strategy,
    /// When that changes. The first that matches wins.
    pub policies: Vec<Policy>,
}

/// Why a job cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// There must be 1 to 32.
    #[error("members: {0} of them; a job has 1 to {MAX_WORKERS} workers")]
    Members(usize),
    /// Two workers cannot be told apart.
    #[error("members: {0} is there twice; give each worker a port of its own")]
    SameAddress(SocketAddrV4),
    /// There must be 1 to [`MAX_SEGMENTS`].
    #[error("segments: {0}; give 1 to {MAX_SEGMENTS}")]
    Segments(u32),
    /// A multiple of 8 up to 352.
    #[error("lanes: {0}; give a multiple of {LANE_GROUP}, at most {MAX_LANES} (what a 1500-byte MTU carries)")]
    Lanes(u16),
    /// Values times this must fit 32 bits.
    #[error("scale_log2: {0}; give 0 to 30")]
    Scale(u8),
    /// One more would alias in the switch's rings.
    #[error("ssp({0}): the switch keeps 16 rounds apart, so give 1 to {MAX_SLACK} rounds of slack")]
    Slack(u8),
    /// Nobody, or more than there are.
    #[error("{name} = {quorum} can never be in of {members} workers; use 1 to {members}, n or n-1")]
    Quorum {
        /// The argument.
        name: &'static str,
        /// What it is.
        quorum: Quorum,
        /// The job's members.
        members: usize,
    },
    /// The id is another job's.
    #[error("id: job {0} is there already; unload it or take another number")]
    Exists(u8),
}

impl Job {
    /// Checks everything that the pipeline relies on.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), JobError> {
        if self.members.is_empty() || self.members.len() > usize::from(MAX_WORKERS) {
            return Err(JobError::Members(self.members.len()));
        }
        let mut before = self.members.iter().enumerate();
        if let Some((_, twice)) = before.find(|(i, address)| self.members[..*i].contains(address)) {
            return Err(JobError::SameAddress(*twice));
        }
        if self.segments == 0 || self.segments > MAX_SEGMENTS {
            return Err(JobError::Segments(self.segments));
        }
        let lanes = usize::from(self.lanes);
        if lanes == 0 || lanes > MAX_LANES || !lanes.is_multiple_of(LANE_GROUP) {
            return Err(JobError::Lanes(self.lanes));
        }
        if self.scale_log2 > 30 {
            return Err(JobError::Scale(self.scale_log2));
        }
        self.start.check(self.members.len())
    }

    /// A bit for each member.
    pub fn all_members(&self) -> u32 {
        u32::MAX.checked_shr(32u32.saturating_sub(self.members.len() as u32)).unwrap_or(0)
    }
}

impl Strategy {
    /// Whether so many workers can follow it.
    ///
    /// # Errors
    /// [`JobError::Slack`], [`JobError::Quorum`].
    pub fn check(&self, members: usize) -> Result<(), JobError> {
        let (name, quorum) = match *self {
            Strategy::Ssp { slack } if slack == 0 || slack > MAX_SLACK => return Err(JobError::Slack(slack)),
            Strategy::Partial { k, .. } => ("k", k),
            Strategy::Timed { kmin, .. } => ("kmin", kmin),
            Strategy::Bsp | Strategy::Ssp { .. } | Strategy::Asp => return Ok(()),
        };
        let possible = match quorum {
            Quorum::Exactly(count) => (1..=members).contains(&count.into()),
            Quorum::AllBut(count) => usize::from(count) < members,
            Quorum::PerMille(share) => (1..=1000).contains(&share),
        };
        if possible { Ok(()) } else { Err(JobError::Quorum { name, quorum, members }) }
    }
}
