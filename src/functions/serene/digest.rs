//! What the pipeline tells the control plane, by a bounded ring.

use std::collections::VecDeque;

use crate::dataplane::Nanos;

/// A note to the control plane. Those about rounds are of a job's last segment only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The job.
    pub job: u8,
    /// The round it is about; 0 for [`DigestKind::Alive`], [`DigestKind::Joined`] and [`DigestKind::Left`].
    pub round: u32,
    /// The worker whose packet caused it.
    pub worker: u8,
    /// When.
    pub at: Nanos,
    /// What.
    pub kind: DigestKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    /// A contribution came in, in time.
    Arrived {
        /// Its worker has no answer yet: it waits for the round's release, or for that of one within its slack.
        parked: bool,
    },
    /// A contribution came after its round was released.
    Late,
    /// A contribution came again.
    Again,
    /// A round was released. Its last contribution has an [`DigestKind::Arrived`] of its own before it.
    Released {
        /// A bit for each worker whose contribution is in it.
        included: u32,
        /// By a CLOSE: `worker` means nothing.
        closed: bool,
    },
    /// A process asks for the worker's place, or has taken it.
    Joined {
        /// The number that it drew when it started.
        incarnation: u32,
        /// It has taken another process's place.
        restarted: bool,
    },
    /// A worker will contribute no more.
    Left,
    /// The worker lives. At most one in [`ALIVE_NS`](super::ALIVE_NS) a worker.
    Alive,
    /// Every member of the armed rule has pushed for its boundary, `round`, or beyond. Said again until the swap is complete.
    Reached,
}

/// Digests that wait to be read. When it is full, new ones are lost and counted.
#[derive(Clone, Debug)]
pub(super) struct Digests {
    ring: VecDeque<Digest>,
    capacity: usize,
    lost: u64,
}

impl Digests {
    pub(super) fn new(capacity: usize) -> Self {
        Digests { ring: VecDeque::with_capacity(capacity), capacity, lost: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, digest: Digest) {
        if self.ring.len() < self.capacity {
            self.ring.push_back(digest);
        } else {
            self.lost += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Digest> {
        self.ring.pop_front()
    }

    /// How many were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}
