//! IPv4 (RFC 791), ECN (RFC 3168).

use std::net::Ipv4Addr;

use super::{Ecn, Error, PROTOCOL_UDP, be16, bytes, checksum, put};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;

/// First byte of a header without options: version and length.
pub const WITHOUT_OPTIONS: u8 = 0x45;

mod field {
    pub const VERSION_IHL: usize = 0;
    pub const TOS: usize = 1;
    pub const TOTAL_LEN: usize = 2;
    pub const ID: usize = 4;
    pub const FRAGMENT: usize = 6;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: usize = 10;
    pub const SRC: usize = 12;
    pub const DST: usize = 16;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A view on a packet that may be followed by Ethernet padding.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view whose accessors panic when the buffer is shorter than what the header announces.
    #[inline]
    pub const fn new_unchecked(buffer: T) -> Self {
        Packet { buffer }
    }

    /// Checks version and lengths (`20 <= header <= total <= buffer`), not the checksum. No accessor panics afterwards.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::WrongProtocol`] for another version, [`Error::BadLength`].
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Packet { buffer };
        let len = packet.buffer.as_ref().len();
        if len < HEADER_LEN {
            return Err(Error::Truncated("IPv4"));
        }
        if packet.buffer.as_ref()[field::VERSION_IHL] >> 4 != 4 {
            return Err(Error::WrongProtocol("IPv4"));
        }
        if packet.header_len() < HEADER_LEN || packet.total_len() < packet.header_len() {
            return Err(Error::BadLength("IPv4"));
        }
        if len < packet.total_len() {
            return Err(Error::Truncated("IPv4"));
        }
        Ok(packet)
    }

    /// Header length in bytes, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.data()[field::VERSION_IHL] & 0x0f) * 4
    }

    /// Header and payload, in bytes.
    #[inline]
    pub fn total_len(&self) -> usize {
        be16(self.data(), field::TOTAL_LEN).into()
    }

    /// DSCP and ECN as one byte.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.data()[field::TOS]
    }

    /// ECN field.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.tos())
    }

    /// Identification.
    #[inline]
    pub fn id(&self) -> u16 {
        be16(self.data(), field::ID)
    }

    /// The DF flag.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.data(), field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Whether this is a fragment, the first one included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.data(), field::FRAGMENT) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.data()[field::TTL]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.data()[field::PROTOCOL]
    }

    /// Header checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.data(), field::CHECKSUM)
    }

    /// Whether the header checksum is right.
    pub fn checksum_is_valid(&self) -> bool {
        checksum::sum(&self.data()[..self.header_len()]) == 0xffff
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        self.address(field::SRC)
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        self.address(field::DST)
    }

    #[inline]
    fn address(&self, at: usize) -> Ipv4Addr {
        bytes::<4>(self.data(), at).into()
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<'a> Packet<&'a [u8]> {
    /// The payload by total length: without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.buffer[self.header_len()..self.total_len()]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets CE and updates the checksum; the ICRC of RoCEv2 does not cover either. Returns whether the packet was
    /// ECN-capable: Not-ECT and CE are left alone.
    #[inline]
    pub fn set_ce(&mut self) -> bool {
        let markable = self.ecn().is_ect();
        if markable {
            self.replace(field::VERSION_IHL, |word| word | Ecn::Ce as u16);
        }
        markable
    }

    /// Takes one from the TTL and updates the checksum. Returns false, and changes nothing, when the TTL is 0 already.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        let alive = self.ttl() > 0;
        if alive {
            self.replace(field::TTL, |word| word - 0x100);
        }
        alive
    }

    /// Changes the 16-bit word at `at` and updates the checksum by it.
    #[inline]
    fn replace(&mut self, at: usize, change: impl FnOnce(u16) -> u16) {
        let (checksum, old) = (self.checksum(), be16(self.data(), at));
        let new = change(old);
        let data = self.buffer.as_mut();
        put(data, at, &new.to_be_bytes());
        put(data, field::CHECKSUM, &checksum::update(checksum, old, new).to_be_bytes());
    }
}

/// A header without options of an unfragmented packet with DF set and identification 0, as Linux sends from sockets with
/// `IP_MTU_DISCOVER=DO` (RFC 6864: the identification of an atomic datagram means nothing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP and ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Bytes behind the header.
    pub payload_len: usize,
}

