//! UDP (RFC 768).

use std::net::Ipv4Addr;

use super::{Error, PROTOCOL_UDP, be16, checksum, put};

/// Length of the header.
pub const HEADER_LEN: usize = 8;

mod field {
    pub const SRC_PORT: usize = 0;
    pub const DST_PORT: usize = 2;
    pub const LEN: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// A view on a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the length field, not the checksum, which RoCEv2 leaves at 0 (Annex A17.4.2.1). No accessor panics
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadLength`] for a length below 8.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Packet { buffer };
        let len = packet.data().len();
        if len < HEADER_LEN {
            return Err(Error::Truncated("UDP"));
        }
        if packet.length() < HEADER_LEN {
            return Err(Error::BadLength("UDP"));
        }
        if len < packet.length() {
            return Err(Error::Truncated("UDP"));
        }
        Ok(packet)
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.data(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.data(), field::DST_PORT)
    }

    /// Header and payload, in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        be16(self.data(), field::LEN).into()
    }

    /// Checksum; 0 for none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.data(), field::CHECKSUM)
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<'a> Packet<&'a [u8]> {
    /// The payload by the length field.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.buffer[HEADER_LEN..self.length()]
    }

    /// Whether nothing speaks against the datagram: its checksum is right, or there is none, or it is that of the
    /// pseudo-header alone, as Linux hands packets over whose checksum the hardware was to complete.
    pub fn checksum_is_sound(&self, src: Ipv4Addr, dst: Ipv4Addr) -> bool {
        let checksum = self.checksum();
        if checksum == 0 {
            return true;
        }
        let mut pseudo = [0; 12];
        put(&mut pseudo, 0, &src.octets());
        put(&mut pseudo, 4, &dst.octets());
        pseudo[9] = PROTOCOL_UDP;
        put(&mut pseudo, 10, &(self.length() as u16).to_be_bytes());
        let pseudo = checksum::sum(&pseudo);
        checksum == pseudo || checksum::add(pseudo, checksum::sum(&self.buffer[..self.length()])) == 0xffff
    }
}

/// A header with checksum 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes behind the header.
    pub payload_len: usize,
}

impl Repr {
    /// The header of a datagram.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr { src_port: packet.src_port(), dst_port: packet.dst_port(), payload_len: packet.length() - HEADER_LEN }
    }

    /// Writes 8 bytes and returns their number.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short or the length does not fit 16 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::TooLong)?;
        let length = u16::try_from(HEADER_LEN + self.payload_len).map_err(|_| Error::TooLong)?;
        put(buffer, field::SRC_PORT, &self.src_port.to_be_bytes());
        put(buffer, field::DST_PORT, &self.dst_port.to_be_bytes());
        put(buffer, field::LEN, &length.to_be_bytes());
        put(buffer, field::CHECKSUM, &[0, 0]);
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: [u8; 11] = [0xc0, 0x00, 0x12, 0xb7, 0x00, 0x0a, 0xca, 0xa2, 1, 2, 0xee];

    #[test]
    fn the_payload_ends_where_the_length_says() {
        let udp = Packet::new_checked(&DATAGRAM[..]).expect("whole");
        assert_eq!((udp.src_port(), udp.dst_port(), udp.length(), udp.checksum()), (0xc000, 4791, 10, 0xcaa2));
        assert_eq!(udp.payload(), [1, 2]);
        let mut again = [0xaa; HEADER_LEN];
        assert_eq!(Repr::parse(&udp).emit(&mut again), Ok(HEADER_LEN));
        assert_eq!(again, [0xc0, 0x00, 0x12, 0xb7, 0x00, 0x0a, 0, 0]);
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for (length, error) in [(7, Error::BadLength("UDP")), (12, Error::Truncated("UDP"))] {
            let mut bytes = DATAGRAM;
            bytes[5] = length;
            assert_eq!(Packet::new_checked(bytes).err(), Some(error));
        }
        assert_eq!(Packet::new_checked(&DATAGRAM[..7]).err(), Some(Error::Truncated("UDP")));
    }

    #[test]
    fn a_checksum_is_sound_when_right_absent_or_left_to_the_hardware() {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        // Pseudo-header: 0a00 + 0001 + 0a00 + 0002 + 0011 + 000a = 141e; with header and payload: e7e1.
        for (checksum, sound) in
            [([0xe7, 0x5e], false), ([0, 0], true), ([0x14, 0x1e], true), ([0x18, 0x1e], true), ([0x18, 0x1f], false)]
        {
            let mut bytes = DATAGRAM;
            bytes[6..8].copy_from_slice(&checksum);
            let udp = Packet::new_checked(&bytes[..]).expect("whole");
            assert_eq!(udp.checksum_is_sound(src, dst), sound, "{checksum:x?}");
        }
    }

    #[test]
    fn a_length_of_more_than_16_bits_is_refused() {
        let repr = Repr { src_port: 1, dst_port: 2, payload_len: 65_528 };
        assert_eq!(repr.emit(&mut [0; 8]), Err(Error::TooLong));
    }
}
