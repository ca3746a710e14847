//! UDP (RFC 768).

use super::{Error, be16, put};

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
