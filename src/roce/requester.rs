//! The requester of a reliable connection: messages cut into packets, acknowledged in order, sent again from the first one
//! missing (go-back-N; IBTA vol. 1 clause 9.7).
//!
//! Packets are counted from 0 and exist only as numbers: `una <= next <= max <= end`, where `una` is the first not
//! acknowledged, `next` the one to send now, `max` the first never sent and `end` the first not posted.

use std::collections::VecDeque;

use super::psn;
use crate::dataplane::Nanos;
use crate::wire::Opcode;

/// PSNs compare right only over less than 2^23; half of that leaves room for what the network still holds.
const MAX_OUTSTANDING: u64 = 1 << 22;

/// One RDMA WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes; 0 is allowed and takes one packet.
    pub length: u32,
    /// Remote address.
    pub va: u64,
    /// Ends with an immediate.
    pub immediate: Option<u32>,
    /// UDP source port of its packets.
    pub sport: u16,
    /// Whatever tells the owner where the payload is.
    pub source: u64,
}

/// One packet to send: `len` bytes of `message` from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the packet.
    pub count: u64,
    /// FIRST, MIDDLE, LAST or ONLY, with or without immediate.
    pub opcode: Opcode,
    /// The message.
    pub message: Message,
    /// Bytes before.
    pub offset: u32,
    /// Bytes in this packet.
    pub len: u32,
    /// It has been sent before.
    pub retransmission: bool,
}

impl Segment {
    /// The last packet of its message, the one that asks for an acknowledgement.
    pub fn is_end(&self) -> bool {
        self.opcode.is_message_end()
    }
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    message: Message,
    first: u64,
    packets: u64,
}

/// Sends messages in order.
#[derive(Debug)]
pub struct Requester {
    path_mtu: u32,
    posted: VecDeque<Posted>,
    /// Index in `posted` of the message that holds `next`.
    cursor: usize,
    una: u64,
    next: u64,
    max: u64,
    end: u64,
    /// When a packet was sent or acknowledged last.
    last_activity: Nanos,
    timeouts: u32,
}

impl Requester {
    /// Nothing posted.
    pub fn new(path_mtu: u32) -> Self {
        Requester {
            path_mtu,
            posted: VecDeque::new(),
            cursor: 0,
            una: 0,
            next: 0,
            max: 0,
            end: 0,
            last_activity: 0,
            timeouts: 0,
        }
    }

    /// Takes a message to send.
    pub fn post(&mut self, message: Message) {
        let packets = u64::from(message.length.div_ceil(self.path_mtu).max(1));
        self.posted.push_back(Posted { message, first: self.end, packets });
        self.end += packets;
    }

    /// There is a packet to send.
    pub fn has_work(&self) -> bool {
        self.next < self.end && self.next - self.una < MAX_OUTSTANDING
    }

