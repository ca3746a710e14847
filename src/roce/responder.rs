//! The responder of a reliable connection: takes packets in PSN order only, acknowledges message ends, asks once for what
//! is missing (IBTA vol. 1 clause 9.7.5).

use super::psn;
use crate::wire::extension::Aeth;
use crate::wire::roce::Repr;

/// The message that the owner lets the peer write next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where.
    pub va: u64,
    /// How many bytes, exactly.
    pub length: u32,
    /// Whether it ends with an immediate.
    pub immediate: bool,
}

/// What a request packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next one: `len` bytes at `offset` of the granted message; `end` completes it.
    InOrder {
        /// Bytes before.
        offset: u32,
        /// Bytes in this packet.
        len: u32,
        /// The message is complete.
        end: bool,
    },
    /// Older than expected: sent again without need.
    Duplicate,
    /// Newer than expected: something is missing before it.
    Gap,
    /// In order, but not what was granted. The connection has failed.
    Invalid,
}

/// Receives messages in order.
#[derive(Debug, Default)]
pub struct Responder {
    /// Number of the packet that must come next.
    expected: u64,
    /// Bytes of the current message that have come; `None` between messages.
    received: Option<u32>,
    msn: u32,
    nak_sent: bool,
    failed: bool,
    ack_due: bool,
    nak_due: Option<u8>,
}

impl Responder {
    /// Takes a request packet. `grant` is the message that may come or is on its way.
    pub fn on_request(&mut self, repr: &Repr, first_psn: u32, path_mtu: u32, grant: Option<Grant>) -> Arrival {
        if self.failed {
            return Arrival::Invalid;
        }
        let Some(count) = psn::from_wire(first_psn, repr.psn, self.expected) else { return Arrival::Duplicate };
        if count < self.expected {
            self.ack_due |= repr.ack_req;
            return Arrival::Duplicate;
        }
        if count > self.expected {
            if !self.nak_sent {
                self.nak_sent = true;
                self.nak_due = Some(Aeth::NAK_PSN_SEQUENCE);
            }
            return Arrival::Gap;
        }
        let (offset, len, end) = match self.place(repr, path_mtu, grant) {
            Ok(placed) => placed,
            Err(syndrome) => {
                self.failed = true;
                self.nak_due = Some(syndrome);
                return Arrival::Invalid;
            }
        };
        self.expected += 1;
        self.nak_sent = false;
        self.received = (!end).then_some(offset + len);
        self.msn = (self.msn + u32::from(end)) & psn::MASK;
        self.ack_due |= repr.ack_req;
        Arrival::InOrder { offset, len, end }
    }

    /// Where the next packet in order goes, or the NAK it earns.
    fn place(&self, repr: &Repr, path_mtu: u32, grant: Option<Grant>) -> Result<(u32, u32, bool), u8> {
        let grant = grant.ok_or(Aeth::NAK_REMOTE_ACCESS)?;
        let end = repr.opcode.is_message_end();
        let offset = match (repr.reth, self.received) {
            (Some(reth), None) => {
                if reth.va != grant.va || reth.dma_len != grant.length || reth.rkey != repr.dest_qpn {
                    return Err(Aeth::NAK_REMOTE_ACCESS);
                }
                0
            }
            (None, Some(received)) => received,
            _ => return Err(Aeth::NAK_INVALID_REQUEST),
        };
        let rest = grant.length.saturating_sub(offset);
        let fits = repr.payload_len == rest.min(path_mtu) as usize
            && end == (rest <= path_mtu)
            && (!end || repr.immediate.is_some() == grant.immediate);
        if fits { Ok((offset, rest.min(path_mtu), end)) } else { Err(Aeth::NAK_INVALID_REQUEST) }
    }

    /// An acknowledgement is waiting to be sent.
    pub fn has_work(&self) -> bool {
        self.ack_due || self.nak_due.is_some()
    }

