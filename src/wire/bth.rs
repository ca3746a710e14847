//! The base transport header of InfiniBand (IBTA vol. 1 clause 9.2) and what follows it in a RoCEv2 datagram:
//! extension headers by opcode, payload, 0-3 bytes of padding, ICRC.

use super::extension::{Aeth, AtomicEth, Deth, Reth};
use super::{Error, Headers, Opcode, be16, be24, be32, be64, icrc, put};

/// Length of the header.
pub const HEADER_LEN: usize = 12;

mod field {
    pub const OPCODE: usize = 0;
    pub const FLAGS: usize = 1;
    pub const PKEY: usize = 2;
    pub const ECN: usize = 4;
    pub const DEST_QPN: usize = 5;
    pub const ACK_REQUEST: usize = 8;
    pub const PSN: usize = 9;
}

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// A view on the payload of a UDP datagram to port 4791, ICRC included.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A whole BTH is there. No accessor panics afterwards; those for extension headers say `None` where the opcode has
    /// no such header or the bytes end before it does.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < HEADER_LEN {
            return Err(Error::Truncated("BTH"));
        }
        Ok(Packet { buffer })
    }

    /// Opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        Opcode(self.data()[field::OPCODE])
    }

    /// SE: the receiver is to raise an event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.data()[field::FLAGS] & SOLICITED != 0
    }

    /// M: the connection has migrated. Hardware commonly sends 1, soft-RoCE 0.
    #[inline]
    pub fn migrated(&self) -> bool {
        self.data()[field::FLAGS] & MIGRATED != 0
    }

    /// Bytes of padding behind the payload, 0..=3.
    #[inline]
    pub fn pad_count(&self) -> usize {
        usize::from(self.data()[field::FLAGS] >> 4 & 0b11)
    }

    /// Partition key; 0xffff is the default partition, full member.
    #[inline]
    pub fn pkey(&self) -> u16 {
        be16(self.data(), field::PKEY)
    }

    /// FECN.
    #[inline]
    pub fn fecn(&self) -> bool {
        self.data()[field::ECN] & FECN != 0
    }

    /// BECN: set in CNPs.
    #[inline]
    pub fn becn(&self) -> bool {
        self.data()[field::ECN] & BECN != 0
    }

    /// Destination queue pair, 24 bits. The header has no source queue pair.
    #[inline]
    pub fn dest_qpn(&self) -> u32 {
        be24(self.data(), field::DEST_QPN)
    }

    /// A: the requester wants an acknowledgement.
    #[inline]
    pub fn ack_request(&self) -> bool {
        self.data()[field::ACK_REQUEST] & ACK_REQUEST != 0
    }

    /// Packet sequence number, 24 bits.
    #[inline]
    pub fn psn(&self) -> u32 {
        be24(self.data(), field::PSN)
    }

    /// Length of the BTH with the extension headers that the opcode asks for.
    #[inline]
    pub fn headers_len(&self) -> usize {
        HEADER_LEN + self.opcode().headers().len()
    }

    /// Whether every extension header that the opcode asks for is there.
    #[inline]
    pub fn headers_are_whole(&self) -> bool {
        self.data().len() >= self.headers_len()
    }

    /// RETH.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        self.extension(Headers::RETH).map(Reth::read)
    }

    /// Immediate data, read big-endian.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        self.extension(Headers::IMMEDIATE).map(|bytes| be32(bytes, 0))
    }

    /// AETH.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        self.extension(Headers::AETH).map(Aeth::read)
    }

    /// AtomicETH.
    pub fn atomic_eth(&self) -> Option<AtomicEth> {
        self.extension(Headers::ATOMIC).map(AtomicEth::read)
    }

    /// AtomicAckETH: the value before the atomic operation.
    pub fn atomic_ack_eth(&self) -> Option<u64> {
        self.extension(Headers::ATOMIC_ACK).map(|bytes| be64(bytes, 0))
    }

    /// DETH.
    pub fn deth(&self) -> Option<Deth> {
        self.extension(Headers::DETH).map(Deth::read)
    }

    /// IETH: the remote key to invalidate.
    pub fn ieth(&self) -> Option<u32> {
        self.extension(Headers::INVALIDATE).map(|bytes| be32(bytes, 0))
    }

    /// The bytes of one extension header.
    #[inline]
    fn extension(&self, header: Headers) -> Option<&[u8]> {
        let headers = self.opcode().headers();
        if !headers.contains(header) {
            return None;
        }
        let at = HEADER_LEN + headers.before(header).len();
        self.data().get(at..at + header.len())
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<'a> Packet<&'a [u8]> {
    /// What lies between the headers and the padding, or `None` when headers, padding and ICRC do not fit.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        let end = self.buffer.len().checked_sub(self.pad_count() + icrc::LEN)?;
        self.buffer.get(self.headers_len()..end)
    }
}

