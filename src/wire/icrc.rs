//! The invariant CRC of RoCEv2 (IBTA Annex A17.3.3): CRC-32 over 8 bytes of 0xff, the IP and UDP headers and everything
//! behind them, with the fields that the network may change taken as ones. So ECN marks and TTL decrements keep it valid.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Error, PROTOCOL_UDP, bth, ipv4, ipv6, udp};

/// Length on the wire; the value stands there least significant byte first.
pub const LEN: usize = 4;

/// CRC-32 of the eight 0xff bytes that stand for the link header of InfiniBand.
const AFTER_DUMMY_LRH: u32 = 0x2144_df1c;

/// Where the checksum of UDP is, from the UDP header on.
const UDP_CHECKSUM: usize = 6;
/// Where the byte with FECN, BECN and 6 reserved bits is, from the BTH on.
const BTH_ECN: usize = 4;

/// An ICRC under way. Hash the headers with one of the constructors, then what follows with [`Icrc::update`].
#[derive(Clone, Debug)]
pub struct Icrc(crc32fast::Hasher);

impl Icrc {
    /// Starts with an IPv4 header, options included.
    pub fn ipv4(header: &[u8]) -> Self {
        let mut masked = [0u8; 60];
        let len = header.len().min(masked.len());
        masked[..len].copy_from_slice(&header[..len]);
        masked[1] = 0xff; // DSCP and ECN
        masked[8] = 0xff; // TTL
        masked[10] = 0xff; // header checksum
        masked[11] = 0xff;
        Self::start(&masked[..len])
    }

    /// Starts with an IPv6 header.
    pub fn ipv6(header: &[u8; ipv6::HEADER_LEN]) -> Self {
        let mut masked = *header;
        masked[0] |= 0x0f; // traffic class and flow label
        masked[1] = 0xff;
        masked[2] = 0xff;
        masked[3] = 0xff;
        masked[7] = 0xff; // hop limit
        Self::start(&masked)
    }

    fn start(masked: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new_with_initial(AFTER_DUMMY_LRH);
        hasher.update(masked);
        Icrc(hasher)
    }

    /// Goes on with the UDP header and the BTH.
    pub fn udp_bth(&mut self, udp: &[u8; udp::HEADER_LEN], bth: &[u8; bth::HEADER_LEN]) {
        let mut masked = [0u8; udp::HEADER_LEN + bth::HEADER_LEN];
        masked[..udp::HEADER_LEN].copy_from_slice(udp);
        masked[udp::HEADER_LEN..].copy_from_slice(bth);
        masked[UDP_CHECKSUM] = 0xff;
        masked[UDP_CHECKSUM + 1] = 0xff;
        masked[udp::HEADER_LEN + BTH_ECN] = 0xff;
        self.0.update(&masked);
    }

    /// Goes on with bytes behind the BTH: extension headers, payload, padding.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The four bytes that end the datagram.
    pub fn finish(self) -> [u8; LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// The ICRC of the RoCEv2 packet whose IP header starts `packet`. Its end is where the IP and UDP lengths say, not where
/// the frame ends; its last four bytes, the ICRC's place, are not looked at.
///
/// # Errors
/// When `packet` is not an unfragmented UDP packet with at least a BTH and an ICRC. The port is not looked at.
pub fn compute(packet: &[u8]) -> Result<[u8; LEN], Error> {
    split(packet).map(|(computed, _)| computed)
}

/// Checks the ICRC of the RoCEv2 packet whose IP header starts `packet`.
///
/// # Errors
/// As [`compute`]; [`Error::BadIcrc`].
pub fn verify(packet: &[u8]) -> Result<(), Error> {
    let (computed, carried) = split(packet)?;
    if computed == carried { Ok(()) } else { Err(Error::BadIcrc) }
}

/// The ICRC as it should be and as it is.
fn split(packet: &[u8]) -> Result<([u8; LEN], [u8; LEN]), Error> {
    let (mut icrc, datagram) = match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let ip = ipv4::Packet::new_checked(packet)?;
            if ip.is_fragment() {
                return Err(Error::Fragment);
            }
            if ip.protocol() != PROTOCOL_UDP {
                return Err(Error::WrongProtocol("UDP"));
            }
            (Icrc::ipv4(&packet[..ip.header_len()]), ip.payload())
        }
        Some(6) => {
            let ip = ipv6::Packet::new_checked(packet)?;
            if ip.next_header() != PROTOCOL_UDP {
                return Err(Error::WrongProtocol("UDP"));
            }
            let header = packet.first_chunk().ok_or(Error::Truncated("IPv6"))?;
            (Icrc::ipv6(header), ip.payload())
        }
        _ => return Err(Error::WrongProtocol("IP")),
    };
    let payload = udp::Packet::new_checked(datagram)?.payload();
    let (covered, carried) = payload.split_last_chunk::<LEN>().ok_or(Error::Truncated("ICRC"))?;
    let udp = datagram.first_chunk().ok_or(Error::Truncated("UDP"))?;
    let (bth, rest) = covered.split_first_chunk().ok_or(Error::Truncated("BTH"))?;
    icrc.udp_bth(udp, bth);
    icrc.update(rest);
    Ok((icrc.finish(), *carried))
}

