//! BTH opcodes (IBTA vol. 1 clause 9.2; RoCEv2 Annex A17 for CNP).

/// A BTH opcode: transport class in bits 7..5, operation in bits 4..0. Any byte is a valid value; not every one has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RDMA WRITE First.
    pub const WRITE_FIRST: Self = Opcode(0x06);
    /// RDMA WRITE Middle.
    pub const WRITE_MIDDLE: Self = Opcode(0x07);
    /// RDMA WRITE Last.
    pub const WRITE_LAST: Self = Opcode(0x08);
    /// RDMA WRITE Last with immediate.
    pub const WRITE_LAST_IMM: Self = Opcode(0x09);
    /// RDMA WRITE Only.
    pub const WRITE_ONLY: Self = Opcode(0x0a);
    /// RDMA WRITE Only with immediate.
    pub const WRITE_ONLY_IMM: Self = Opcode(0x0b);
    /// RDMA READ Request.
    pub const READ_REQUEST: Self = Opcode(0x0c);
    /// Acknowledge (and NAK).
    pub const ACKNOWLEDGE: Self = Opcode(0x11);
    /// Congestion notification packet (Annex A17.9).
    pub const CNP: Self = Opcode(0x81);

    /// ACK or NAK of RC (11), ATOMIC Acknowledge (12) excluded.
    pub const fn is_acknowledge(self) -> bool {
        self.0 == 0x11
    }

    /// Congestion notification.
    pub const fn is_cnp(self) -> bool {
        self.0 == 0x81
    }

    /// Request data of RC or UC: SEND and RDMA WRITE in all forms (00-0B, 16, 17, 20-2B).
    pub const fn is_request_data(self) -> bool {
        matches!(self.0, 0x00..=0x0b | 0x16 | 0x17 | 0x20..=0x2b)
    }

    /// Unreliable connection (class 001): no acknowledgements, no retransmission.
    pub const fn is_uc(self) -> bool {
        self.0 >> 5 == 0b001
    }

    /// Last packet of a message that carries an immediate (03 05 09 0B and their UC twins).
    pub const fn is_end_with_immediate(self) -> bool {
        matches!(self.0, 0x03 | 0x05 | 0x09 | 0x0b | 0x23 | 0x25 | 0x29 | 0x2b)
    }

    /// Last or only packet of a SEND or WRITE message.
    pub const fn is_message_end(self) -> bool {
        matches!(self.0, 0x02..=0x05 | 0x08..=0x0b | 0x16 | 0x17 | 0x22..=0x25 | 0x28..=0x2b)
    }

    /// Only packet of a SEND or WRITE message.
    pub const fn is_only(self) -> bool {
        matches!(self.0, 0x04 | 0x05 | 0x0a | 0x0b | 0x17 | 0x24 | 0x25 | 0x2a | 0x2b)
    }
}