/// A base transport header. M and the reserved bits are sent as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Opcode.
    pub opcode: Opcode,
    /// SE.
    pub solicited: bool,
    /// Bytes of padding, 0..=3.
    pub pad_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// FECN.
    pub fecn: bool,
    /// BECN.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub dest_qpn: u32,
    /// A.
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Repr {
    /// The header of a packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            opcode: packet.opcode(),
            solicited: packet.solicited(),
            pad_count: packet.pad_count() as u8,
            pkey: packet.pkey(),
            fecn: packet.fecn(),
            becn: packet.becn(),
            dest_qpn: packet.dest_qpn(),
            ack_request: packet.ack_request(),
            psn: packet.psn(),
        }
    }

    /// Writes 12 bytes and returns their number. Numbers are cut to 24 bits.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::TooLong)?;
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        buffer[field::OPCODE] = self.opcode.0;
        buffer[field::FLAGS] = flag(self.solicited, SOLICITED) | (self.pad_count & 0b11) << 4;
        put(buffer, field::PKEY, &self.pkey.to_be_bytes());
        buffer[field::ECN] = flag(self.fecn, FECN) | flag(self.becn, BECN);
        put(buffer, field::DEST_QPN, &self.dest_qpn.to_be_bytes()[1..]);
        buffer[field::ACK_REQUEST] = flag(self.ack_request, ACK_REQUEST);
        put(buffer, field::PSN, &self.psn.to_be_bytes()[1..]);
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::*;

    /// What follows the UDP header of an IPv4 frame.
    fn datagram(hex: &str) -> Vec<u8> {
        vectors::bytes(hex).split_off(42)
    }

    #[test]
    fn a_cnp_is_read() {
        let bytes = datagram(vectors::CNP_V4);
        let bth = Packet::new_checked(&bytes[..]).expect("whole");
        assert!(bth.opcode().is_cnp() && bth.becn() && !bth.fecn() && !bth.ack_request() && !bth.solicited());
        assert_eq!((bth.pkey(), bth.dest_qpn(), bth.psn(), bth.pad_count()), (0xffff, 0x118, 0, 0));
        assert_eq!(bth.payload(), Some(&[0; 16][..]));
        assert_eq!((bth.reth(), bth.aeth(), bth.immediate()), (None, None, None));
    }

    #[test]
    fn a_read_request_is_read() {
        let bytes = datagram(vectors::READ_REQUEST_V4);
        let bth = Packet::new_checked(&bytes[..]).expect("whole");
        assert_eq!((bth.opcode(), bth.dest_qpn(), bth.psn()), (Opcode::READ_REQUEST, 0x11, 0x54cb63));
        assert!(bth.ack_request());
        assert_eq!(bth.reth(), Some(Reth { va: 0x7fee_260f_b000, rkey: 0x2b8, dma_len: 0x1_0000 }));
        assert_eq!(bth.payload(), Some(&[][..]));
    }

    #[test]
    fn padding_and_icrc_are_no_payload() {
        let bytes = datagram(vectors::UC_SEND_V4);
        let bth = Packet::new_checked(&bytes[..]).expect("whole");
        assert!(bth.pad_count() == 2 && bth.migrated() && !bth.solicited());
        assert_eq!(bth.payload().map(<[u8]>::len), Some(18));
        assert_eq!(bth.payload(), Some(&bytes[12..30]));
    }

    #[test]
    fn extension_headers_stand_in_their_order() {
        let mut bytes = [0; 12 + 28 + 4];
        let headers: Vec<u8> = (1..=28).collect();
        bytes[12..40].copy_from_slice(&headers);
        let mut with = |opcode: u8| {
            bytes[0] = opcode;
            Packet::new_checked(bytes).expect("whole")
        };
        let atomic = AtomicEth {
            va: 0x0102030405060708,
            rkey: 0x090a0b0c,
            swap_or_add: 0x0d0e0f1011121314,
            compare: 0x15161718191a1b1c,
        };
        assert_eq!(with(0x13).atomic_eth(), Some(atomic));
        assert_eq!(with(0x12).aeth(), Some(Aeth { syndrome: 1, msn: 0x020304 }));
        assert_eq!(with(0x12).atomic_ack_eth(), Some(0x05060708090a0b0c));
        assert_eq!(with(0x0b).reth().map(|reth| reth.dma_len), Some(0x0d0e0f10));
        assert_eq!(with(0x0b).immediate(), Some(0x11121314));
        assert_eq!(with(0x09).immediate(), Some(0x01020304));
        assert_eq!(with(0x17).ieth(), Some(0x01020304));
        assert_eq!(with(0x65).deth(), Some(Deth { qkey: 0x01020304, src_qpn: 0x060708 }));
        assert_eq!(with(0x65).immediate(), Some(0x090a0b0c));
    }

    #[test]
    fn what_is_cut_off_is_not_there() {
        let bytes = datagram(vectors::READ_REQUEST_V4);
        assert_eq!(Packet::new_checked(&bytes[..11]).err(), Some(Error::Truncated("BTH")));
        let bth = Packet::new_checked(&bytes[..27]).expect("a whole BTH");
        assert_eq!((bth.headers_are_whole(), bth.reth(), bth.payload()), (false, None, None));
        let bth = Packet::new_checked(&bytes[..28]).expect("a whole BTH");
        assert_eq!((bth.headers_are_whole(), bth.reth().is_some(), bth.payload()), (true, true, None));
    }

    #[test]
    fn a_written_header_is_read_again() {
        let repr = Repr {
            opcode: Opcode::WRITE_LAST_IMM,
            solicited: true,
            pad_count: 3,
            pkey: 0x7fff,
            fecn: true,
            becn: true,
            dest_qpn: 0xabcdef,
            ack_request: true,
            psn: 0xfffff0,
        };
        let mut bytes = [0xaa; HEADER_LEN];
        assert_eq!(repr.emit(&mut bytes), Ok(HEADER_LEN));
        assert_eq!(bytes, [0x09, 0xb0, 0x7f, 0xff, 0xc0, 0xab, 0xcd, 0xef, 0x80, 0xff, 0xff, 0xf0]);
        assert_eq!(Repr::parse(&Packet::new_checked(bytes).expect("whole")), repr);
    }
}
