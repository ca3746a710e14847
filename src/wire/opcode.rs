//! BTH opcodes (IBTA vol. 1 clause 9.2; RoCEv2 Annex A17 for CNP) and the extension headers they bring.

use std::fmt;

/// A BTH opcode: transport class in bits 7..5, operation in bits 4..0. Any byte is a valid value; not every one has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// Classes of opcodes, a bit each.
const REQUEST_DATA: u8 = 1 << 0;
const MESSAGE_END: u8 = 1 << 1;
const ONLY: u8 = 1 << 2;
const END_WITH_IMMEDIATE: u8 = 1 << 3;

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
    #[inline]
    pub const fn is_acknowledge(self) -> bool {
        self.0 == 0x11
    }

    /// Congestion notification.
    #[inline]
    pub const fn is_cnp(self) -> bool {
        self.0 == 0x81
    }

    /// Request data of RC or UC: SEND and RDMA WRITE in all forms (00-0B, 16, 17, 20-2B).
    #[inline]
    pub const fn is_request_data(self) -> bool {
        self.is(REQUEST_DATA)
    }

    /// Unreliable connection (class 001): no acknowledgements, no retransmission.
    #[inline]
    pub const fn is_uc(self) -> bool {
        self.0 >> 5 == 0b001
    }

    /// Last packet of a message that carries an immediate (03 05 09 0B and their UC twins).
    #[inline]
    pub const fn is_end_with_immediate(self) -> bool {
        self.is(END_WITH_IMMEDIATE)
    }

    /// Last or only packet of a SEND or WRITE message.
    #[inline]
    pub const fn is_message_end(self) -> bool {
        self.is(MESSAGE_END)
    }

    /// Only packet of a SEND or WRITE message.
    #[inline]
    pub const fn is_only(self) -> bool {
        self.is(ONLY)
    }

    /// Whether it is in a class; by table, since a packet is asked for several.
    #[inline]
    const fn is(self, class: u8) -> bool {
        const BY_OPCODE: [u8; 256] = {
            let mut classes = [0; 256];
            let mut opcode = 0;
            while opcode < 256 {
                classes[opcode] = Opcode(opcode as u8).find_classes();
                opcode += 1;
            }
            classes
        };
        BY_OPCODE[self.0 as usize] & class != 0
    }

    const fn find_classes(self) -> u8 {
        let opcode = self.0;
        let data = matches!(opcode, 0x00..=0x0b | 0x16 | 0x17 | 0x20..=0x2b);
        let end = matches!(opcode, 0x02..=0x05 | 0x08..=0x0b | 0x16 | 0x17 | 0x22..=0x25 | 0x28..=0x2b);
        let only = matches!(opcode, 0x04 | 0x05 | 0x0a | 0x0b | 0x17 | 0x24 | 0x25 | 0x2a | 0x2b);
        let immediate = matches!(opcode, 0x03 | 0x05 | 0x09 | 0x0b | 0x23 | 0x25 | 0x29 | 0x2b);
        (data as u8 * REQUEST_DATA)
            | (end as u8 * MESSAGE_END)
            | (only as u8 * ONLY)
            | (immediate as u8 * END_WITH_IMMEDIATE)
    }

    /// Whether the opcode is one of RC, UC, UD or CNP that this crate has a name and the headers for. Reliable datagrams,
    /// XRC and vendors' opcodes are not.
    pub const fn is_known(self) -> bool {
        self.name().is_some()
    }

    /// The extension headers of a packet with this opcode; none where the opcode is not known.
    #[inline]
    pub const fn headers(self) -> Headers {
        const BY_OPCODE: [Headers; 256] = {
            let mut headers = [Headers::NONE; 256];
            let mut opcode = 0;
            while opcode < 256 {
                headers[opcode] = Opcode(opcode as u8).find_headers();
                opcode += 1;
            }
            headers
        };
        BY_OPCODE[self.0 as usize]
    }

    const fn find_headers(self) -> Headers {
        use Headers as H;
        match self.0 {
            0x03 | 0x05 | 0x09 | 0x23 | 0x25 | 0x29 => H::IMMEDIATE,
            0x06 | 0x0a | 0x0c | 0x26 | 0x2a => H::RETH,
            0x0b | 0x2b => H::RETH.with(H::IMMEDIATE),
            0x0d | 0x0f..=0x11 => H::AETH,
            0x12 => H::AETH.with(H::ATOMIC_ACK),
            0x13 | 0x14 => H::ATOMIC,
            0x16 | 0x17 => H::INVALIDATE,
            0x64 => H::DETH,
            0x65 => H::DETH.with(H::IMMEDIATE),
            _ => H::NONE,
        }
    }

    /// Name in the manner of Wireshark's, with the transport shortened: "RC RDMA WRITE Middle".
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x00 => "RC SEND First",
            0x01 => "RC SEND Middle",
            0x02 => "RC SEND Last",
            0x03 => "RC SEND Last with Immediate",
            0x04 => "RC SEND Only",
            0x05 => "RC SEND Only with Immediate",
            0x06 => "RC RDMA WRITE First",
            0x07 => "RC RDMA WRITE Middle",
            0x08 => "RC RDMA WRITE Last",
            0x09 => "RC RDMA WRITE Last with Immediate",
            0x0a => "RC RDMA WRITE Only",
            0x0b => "RC RDMA WRITE Only with Immediate",
            0x0c => "RC RDMA READ Request",
            0x0d => "RC RDMA READ response First",
            0x0e => "RC RDMA READ response Middle",
            0x0f => "RC RDMA READ response Last",
            0x10 => "RC RDMA READ response Only",
            0x11 => "RC Acknowledge",
            0x12 => "RC ATOMIC Acknowledge",
            0x13 => "RC CmpSwap",
            0x14 => "RC FetchAdd",
            0x16 => "RC SEND Last with Invalidate",
            0x17 => "RC SEND Only with Invalidate",
            0x20 => "UC SEND First",
            0x21 => "UC SEND Middle",
            0x22 => "UC SEND Last",
            0x23 => "UC SEND Last with Immediate",
            0x24 => "UC SEND Only",
            0x25 => "UC SEND Only with Immediate",
            0x26 => "UC RDMA WRITE First",
            0x27 => "UC RDMA WRITE Middle",
            0x28 => "UC RDMA WRITE Last",
            0x29 => "UC RDMA WRITE Last with Immediate",
            0x2a => "UC RDMA WRITE Only",
            0x2b => "UC RDMA WRITE Only with Immediate",
            0x64 => "UD SEND Only",
            0x65 => "UD SEND Only with Immediate",
            0x81 => "CNP",
            _ => return None,
        })
    }
}

