//! Events in time order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::topology::End;
use crate::dataplane::{Nanos, PortId};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first packet on a link is there.
    Arrival {
        /// Link.
        link: u32,
    },
    /// The next packet of a switch's port may depart.
    Departure {
        /// Switch.
        switch: u32,
        /// Port.
        port: PortId,
    },
    /// A host's line is free and has something to send, or a timer of its endpoints fires.
    Line {
        /// Line.
        line: u32,
    },
    /// A neighbour of a switch hears its pause or resume.
    Pause {
        /// Who.
        end: End,
        /// Pause.
        paused: bool,
    },
    /// A transfer begins.
    Transfer {
        /// Index in the setup.
        index: u32,
    },
}

/// When, and in which order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) at: Nanos,
    pub(super) sequence: u64,
}

/// A priority queue whose order is total: by time, then by sequence number.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(Key, Event)>>,
    sequence: u64,
}

impl EventQueue {
    /// The key of something that happens at `at` and was caused after everything that has a key already.
    #[inline]
    pub(super) fn key(&mut self, at: Nanos) -> Key {
        self.sequence += 1;
        Key { at, sequence: self.sequence }
    }

    #[inline]
    pub(super) fn push(&mut self, key: Key, event: Event) {
        self.heap.push(Reverse((key, event)));
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|Reverse((key, event))| (key.at, event))
    }
}
