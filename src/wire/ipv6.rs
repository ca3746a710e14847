//! IPv6 (RFC 8200) without extension headers.

use std::net::Ipv6Addr;

use super::{Ecn, Error, PROTOCOL_UDP, be16, be32, put};

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Next header: a fragment header follows.
pub const NEXT_FRAGMENT: u8 = 44;

mod field {
    pub const VERSION_CLASS_FLOW: usize = 0;
    pub const PAYLOAD_LEN: usize = 4;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SRC: usize = 8;
    pub const DST: usize = 24;
}

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

    /// Checks version and length. No accessor panics afterwards.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::WrongProtocol`] for another version.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Packet { buffer };
        let len = packet.data().len();
        if len < HEADER_LEN {
            return Err(Error::Truncated("IPv6"));
        }
        if packet.data()[field::VERSION_CLASS_FLOW] >> 4 != 6 {
            return Err(Error::WrongProtocol("IPv6"));
        }
        if len < HEADER_LEN + packet.payload_len() {
            return Err(Error::Truncated("IPv6"));
        }
        Ok(packet)
    }

    /// Traffic class: DSCP and ECN as one byte.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.data(), field::VERSION_CLASS_FLOW) >> 4) as u8
    }

    /// ECN field.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.traffic_class())
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.data(), field::VERSION_CLASS_FLOW) & 0xf_ffff
    }

    /// Bytes behind the fixed header.
    #[inline]
    pub fn payload_len(&self) -> usize {
        be16(self.data(), field::PAYLOAD_LEN).into()
    }

    /// What follows the fixed header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.data()[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.data()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        self.address(field::SRC)
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        self.address(field::DST)
    }

    #[inline]
    fn address(&self, at: usize) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.data()[at..at + 16]);
        octets.into()
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<'a> Packet<&'a [u8]> {
    /// The payload by its length: without Ethernet padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.buffer[HEADER_LEN..HEADER_LEN + self.payload_len()]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets CE; no checksum covers the traffic class. Returns whether the packet was ECN-capable: Not-ECT and CE are left
    /// alone.
    #[inline]
    pub fn set_ce(&mut self) -> bool {
        let markable = self.ecn().is_ect();
        if markable {
            // The traffic class straddles two bytes; its ECN bits are bits 5..4 of the second.
            self.buffer.as_mut()[field::VERSION_CLASS_FLOW + 1] |= (Ecn::Ce as u8) << 4;
        }
        markable
    }

    /// Takes one from the hop limit. Returns false, and changes nothing, when it is 0 already.
    #[inline]
    pub fn decrement_hop_limit(&mut self) -> bool {
        let alive = self.hop_limit() > 0;
        if alive {
            self.buffer.as_mut()[field::HOP_LIMIT] -= 1;
        }
        alive
    }
}

/// A fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// What follows.
    pub next_header: u8,
    /// Bytes behind the header.
    pub payload_len: usize,
}

impl Repr {
    /// The header of a packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            src: packet.src(),
            dst: packet.dst(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
            next_header: packet.next_header(),
            payload_len: packet.payload_len(),
        }
    }

    /// Writes 40 bytes and returns their number.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short or the payload length does not fit 16 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::TooLong)?;
        let payload_len = u16::try_from(self.payload_len).map_err(|_| Error::TooLong)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        put(buffer, field::VERSION_CLASS_FLOW, &first.to_be_bytes());
        put(buffer, field::PAYLOAD_LEN, &payload_len.to_be_bytes());
        buffer[field::NEXT_HEADER] = self.next_header;
        buffer[field::HOP_LIMIT] = self.hop_limit;
        put(buffer, field::SRC, &self.src.octets());
        put(buffer, field::DST, &self.dst.octets());
        Ok(HEADER_LEN)
    }

    /// The header of a UDP packet with `payload_len` bytes from the UDP header on; flow label 0.
    pub const fn udp(src: Ipv6Addr, dst: Ipv6Addr, traffic_class: u8, hop_limit: u8, payload_len: usize) -> Self {
        Repr { src, dst, traffic_class, flow_label: 0, hop_limit, next_header: PROTOCOL_UDP, payload_len }
    }
}

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::*;

    #[test]
    fn the_fields_of_a_foreign_packet_are_read_and_written_again() {
        let bytes = vectors::bytes(vectors::UC_SEND_V6).split_off(14);
        let ip = Packet::new_checked(&bytes[..]).expect("whole");
        assert_eq!((ip.traffic_class(), ip.ecn(), ip.flow_label()), (0xe2, Ecn::Ect0, 0x1face));
        assert_eq!((ip.payload_len(), ip.next_header(), ip.hop_limit()), (44, 17, 255));
        assert_eq!((ip.src(), ip.dst()), ("2022::1023".parse().unwrap(), "2023::1024".parse().unwrap()));
        let mut again = [0xaa; HEADER_LEN];
        assert_eq!(Repr::parse(&ip).emit(&mut again), Ok(HEADER_LEN));
        assert_eq!(again, bytes[..HEADER_LEN]);
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let mut bytes = vectors::bytes(vectors::UC_SEND_V6).split_off(14);
        assert_eq!(Packet::new_checked(&bytes[..39]).err(), Some(Error::Truncated("IPv6")));
        bytes[5] += 1;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::Truncated("IPv6")));
        bytes[0] = 0x45;
        assert_eq!(Packet::new_checked(&bytes).err(), Some(Error::WrongProtocol("IPv6")));
    }

    #[test]
    fn ce_is_set_on_ect_only_and_touches_nothing_else() {
        for (ecn, markable) in [(0, false), (1, true), (2, true), (3, false)] {
            let mut bytes = vectors::bytes(vectors::UC_SEND_V6).split_off(14);
            bytes[1] = bytes[1] & 0xcf | ecn << 4;
            let mut expected = bytes.clone();
            expected[1] |= if markable { 0x30 } else { 0 };
            assert_eq!(Packet::new_checked(&mut bytes).expect("whole").set_ce(), markable);
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn a_dead_hop_limit_stays() {
        let mut bytes = vectors::bytes(vectors::UC_SEND_V6).split_off(14);
        bytes[7] = 1;
        let mut ip = Packet::new_checked(&mut bytes).expect("whole");
        assert_eq!((ip.decrement_hop_limit(), ip.hop_limit()), (true, 0));
        assert_eq!((ip.decrement_hop_limit(), ip.hop_limit()), (false, 0));
    }
}