    /// Everything posted is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.una == self.end
    }

    /// Timeouts since something was acknowledged last.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// The peer is known to be there: timeouts so far were not its fault.
    pub fn forgive_timeouts(&mut self) {
        self.timeouts = 0;
    }

    /// The packet to send now, which counts as sent.
    pub fn next_segment(&mut self, now: Nanos) -> Option<Segment> {
        if !self.has_work() {
            return None;
        }
        let posted = *self.posted.get(self.cursor)?;
        let index = self.next - posted.first;
        let offset = (index * u64::from(self.path_mtu)) as u32;
        let (is_first, is_last) = (index == 0, index + 1 == posted.packets);
        let opcode = match (is_first, is_last, posted.message.immediate.is_some()) {
            (true, true, true) => Opcode::WRITE_ONLY_IMM,
            (true, true, false) => Opcode::WRITE_ONLY,
            (true, false, _) => Opcode::WRITE_FIRST,
            (false, false, _) => Opcode::WRITE_MIDDLE,
            (false, true, true) => Opcode::WRITE_LAST_IMM,
            (false, true, false) => Opcode::WRITE_LAST,
        };
        let segment = Segment {
            count: self.next,
            opcode,
            message: posted.message,
            offset,
            len: (posted.message.length - offset).min(self.path_mtu),
            retransmission: self.next < self.max,
        };
        self.next += 1;
        self.max = self.max.max(self.next);
        self.cursor += usize::from(is_last);
        self.last_activity = now;
        Some(segment)
    }

    /// Everything up to and with `psn` has arrived. Returns how many messages that completes; `None` for an
    /// acknowledgement of what is not outstanding.
    pub fn on_ack(&mut self, now: Nanos, first_psn: u32, psn: u32) -> Option<u32> {
        let upto = psn::from_wire(first_psn, psn, self.una)?.checked_add(1)?;
        if upto <= self.una || upto > self.max {
            return None;
        }
        Some(self.acknowledge(now, upto))
    }

    /// The receiver misses `psn`: everything before has arrived, the rest is sent again. Returns as [`Self::on_ack`].
    pub fn on_sequence_nak(&mut self, now: Nanos, first_psn: u32, psn: u32) -> Option<u32> {
        let upto = psn::from_wire(first_psn, psn, self.una)?;
        if upto < self.una || upto >= self.max {
            return None;
        }
        let completed = self.acknowledge(now, upto);
        self.go_back();
        Some(completed)
    }

    /// When to give up waiting: set while everything posted is sent and something is not acknowledged.
    pub fn deadline(&self, timeout_ns: Nanos) -> Option<Nanos> {
        (!self.has_work() && self.una < self.max).then(|| self.last_activity.saturating_add(timeout_ns))
    }

    /// The deadline has passed: everything not acknowledged is sent again.
    pub fn on_timeout(&mut self, now: Nanos) {
        self.timeouts += 1;
        self.last_activity = now;
        self.go_back();
    }

    fn acknowledge(&mut self, now: Nanos, upto: u64) -> u32 {
        if upto > self.una {
            self.una = upto;
            self.timeouts = 0;
            self.last_activity = now;
        }
        let mut completed = 0;
        while self.posted.front().is_some_and(|posted| posted.first + posted.packets <= upto) {
            self.posted.pop_front();
            completed += 1;
        }
        self.cursor = self.cursor.saturating_sub(completed as usize);
        if self.next < upto {
            // An acknowledgement of what was sent before going back.
            self.next = upto;
            self.cursor = 0;
        }
        completed
    }

    fn go_back(&mut self) {
        self.next = self.una;
        self.cursor = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(length: u32, immediate: Option<u32>) -> Message {
        Message { length, va: 0, immediate, sport: 0xc000, source: 0 }
    }

    fn opcodes(requester: &mut Requester) -> Vec<(u64, u8, u32)> {
        std::iter::from_fn(|| requester.next_segment(0)).map(|s| (s.count, s.opcode.0, s.len)).collect()
    }

    #[test]
    fn messages_are_cut_into_path_mtu_packets() {
        let mut requester = Requester::new(1024);
        requester.post(write(2500, Some(1)));
        requester.post(write(0, Some(2)));
        requester.post(write(64, None));
        requester.post(write(2048, None));
        assert_eq!(
            opcodes(&mut requester),
            [
                (0, 0x06, 1024),
                (1, 0x07, 1024),
                (2, 0x09, 452),
                (3, 0x0b, 0),
                (4, 0x0a, 64),
                (5, 0x06, 1024),
                (6, 0x08, 1024)
            ]
        );
    }

    #[test]
    fn a_sequence_nak_restarts_in_the_middle_of_a_message() {
        let mut requester = Requester::new(1024);
        requester.post(write(1024, Some(0)));
        requester.post(write(4096, Some(1)));
        assert_eq!(opcodes(&mut requester).len(), 5);
        assert_eq!(requester.on_sequence_nak(0, 0xff_ffff, 1), Some(1)); // PSNs ff_ffff, 0, 1, ..: packet 2
        assert_eq!(opcodes(&mut requester), [(2, 0x07, 1024), (3, 0x07, 1024), (4, 0x09, 1024)]);
        assert!(!requester.is_idle());
        assert_eq!(requester.on_ack(0, 0xff_ffff, 3), Some(1));
        assert!(requester.is_idle());
    }

    #[test]
    fn an_acknowledgement_beyond_the_restart_point_is_not_sent_again() {
        let mut requester = Requester::new(1024);
        requester.post(write(4096, Some(1)));
        requester.post(write(1024, Some(2)));
        assert_eq!(opcodes(&mut requester).len(), 5);
        requester.on_timeout(7);
        assert!(requester.next_segment(7).is_some_and(|s| s.count == 0 && s.retransmission));
        assert_eq!(requester.on_ack(8, 0, 3), Some(1));
        assert_eq!(opcodes(&mut requester), [(4, 0x0b, 1024)]);
    }

    #[test]
    fn acknowledgements_of_nothing_outstanding_are_refused() {
        let mut requester = Requester::new(1024);
        requester.post(write(2048, Some(1)));
        requester.next_segment(0);
        for psn in [1, 2, 0xff_ffff, 0x80_0000] {
            assert_eq!(requester.on_ack(0, 0, psn), None, "{psn:x}");
        }
        for psn in [1, 0xff_ffff] {
            assert_eq!(requester.on_sequence_nak(0, 0, psn), None, "{psn:x}");
        }
        assert_eq!(requester.on_ack(0, 0, 0), Some(0));
        assert_eq!(requester.on_ack(0, 0, 0), None, "a second time");
    }

    #[test]
    fn the_timer_runs_only_while_all_is_sent_and_not_all_acknowledged() {
        let mut requester = Requester::new(1024);
        assert_eq!(requester.deadline(100), None);
        requester.post(write(2048, Some(1)));
        requester.next_segment(10);
        assert_eq!(requester.deadline(100), None, "a slow sender is not a lost packet");
        requester.next_segment(500);
        assert_eq!(requester.deadline(100), Some(600));
        requester.on_ack(550, 0, 0);
        assert_eq!(requester.deadline(100), Some(650));
        requester.on_ack(560, 0, 1);
        assert_eq!(requester.deadline(100), None);
    }
}