    /// The acknowledgement to send now: its PSN and AETH. A NAK acknowledges everything before it, so it goes alone.
    pub fn next_acknowledgement(&mut self, first_psn: u32) -> Option<(u32, Aeth)> {
        if let Some(syndrome) = self.nak_due.take() {
            self.ack_due = false;
            return Some((psn::to_wire(first_psn, self.expected), Aeth { syndrome, msn: self.msn }));
        }
        if !std::mem::take(&mut self.ack_due) {
            return None;
        }
        let last = self.expected.checked_sub(1)?;
        Some((psn::to_wire(first_psn, last), Aeth { syndrome: Aeth::ACK, msn: self.msn }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::wire::Opcode;
    use crate::wire::extension::Reth;

    const GRANT: Option<Grant> = Some(Grant { va: 0x1000, length: 2500, immediate: true });

    fn packet(opcode: Opcode, psn: u32, payload_len: usize) -> Repr {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let headers = opcode.headers();
        Repr {
            psn,
            payload_len,
            ack_req: opcode.is_message_end(),
            reth: headers.contains(crate::wire::Headers::RETH).then_some(Reth {
                va: 0x1000,
                rkey: 0x11,
                dma_len: 2500,
            }),
            immediate: headers.contains(crate::wire::Headers::IMMEDIATE).then_some(7),
            ..Repr::new(any, any, opcode, 0x11)
        }
    }

    fn take(responder: &mut Responder, packet: &Repr) -> Arrival {
        responder.on_request(packet, 0xff_ffff, 1024, GRANT)
    }

    #[test]
    fn a_message_is_placed_in_order_and_acknowledged_once_with_its_number() {
        let mut responder = Responder::default();
        let first = take(&mut responder, &packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024));
        assert_eq!(first, Arrival::InOrder { offset: 0, len: 1024, end: false });
        take(&mut responder, &packet(Opcode::WRITE_MIDDLE, 0, 1024));
        assert_eq!(responder.next_acknowledgement(0xff_ffff), None);
        let last = take(&mut responder, &packet(Opcode::WRITE_LAST_IMM, 1, 452));
        assert_eq!(last, Arrival::InOrder { offset: 2048, len: 452, end: true });
        assert_eq!(responder.next_acknowledgement(0xff_ffff), Some((1, Aeth { syndrome: 0x1f, msn: 1 })));
        assert_eq!(responder.next_acknowledgement(0xff_ffff), None);
    }

    #[test]
    fn a_gap_is_asked_for_once_until_it_is_filled() {
        let mut responder = Responder::default();
        assert_eq!(take(&mut responder, &packet(Opcode::WRITE_MIDDLE, 0, 1024)), Arrival::Gap);
        assert_eq!(responder.next_acknowledgement(0xff_ffff), Some((0xff_ffff, Aeth { syndrome: 0x60, msn: 0 })));
        assert_eq!(take(&mut responder, &packet(Opcode::WRITE_LAST_IMM, 1, 452)), Arrival::Gap);
        assert_eq!(responder.next_acknowledgement(0xff_ffff), None);
        take(&mut responder, &packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024));
        assert_eq!(take(&mut responder, &packet(Opcode::WRITE_LAST_IMM, 1, 452)), Arrival::Gap);
        assert_eq!(responder.next_acknowledgement(0xff_ffff), Some((0, Aeth { syndrome: 0x60, msn: 0 })));
    }

    #[test]
    fn a_duplicate_that_asks_is_acknowledged_again() {
        let mut responder = Responder::default();
        take(&mut responder, &packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024));
        assert_eq!(take(&mut responder, &packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024)), Arrival::Duplicate);
        assert_eq!(responder.next_acknowledgement(0xff_ffff), None);
        let asking = Repr { ack_req: true, ..packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024) };
        assert_eq!(take(&mut responder, &asking), Arrival::Duplicate);
        assert_eq!(responder.next_acknowledgement(0xff_ffff), Some((0xff_ffff, Aeth { syndrome: 0x1f, msn: 0 })));
    }

    #[test]
    fn what_was_not_granted_fails_the_connection_with_the_right_nak() {
        let wrong_key = Repr { dest_qpn: 0x12, ..packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024) };
        for (packet, syndrome) in [
            (packet(Opcode::WRITE_MIDDLE, 0xff_ffff, 1024), 0x61),
            (packet(Opcode::WRITE_FIRST, 0xff_ffff, 1000), 0x61),
            (packet(Opcode::WRITE_ONLY_IMM, 0xff_ffff, 1024), 0x61),
            (wrong_key, 0x62),
        ] {
            let mut responder = Responder::default();
            assert_eq!(take(&mut responder, &packet), Arrival::Invalid);
            assert_eq!(responder.next_acknowledgement(0xff_ffff), Some((0xff_ffff, Aeth { syndrome, msn: 0 })));
        }
        let mut responder = Responder::default();
        let packet = packet(Opcode::WRITE_FIRST, 0xff_ffff, 1024);
        assert_eq!(responder.on_request(&packet, 0xff_ffff, 1024, None), Arrival::Invalid);
    }
}
