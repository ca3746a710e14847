//! A queue pair: one message from a rank to the next, with go-back-N and an acknowledgement a packet.

use super::rate::Rate;
use crate::dataplane::Nanos;

/// A missing packet is asked for again after so long.
const NACK_INTERVAL_NS: Nanos = 500_000;

/// What a packet is to the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) queue_pair: u32,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Payload from byte `first` on.
    #[default]
    Nothing,
    Data {
        first: u32,
        bytes: u32,
    },
    /// All bytes before `next` have come.
    Acknowledge {
        next: u32,
        /// `next` did not come, but something behind it did.
        missing: bool,
        /// The packet that it answers was marked.
        flag: bool,
    },
}

/// Both ends of it.
#[derive(Debug)]
pub(super) struct QueuePair {
    /// Rank that sends.
    pub(super) from: u32,
    /// Number of the message, from 0.
    pub(super) number: u32,
    bytes: u32,
    /// First byte that is not acknowledged, and first that has not been sent.
    acknowledged: u32,
    next: u32,
    /// Earliest time of the next packet.
    pub(super) available: Nanos,
    pub(super) rate: Rate,
    receiver: Receiver,
}

#[derive(Debug, Default)]
struct Receiver {
    expected: u32,
    /// Last asked for: which byte, and until when not again.
    asked: Option<(u32, Nanos)>,
}

impl QueuePair {
    pub(super) fn new(from: u32, number: u32, bytes: u32, now: Nanos, line_bps: u64) -> Self {
        QueuePair {
            from,
            number,
            bytes,
            acknowledged: 0,
            next: 0,
            available: now,
            rate: Rate::new(line_bps),
            receiver: Receiver::default(),
        }
    }

    pub(super) fn left_bytes(&self) -> u32 {
        self.bytes - self.next
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        u64::from(self.next - self.acknowledged)
    }

    pub(super) fn is_done(&self) -> bool {
        self.acknowledged >= self.bytes
    }

    /// Takes the next up to `payload` bytes to send.
    pub(super) fn take(&mut self, payload: u32) -> (u32, u32) {
        let (first, bytes) = (self.next, self.left_bytes().min(payload));
        self.next += bytes;
        (first, bytes)
    }

    /// The receiver has data; returns what it answers, if anything.
    pub(super) fn on_data(&mut self, now: Nanos, first: u32, bytes: u32, flag: bool) -> Option<Kind> {
        let own = &mut self.receiver;
        if first == own.expected {
            own.expected += bytes;
            return Some(Kind::Acknowledge { next: own.expected, missing: false, flag });
        }
        let wait = own.asked.is_some_and(|(byte, until)| byte == own.expected && now < until);
        if first < own.expected || wait {
            return None;
        }
        own.asked = Some((own.expected, now + NACK_INTERVAL_NS));
        Some(Kind::Acknowledge { next: own.expected, missing: true, flag })
    }

    /// The sender has an acknowledgement; returns whether it completes the message.
    pub(super) fn on_acknowledge(&mut self, next: u32, missing: bool) -> bool {
        let was_done = self.is_done();
        self.acknowledged = self.acknowledged.max(next);
        // What was asked for again may have come in the meantime.
        self.next = if missing { self.acknowledged } else { self.next.max(self.acknowledged) };
        !was_done && self.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledge(next: u32, missing: bool) -> Option<Kind> {
        Some(Kind::Acknowledge { next, missing, flag: false })
    }

    #[test]
    fn a_gap_is_asked_for_once_in_its_interval_and_what_was_seen_is_dropped() {
        let mut own = QueuePair::new(0, 0, 2_500, 0, 1);
        assert_eq!(own.on_data(0, 0, 1000, false), acknowledge(1000, false));
        assert_eq!(own.on_data(1, 2000, 500, false), acknowledge(1000, true));
        assert_eq!(own.on_data(2, 2000, 500, false), None);
        assert_eq!(own.on_data(1 + NACK_INTERVAL_NS, 2000, 500, false), acknowledge(1000, true));
        assert_eq!(own.on_data(3, 0, 1000, false), None);
        assert_eq!(
            own.on_data(4, 1000, 1000, true),
            Some(Kind::Acknowledge { next: 2000, missing: false, flag: true })
        );
    }

    #[test]
    fn the_sender_goes_back_to_what_is_missing_and_completes_once() {
        let mut own = QueuePair::new(0, 0, 2_500, 0, 1);
        assert_eq!([own.take(1000), own.take(1000), own.take(1000)], [(0, 1000), (1000, 1000), (2000, 500)]);
        assert!(!own.on_acknowledge(1000, true));
        assert_eq!((own.left_bytes(), own.in_flight_bytes()), (1500, 0));
        assert_eq!(own.take(1000), (1000, 1000));
        assert!(own.on_acknowledge(2500, false), "the last packet had come after all");
        assert_eq!(own.left_bytes(), 0);
        assert!(!own.on_acknowledge(2500, false));
    }
}