impl fmt::Display for Opcode {
    /// The name, or "opcode 0xc0" where there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

/// A set of extension headers. They stand on the wire in the order of the constants here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers(u8);

impl Headers {
    /// None.
    pub const NONE: Self = Headers(0);
    /// DETH.
    pub const DETH: Self = Headers(1 << 0);
    /// RETH.
    pub const RETH: Self = Headers(1 << 1);
    /// AtomicETH.
    pub const ATOMIC: Self = Headers(1 << 2);
    /// AETH.
    pub const AETH: Self = Headers(1 << 3);
    /// AtomicAckETH.
    pub const ATOMIC_ACK: Self = Headers(1 << 4);
    /// ImmDt.
    pub const IMMEDIATE: Self = Headers(1 << 5);
    /// IETH.
    pub const INVALIDATE: Self = Headers(1 << 6);

    /// Length of each, by bit.
    const LENGTHS: [u8; 7] = [8, 16, 28, 4, 8, 4, 4];

    /// Both sets.
    pub const fn with(self, other: Self) -> Self {
        Headers(self.0 | other.0)
    }

    /// Whether all of `other` is in the set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those of the set that stand before the single header `header`.
    pub const fn before(self, header: Self) -> Self {
        Headers(self.0 & header.0.wrapping_sub(1))
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Bytes on the wire.
    #[inline]
    pub const fn len(self) -> usize {
        const SUMS: [u8; 128] = {
            let mut sums = [0; 128];
            let mut set = 1;
            while set < sums.len() {
                let rest = set & (set - 1);
                sums[set] = sums[rest] + Headers::LENGTHS[set.trailing_zeros() as usize];
                set += 1;
            }
            sums
        };
        SUMS[self.0 as usize & 0x7f] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Opcode> {
        (0..=255).map(Opcode)
    }

    #[test]
    fn known_opcodes_are_those_of_rc_uc_ud_and_the_cnp() {
        let known: Vec<u8> = all().filter(|opcode| opcode.is_known()).map(|opcode| opcode.0).collect();
        let mut expected: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17]).chain(0x20..=0x2b).collect();
        expected.extend([0x64, 0x65, 0x81]);
        assert_eq!(known, expected);
    }

    /// The table in words: a name tells what headers there are.
    #[test]
    fn names_and_headers_agree() {
        for opcode in all() {
            let name = opcode.name().unwrap_or("");
            let expect = |header, there: bool| assert_eq!(opcode.headers().contains(header), there, "{opcode}");
            let starts_message = name.ends_with("First") || name.contains("Only");
            expect(Headers::IMMEDIATE, name.ends_with("Immediate"));
            expect(Headers::INVALIDATE, name.ends_with("Invalidate"));
            expect(Headers::RETH, name.contains("WRITE") && starts_message || name.contains("READ Request"));
            expect(
                Headers::AETH,
                name.ends_with("Acknowledge") || name.contains("READ response") && !name.ends_with("Middle"),
            );
            expect(Headers::ATOMIC, name.ends_with("CmpSwap") || name.ends_with("FetchAdd"));
            expect(Headers::ATOMIC_ACK, name.contains("ATOMIC"));
            expect(Headers::DETH, name.starts_with("UD"));
        }
    }

    #[test]
    fn predicates_and_names_agree() {
        for opcode in all() {
            let name = opcode.name().unwrap_or("");
            let connected = name.starts_with("RC") || name.starts_with("UC");
            let data = connected && (name.contains("SEND") || name.contains("WRITE"));
            assert_eq!(opcode.is_request_data(), data, "{opcode}");
            assert_eq!(opcode.is_only(), data && name.contains("Only"), "{opcode}");
            assert_eq!(opcode.is_message_end(), data && (name.contains("Only") || name.contains("Last")), "{opcode}");
            assert_eq!(opcode.is_end_with_immediate(), data && name.ends_with("Immediate"), "{opcode}");
            assert_eq!(opcode.is_uc() && opcode.is_known(), name.starts_with("UC"), "{opcode}");
        }
    }

    #[test]
    fn unknown_opcodes_are_shown_by_number() {
        assert_eq!(Opcode(0x07).to_string(), "RC RDMA WRITE Middle");
        assert_eq!(Opcode(0xc0).to_string(), "opcode 0xc0");
    }

    #[test]
    fn headers_know_their_order_and_lengths() {
        let write_only = Opcode::WRITE_ONLY_IMM.headers();
        assert_eq!((write_only.len(), write_only.before(Headers::IMMEDIATE)), (20, Headers::RETH));
        assert!(write_only.before(Headers::RETH).is_empty());
        let longest = all().map(|opcode| opcode.headers().len()).max();
        assert_eq!(longest, Some(28));
    }
}