impl Repr {
    /// The header of a packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            src: packet.src(),
            dst: packet.dst(),
            tos: packet.tos(),
            ttl: packet.ttl(),
            protocol: packet.protocol(),
            payload_len: packet.total_len() - packet.header_len(),
        }
    }

    /// Writes 20 bytes, checksum included, and returns their number.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short or the total length does not fit 16 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::TooLong)?;
        let total_len = u16::try_from(HEADER_LEN + self.payload_len).map_err(|_| Error::TooLong)?;
        buffer[field::VERSION_IHL] = WITHOUT_OPTIONS;
        buffer[field::TOS] = self.tos;
        put(buffer, field::TOTAL_LEN, &total_len.to_be_bytes());
        put(buffer, field::ID, &[0, 0]);
        put(buffer, field::FRAGMENT, &DONT_FRAGMENT.to_be_bytes());
        buffer[field::TTL] = self.ttl;
        buffer[field::PROTOCOL] = self.protocol;
        put(buffer, field::CHECKSUM, &[0, 0]);
        put(buffer, field::SRC, &self.src.octets());
        put(buffer, field::DST, &self.dst.octets());
        let checksum = !checksum::sum(buffer);
        put(buffer, field::CHECKSUM, &checksum.to_be_bytes());
        Ok(HEADER_LEN)
    }

    /// The header of a UDP packet with `payload_len` bytes from the UDP header on.
    pub const fn udp(src: Ipv4Addr, dst: Ipv4Addr, tos: u8, ttl: u8, payload_len: usize) -> Self {
        Repr { src, dst, tos, ttl, protocol: PROTOCOL_UDP, payload_len }
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::*;

    fn cnp() -> Vec<u8> {
        vectors::bytes(vectors::CNP_V4).split_off(14)
    }

    #[test]
    fn the_fields_of_a_captured_packet_are_read() {
        let bytes = cnp();
        let ip = Packet::new_checked(&bytes[..]).expect("whole");
        assert_eq!((ip.header_len(), ip.total_len(), ip.payload().len()), (20, 60, 40));
        assert_eq!((ip.tos(), ip.ecn(), ip.id(), ip.ttl(), ip.protocol()), (0xc2, Ecn::Ect0, 0x718c, 64, 17));
        assert_eq!((ip.src(), ip.dst()), (Ipv4Addr::new(10, 0, 17, 1), Ipv4Addr::new(10, 0, 18, 1)));
        assert_eq!((ip.dont_fragment(), ip.is_fragment()), (true, false));
        assert_eq!((ip.checksum(), ip.checksum_is_valid()), (0x9161, true));
    }

    #[test]
    fn a_written_header_differs_from_the_captured_one_in_identification_and_checksum_only() {
        let bytes = cnp();
        let mut again = [0xaa; HEADER_LEN];
        let repr = Repr::parse(&Packet::new_checked(&bytes[..]).expect("whole"));
        assert_eq!(repr.emit(&mut again), Ok(HEADER_LEN));
        assert_eq!((&again[..4], &again[6..10], &again[12..]), (&bytes[..4], &bytes[6..10], &bytes[12..20]));
        let mut padded = again.to_vec();
        padded.extend([0; 40]);
        let ip = Packet::new_checked(&padded[..]).expect("whole");
        assert_eq!((ip.id(), ip.checksum_is_valid()), (0, true));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        for (at, value, error) in [
            (0, 0x65, Error::WrongProtocol("IPv4")),
            (0, 0x44, Error::BadLength("IPv4")),
            (0, 0x4f, Error::BadLength("IPv4")), // 60 bytes of header pass; the total below does not
            (3, 61, Error::Truncated("IPv4")),
            (3, 19, Error::BadLength("IPv4")),
        ] {
            let mut bytes = cnp();
            bytes[at] = value;
            if value == 0x4f {
                bytes[3] = 59;
            }
            assert_eq!(Packet::new_checked(&bytes).err(), Some(error), "byte {at} is {value:#x}");
        }
        assert_eq!(Packet::new_checked(&cnp()[..19]).err(), Some(Error::Truncated("IPv4")));
    }

    #[test]
    fn any_piece_of_a_fragmented_packet_is_a_fragment_and_df_is_not() {
        for (flags, fragment) in [(0x0000, false), (0x4000, false), (0x2000, true), (0x0001, true), (0x20b9, true)] {
            let mut bytes = cnp();
            put(&mut bytes, field::FRAGMENT, &u16::to_be_bytes(flags));
            assert_eq!(Packet::new_checked(&bytes).expect("whole").is_fragment(), fragment, "{flags:#06x}");
        }
    }

    #[test]
    fn ce_is_set_on_ect_only_and_a_dead_ttl_stays() {
        for (tos, markable) in [(0xc0, false), (0xc1, true), (0xc2, true), (0xc3, false)] {
            let mut bytes = cnp();
            Repr { tos, ttl: 1, ..Repr::parse(&Packet::new_checked(&bytes).expect("whole")) }
                .emit(&mut bytes)
                .expect("fits");
            let mut ip = Packet::new_checked(&mut bytes).expect("whole");
            assert_eq!(ip.set_ce(), markable);
            assert_eq!(ip.tos(), if markable { 0xc3 } else { tos });
            assert_eq!((ip.decrement_ttl(), ip.ttl()), (true, 0));
            assert_eq!((ip.decrement_ttl(), ip.ttl()), (false, 0));
            assert!(ip.checksum_is_valid());
        }
    }
}
