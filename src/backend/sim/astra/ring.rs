//! The collective: which rank sends its next step when.
//!
//! A rank sends the message of step k + 1 once it has received the one of step k and has paid the local cost. What it
//! receives are messages in any order: with a queue pair and a path of its own, a later one may be there first, and counts.

use crate::dataplane::Nanos;

/// Cost of one pass of a packet through an endpoint.
const ENDPOINT_DELAY_NS: Nanos = 10;
/// Local memory: bytes a nanosecond. A reduction writes once and reads twice.
const MEMORY_BYTES_PER_NS: u64 = 1600;

/// A ring all-reduce in chunks, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) ranks: u32,
    pub(super) chunks: u32,
    pub(super) message_bytes: u64,
}

/// One rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Rank {
    /// When it sends its next message; `None` while it waits for one, and at the end.
    pub(super) next_send: Option<Nanos>,
    /// Messages sent.
    sent: u32,
    /// Messages that have come.
    received: u32,
    /// When each was taken: steps completed.
    pub(super) steps: Vec<Nanos>,
    /// When it had all.
    pub(super) finish: Option<Nanos>,
}

impl Ring {
    /// Steps of one chunk.
    pub(super) fn steps(self) -> u32 {
        2 * (self.ranks - 1)
    }
}

impl Rank {
    /// A rank that begins at `begin`.
    pub(super) fn new(begin: Nanos) -> Self {
        Rank { next_send: Some(begin + ENDPOINT_DELAY_NS), ..Rank::default() }
    }

    /// It sends its next message: its number, from 0.
    pub(super) fn send(&mut self, now: Nanos, ring: Ring) -> u32 {
        self.next_send = None;
        self.sent += 1;
        self.take(now, ring);
        self.sent - 1
    }

    /// A message for it is complete.
    pub(super) fn receive(&mut self, now: Nanos, ring: Ring) {
        self.received += 1;
        self.take(now, ring);
    }

    /// Takes the next message: it asks for one when it has sent one.
    fn take(&mut self, now: Nanos, ring: Ring) {
        let taken = self.steps.len() as u32;
        if taken >= self.received || taken >= self.sent {
            return;
        }
        self.steps.push(now);
        let (step, chunk) = (taken % ring.steps(), taken / ring.steps());
        let reduces = step < ring.ranks - 1;
        let memory_ns = if reduces { 3 * (ring.message_bytes / MEMORY_BYTES_PER_NS) } else { 0 };
        let done = now + ENDPOINT_DELAY_NS + memory_ns;
        if step + 1 < ring.steps() {
            self.next_send = Some(done);
        } else if chunk + 1 < ring.chunks {
            self.next_send = Some(done + ENDPOINT_DELAY_NS);
        } else {
            self.finish = Some(done);
        }
    }
}
