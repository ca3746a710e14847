//! Events in time order.
//!
//! An entry is 16 bytes, so that the four children of a heap's node share a cache line: the time, and in one word the
//! sequence number (40 bits: a million million events) and what happens (24 bits).

use std::cmp::Reverse;

use dary_heap::{PeekMut, QuaternaryHeap};

use crate::dataplane::Nanos;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The first packet on a link is there.
    Arrival(u32),
    /// The next packet of the switch port that feeds a link may depart.
    Departure(u32),
    /// A host's line is free and has something to send, or a timer of its endpoints fires.
    Line(u32),
    /// The neighbour of the switch port that feeds a link is to pause.
    Pause(u32),
    /// It may go on.
    Resume(u32),
    /// A transfer begins.
    Transfer(u32),
}

/// Bits of a link, line or transfer.
const INDEX_BITS: u32 = 21;
/// Bits of an event with its kind.
const EVENT_BITS: u32 = INDEX_BITS + 3;
/// Links, lines and transfers there may be, each.
pub(super) const MAX_INDEX: usize = 1 << INDEX_BITS;

impl Event {
    fn pack(self) -> u64 {
        let (kind, index) = match self {
            Event::Arrival(link) => (0, link),
            Event::Departure(link) => (1, link),
            Event::Line(line) => (2, line),
            Event::Pause(link) => (3, link),
            Event::Resume(link) => (4, link),
            Event::Transfer(index) => (5, index),
        };
        kind << INDEX_BITS | u64::from(index)
    }

    fn unpack(word: u64) -> Self {
        let index = (word & ((1 << INDEX_BITS) - 1)) as u32;
        match word >> INDEX_BITS & 7 {
            0 => Event::Arrival(index),
            1 => Event::Departure(index),
            2 => Event::Line(index),
            3 => Event::Pause(index),
            4 => Event::Resume(index),
            _ => Event::Transfer(index),
        }
    }
}

/// When, and in which order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    at: Nanos,
    sequence: u64,
}

/// A priority queue whose order is total: by time, then by sequence number.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: QuaternaryHeap<Reverse<(Nanos, u64)>>,
    sequence: u64,
}

fn entry(key: Key, event: Event) -> Reverse<(Nanos, u64)> {
    Reverse((key.at, key.sequence << EVENT_BITS | event.pack()))
}

impl EventQueue {
    /// The key of something that happens at `at` and was caused after everything that has a key already.
    #[inline]
    pub(super) fn key(&mut self, at: Nanos) -> Key {
        self.sequence += 1;
        Key { at, sequence: self.sequence }
    }

    /// Adds an event with a key of its own.
    #[inline]
    pub(super) fn push(&mut self, at: Nanos, event: Event) {
        let key = self.key(at);
        self.push_keyed(key, event);
    }

    /// Adds an event whose key was taken before.
    #[inline]
    pub(super) fn push_keyed(&mut self, key: Key, event: Event) {
        self.heap.push(entry(key, event));
    }

    /// Takes the first event out. Where `successor` knows what comes after it from the same source, that takes its place.
    #[inline]
    pub(super) fn pop(&mut self, successor: impl FnOnce(Event) -> Option<Key>) -> Option<(Nanos, Event)> {
        let mut top = self.heap.peek_mut()?;
        let Reverse((at, word)) = *top;
        let event = Event::unpack(word);
        match successor(event) {
            Some(key) => *top = entry(key, event),
            None => {
                PeekMut::pop(top);
            }
        }
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_keys() {
        let mut queue = EventQueue::default();
        let early = queue.key(7);
        queue.push(9, Event::Line(1));
        queue.push(7, Event::Departure(2));
        queue.push(8, Event::Transfer(MAX_INDEX as u32 - 1));
        queue.push_keyed(early, Event::Arrival(3));
        let mut order = Vec::new();
        let later = queue.key(8);
        while let Some(next) = queue.pop(|event| (event == Event::Arrival(3) && order.is_empty()).then_some(later)) {
            order.push(next);
        }
        let expected = [
            (7, Event::Arrival(3)),
            (7, Event::Departure(2)),
            (8, Event::Transfer(MAX_INDEX as u32 - 1)),
            (8, Event::Arrival(3)),
            (9, Event::Line(1)),
        ];
        assert_eq!(order, expected);
    }
}
