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
    pub(super) message_bytes: u32,
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

    /// The rank that a rank sends to.
    pub(super) fn next(self, rank: u32) -> u32 {
        (rank + 1) % self.ranks
    }
}

impl Rank {
    /// A rank that begins at `start`.
    pub(super) fn new(start: Nanos) -> Self {
        Rank { next_send: Some(start + ENDPOINT_DELAY_NS), ..Rank::default() }
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
        let memory_ns = if reduces { 3 * (u64::from(ring.message_bytes) / MEMORY_BYTES_PER_NS) } else { 0 };
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

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring { ranks: 3, chunks: 1, message_bytes: 16_000 };

    #[test]
    fn a_reduction_costs_three_passes_of_memory_and_the_end_a_pass_of_the_endpoint() {
        let mut rank = Rank::new(100);
        let mut now = 0;
        for step in 0..4 {
            now = rank.next_send.unwrap();
            assert_eq!(rank.send(now, RING), step);
            rank.receive(now + 1000, RING);
        }
        // Sent at 110; then a microsecond a step, 10 ns, and 30 ns in the first two.
        assert_eq!(now, 110 + 3 * 1010 + 2 * 30);
        assert_eq!((rank.next_send, rank.finish), (None, Some(now + 1010)));
    }

    #[test]
    fn a_message_that_is_early_waits_until_it_is_asked_for() {
        let mut rank = Rank::new(0);
        rank.send(10, RING);
        rank.receive(500, RING);
        rank.receive(501, RING);
        assert_eq!((rank.next_send, rank.steps.len()), (Some(540), 1));
        rank.send(540, RING);
        assert_eq!((rank.next_send, rank.steps.as_slice()), (Some(580), [500, 540].as_slice()));
    }
}
