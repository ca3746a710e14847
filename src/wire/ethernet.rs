//! Ethernet II with up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad).

use super::{Error, be16, bytes, put};

/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of RoCEv1, which is not routable and not our traffic.
pub const ROCE_V1: u16 = 0x8915;
/// Tag protocol identifier of a customer tag (802.1Q).
pub const TPID_CUSTOMER: u16 = 0x8100;
/// Tag protocol identifier of a service tag (802.1ad).
pub const TPID_SERVICE: u16 = 0x88a8;

/// Length of the header without tags.
pub const HEADER_LEN: usize = 14;
/// Length of one tag.
pub const TAG_LEN: usize = 4;
/// Tags that the view looks behind.
pub const MAX_TAGS: usize = 2;

mod field {
    pub const DST: usize = 0;
    pub const SRC: usize = 6;
    pub const TYPE: usize = 12;
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// [`TPID_CUSTOMER`] or [`TPID_SERVICE`].
    pub tpid: u16,
    /// Priority (3 bits), drop eligible (1), VLAN (12).
    pub tci: u16,
}

/// A view on a frame without FCS.
#[derive(Clone, Copy, Debug)]
pub struct Frame<T> {
    buffer: T,
    tags: u8,
}

impl<T: AsRef<[u8]>> Frame<T> {
    /// Looks behind at most [`MAX_TAGS`] tags; a third one is left as the EtherType. No accessor panics afterwards.
    ///
    /// # Errors
    /// [`Error::Truncated`] when the header with its tags does not fit.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let data = buffer.as_ref();
        let mut tags = 0;
        loop {
            let type_at = field::TYPE + TAG_LEN * tags;
            if data.len() < type_at + 2 {
                return Err(Error::Truncated("Ethernet"));
            }
            if tags == MAX_TAGS || !is_tpid(be16(data, type_at)) {
                return Ok(Frame { buffer, tags: tags as u8 });
            }
            tags += 1;
        }
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> [u8; 6] {
        self.address(field::DST)
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> [u8; 6] {
        self.address(field::SRC)
    }

    /// Number of tags: 0, 1 or 2.
    #[inline]
    pub fn tag_count(&self) -> usize {
        self.tags.into()
    }

    /// A tag, the outermost is number 0.
    #[inline]
    pub fn tag(&self, number: usize) -> Option<Tag> {
        let at = field::TYPE + TAG_LEN * number;
        let data = self.buffer.as_ref();
        (number < self.tag_count()).then(|| Tag { tpid: be16(data, at), tci: be16(data, at + 2) })
    }

    /// EtherType behind the tags.
    #[inline]
    pub fn ethertype(&self) -> u16 {
        be16(self.buffer.as_ref(), self.header_len() - 2)
    }

    /// Length of the header with its tags: 14, 18 or 22.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + TAG_LEN * self.tag_count()
    }

    #[inline]
    fn address(&self, at: usize) -> [u8; 6] {
        bytes(self.buffer.as_ref(), at)
    }
}

impl<'a> Frame<&'a [u8]> {
    /// Everything behind the header, Ethernet padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.buffer[self.header_len()..]
    }
}

#[inline]
const fn is_tpid(ethertype: u16) -> bool {
    matches!(ethertype, TPID_CUSTOMER | TPID_SERVICE)
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// Tags, outermost first; a second one without a first is not written.
    pub tags: [Option<Tag>; MAX_TAGS],
    /// EtherType behind the tags.
    pub ethertype: u16,
}

impl Repr {
    /// The header of a frame.
    pub fn parse<T: AsRef<[u8]>>(frame: &Frame<T>) -> Self {
        Repr { dst: frame.dst(), src: frame.src(), tags: [frame.tag(0), frame.tag(1)], ethertype: frame.ethertype() }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + TAG_LEN * self.tags.iter().map_while(|tag| *tag).count()
    }

    /// Writes the header and returns its length.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.header_len();
        let buffer = buffer.get_mut(..len).ok_or(Error::TooLong)?;
        put(buffer, field::DST, &self.dst);
        put(buffer, field::SRC, &self.src);
        for (number, tag) in self.tags.iter().map_while(|tag| *tag).enumerate() {
            let at = field::TYPE + TAG_LEN * number;
            put(buffer, at, &tag.tpid.to_be_bytes());
            put(buffer, at + 2, &tag.tci.to_be_bytes());
        }
        put(buffer, len - 2, &self.ethertype.to_be_bytes());
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn frame(rest: &[u8]) -> Vec<u8> {
        [&ADDRESSES[..], rest].concat()
    }

    #[test]
    fn the_ethertype_stands_behind_up_to_two_tags() {
        for (rest, tags, ethertype) in [
            (&[0x08, 0x00, 0x45][..], &[][..], IPV4),
            (&[0x81, 0x00, 0xa0, 0x05, 0x86, 0xdd, 0x60], &[Tag { tpid: TPID_CUSTOMER, tci: 0xa005 }], IPV6),
            (
                &[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x89, 0x15, 0x60],
                &[Tag { tpid: TPID_SERVICE, tci: 1 }, Tag { tpid: TPID_CUSTOMER, tci: 2 }],
                ROCE_V1,
            ),
            (
                &[0x81, 0x00, 0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3, 0x08, 0x00],
                &[Tag { tpid: TPID_CUSTOMER, tci: 1 }, Tag { tpid: TPID_CUSTOMER, tci: 2 }],
                TPID_CUSTOMER,
            ),
        ] {
            let bytes = frame(rest);
            let frame = Frame::new_checked(&bytes[..]).expect("whole");
            assert_eq!((0..tags.len()).filter_map(|n| frame.tag(n)).collect::<Vec<_>>(), tags);
            assert_eq!((frame.tag_count(), frame.tag(2), frame.ethertype()), (tags.len(), None, ethertype));
            assert_eq!((frame.dst(), frame.src()), ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]));
            let mut again = vec![0; frame.header_len()];
            assert_eq!(Repr::parse(&frame).emit(&mut again), Ok(frame.header_len()));
            assert_eq!([&again, frame.payload()].concat(), bytes);
        }
    }

    #[test]
    fn a_frame_that_ends_inside_its_header_is_truncated() {
        let bytes = frame(&[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x08, 0x00]);
        for len in 0..bytes.len() {
            assert_eq!(Frame::new_checked(&bytes[..len]).err(), Some(Error::Truncated("Ethernet")), "{len}");
        }
        assert!(Frame::new_checked(&bytes).is_ok());
    }
}