/// Starts the ICRC of an IPv4 packet whose header the kernel builds: no options, identification 0, DF set.
pub(super) fn start_ipv4(src: Ipv4Addr, dst: Ipv4Addr, payload_len: usize) -> Result<Icrc, Error> {
    let mut header = [0; ipv4::HEADER_LEN];
    ipv4::Repr::udp(src, dst, 0, 0, payload_len).emit(&mut header)?;
    Ok(Icrc::ipv4(&header))
}

/// Starts the ICRC of an IPv6 packet whose header the kernel builds: no extension headers.
pub(super) fn start_ipv6(src: Ipv6Addr, dst: Ipv6Addr, payload_len: usize) -> Result<Icrc, Error> {
    let mut header = [0; ipv6::HEADER_LEN];
    ipv6::Repr::udp(src, dst, 0, 0, payload_len).emit(&mut header)?;
    Ok(Icrc::ipv6(&header))
}

#[cfg(test)]
mod tests {
    use super::super::{ethernet, vectors};
    use super::*;

    #[test]
    fn the_icrcs_of_foreign_frames_are_reproduced() {
        for (hex, expected) in [
            (vectors::CNP_V4, 0x2a00_fd82u32),
            (vectors::UC_SEND_V4, 0xf353_f378),
            (vectors::UC_SEND_V6, 0x3b74_5b3e),
            (vectors::READ_REQUEST_V4, 0x4a15_c608),
        ] {
            let frame = vectors::bytes(hex);
            let packet = &frame[ethernet::HEADER_LEN..];
            assert_eq!(compute(packet), Ok(expected.to_le_bytes()));
            assert_eq!(verify(packet), Ok(()));
        }
    }

    #[test]
    fn ethernet_padding_is_not_taken_for_the_icrc() {
        let mut frame = vectors::bytes(vectors::CNP_V4);
        frame.extend([0; 7]);
        assert_eq!(verify(&frame[ethernet::HEADER_LEN..]), Ok(()));
    }

    /// Offsets from the IP header: what the network may change, and nothing else, is free.
    #[test]
    fn exactly_the_mutable_fields_are_not_covered() {
        for (hex, free) in [
            (
                vectors::READ_REQUEST_V4,
                &[(1, 0xff), (8, 0xff), (10, 0xff), (11, 0xff), (26, 0xff), (27, 0xff), (32, 0xff)][..],
            ),
            (
                vectors::UC_SEND_V6,
                &[(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff), (46, 0xff), (47, 0xff), (52, 0xff)][..],
            ),
        ] {
            let packet = vectors::bytes(hex).split_off(ethernet::HEADER_LEN);
            for at in 0..packet.len() {
                for bit in 0..8 {
                    let mut changed = packet.clone();
                    changed[at] ^= 1 << bit;
                    let is_free = free.iter().any(|(byte, mask)| *byte == at && mask & 1 << bit != 0);
                    assert_eq!(verify(&changed).is_ok(), is_free, "byte {at} bit {bit}");
                }
            }
        }
    }
}
