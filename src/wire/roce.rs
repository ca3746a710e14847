//! Whole RoCEv2 packets of reliable and unreliable connections: what a queue pair sends and receives.

use std::net::IpAddr;

pub use super::extension::{Aeth, Reth};
use super::icrc::{self, Icrc};
use super::{Error, Headers, Opcode, ROCE_PORT, bth, ethernet, ipv4, ipv6, udp};

/// The payload of a CNP: 16 reserved bytes, sent as 0 (Annex A17.9.3).
pub const CNP_RESERVED: [u8; 16] = [0; 16];

/// TTL that stands in a [`Repr`] read from a socket, which does not tell it.
pub const DEFAULT_TTL: u8 = 64;

/// The headers that [`Repr`] can hold.
const HELD: Headers = Headers::RETH.with(Headers::AETH).with(Headers::IMMEDIATE);

/// One packet but for its payload: everything that a SEND, RDMA WRITE, READ, ACK or CNP says.
///
/// `reth`, `immediate` and `aeth` are there exactly when the opcode asks for them. A CNP has the 16 bytes of
/// [`CNP_RESERVED`] as its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// IP source.
    pub src: IpAddr,
    /// IP destination, of the same version as `src`.
    pub dst: IpAddr,
    /// DSCP and ECN (IPv6: traffic class).
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// UDP source port.
    pub sport: u16,
    /// BTH opcode.
    pub opcode: Opcode,
    /// SE: the receiver is to raise an event.
    pub solicited: bool,
    /// A: the requester wants an acknowledgement.
    pub ack_req: bool,
    /// BECN: set in CNPs.
    pub becn: bool,
    /// Partition key; 0xffff is the default.
    pub pkey: u16,
    /// Destination queue pair, 24 bits.
    pub dest_qpn: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// RETH.
    pub reth: Option<Reth>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// AETH.
    pub aeth: Option<Aeth>,
    /// Bytes of payload, without padding.
    pub payload_len: usize,
}

impl Repr {
    /// A packet of nothing but a BTH: default partition, PSN 0, no flags.
    pub const fn new(src: IpAddr, dst: IpAddr, opcode: Opcode, dest_qpn: u32) -> Self {
        Repr {
            src,
            dst,
            tos: 0,
            ttl: DEFAULT_TTL,
            sport: 0,
            opcode,
            solicited: false,
            ack_req: false,
            becn: false,
            pkey: 0xffff,
            dest_qpn,
            psn: 0,
            reth: None,
            immediate: None,
            aeth: None,
            payload_len: 0,
        }
    }

    /// A CNP to the sender's queue pair of a marked flow; its payload is [`CNP_RESERVED`].
    pub const fn cnp(src: IpAddr, dst: IpAddr, dest_qpn: u32) -> Self {
        Repr { becn: true, payload_len: CNP_RESERVED.len(), ..Self::new(src, dst, Opcode::CNP, dest_qpn) }
    }

    /// Bytes behind the UDP header: BTH, extension headers, payload, padding, ICRC.
    pub const fn udp_payload_len(&self) -> usize {
        bth::HEADER_LEN + self.opcode.headers().len() + self.payload_len.next_multiple_of(4) + icrc::LEN
    }

    /// Length of the frame without tags and FCS.
    pub const fn frame_len(&self) -> usize {
        let ip = match self.src.to_canonical() {
            IpAddr::V4(_) => ipv4::HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        };
        ethernet::HEADER_LEN + ip + udp::HEADER_LEN + self.udp_payload_len()
    }

    /// Writes BTH .. ICRC for a packet whose IP and UDP headers the kernel builds: IPv4 without options, identification 0
    /// and DF set (`IP_MTU_DISCOVER` = `DO`). IPv4-mapped addresses count as IPv4. Returns the number of bytes.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when `payload` or the headers do not fit the rest, [`Error::TooLong`] when `buf` is too short,
    /// [`Error::MixedFamilies`].
    pub fn emit_udp_payload(&self, payload: &[u8], buf: &mut [u8]) -> Result<usize, Error> {
        let len = self.udp_payload_len();
        let buf = buf.get_mut(..len).ok_or(Error::TooLong)?;
        let mut icrc = start(self.src, self.dst, udp::HEADER_LEN + len)?;
        let at = self.emit_headers(payload, buf)?;
        let (covered, carried) = buf.split_last_chunk_mut::<{ icrc::LEN }>().ok_or(Error::TooLong)?;
        covered[at..at + payload.len()].copy_from_slice(payload);
        covered[at + payload.len()..].fill(0);
        hash(&mut icrc, self.sport, covered)?;
        *carried = icrc.finish();
        Ok(len)
    }

    /// Writes a whole Ethernet frame, UDP checksum 0, and returns its length.
    ///
    /// # Errors
    /// As [`Repr::emit_udp_payload`].
    pub fn emit_frame(
        &self,
        eth_src: [u8; 6],
        eth_dst: [u8; 6],
        payload: &[u8],
        buf: &mut [u8],
    ) -> Result<usize, Error> {
        let udp_payload_len = self.udp_payload_len();
        let ip_payload_len = udp::HEADER_LEN + udp_payload_len;
        let eth = |ethertype| ethernet::Repr { dst: eth_dst, src: eth_src, tags: [None; 2], ethertype };
        let mut at;
        match (self.src.to_canonical(), self.dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                at = eth(ethernet::IPV4).emit(buf)?;
                at += ipv4::Repr::udp(src, dst, self.tos, self.ttl, ip_payload_len).emit(&mut buf[at..])?;
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                at = eth(ethernet::IPV6).emit(buf)?;
                at += ipv6::Repr::udp(src, dst, self.tos, self.ttl, ip_payload_len).emit(&mut buf[at..])?;
            }
            _ => return Err(Error::MixedFamilies),
        }
        let udp = udp::Repr { src_port: self.sport, dst_port: ROCE_PORT, payload_len: udp_payload_len };
        at += udp.emit(&mut buf[at..])?;
        at += self.emit_udp_payload(payload, &mut buf[at..])?;
        Ok(at)
    }

    /// Reads what a UDP socket received, and checks its ICRC against an IP header as [`Repr::emit_udp_payload`] assumes
    /// it. TTL and UDP checksum do not matter to it; the TTL is given as [`DEFAULT_TTL`]. Returns the payload too.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::BadIcrc`], [`Error::Unsupported`], [`Error::MixedFamilies`].
    pub fn parse_udp_payload(
        src: IpAddr,
        dst: IpAddr,
        tos: u8,
        sport: u16,
        bytes: &[u8],
    ) -> Result<(Self, &[u8]), Error> {
        let (covered, carried) = bytes.split_last_chunk::<{ icrc::LEN }>().ok_or(Error::Truncated("ICRC"))?;
        let mut icrc = start(src, dst, udp::HEADER_LEN + bytes.len())?;
        hash(&mut icrc, sport, covered)?;
        if icrc.finish() != *carried {
            return Err(Error::BadIcrc);
        }
        let (repr, payload) = Self::parse_bth(Self { tos, sport, ..Self::new(src, dst, Opcode(0), 0) }, bytes)?;
        Ok((repr, payload))
    }

    /// Reads a whole frame, up to two VLAN tags included, and checks its ICRC. Returns the payload too.
    ///
    /// # Errors
    /// Whatever makes it no RoCEv2 packet; as [`Repr::parse_udp_payload`].
    pub fn parse_frame(frame: &[u8]) -> Result<(Self, &[u8]), Error> {
        let eth = ethernet::Frame::new_checked(frame)?;
        let packet = eth.payload();
        let (src, dst, tos, ttl, datagram) = match eth.ethertype() {
            ethernet::IPV4 => {
                let ip = ipv4::Packet::new_checked(packet)?;
                (IpAddr::V4(ip.src()), IpAddr::V4(ip.dst()), ip.tos(), ip.ttl(), ip.payload())
            }
            ethernet::IPV6 => {
                let ip = ipv6::Packet::new_checked(packet)?;
                (IpAddr::V6(ip.src()), IpAddr::V6(ip.dst()), ip.traffic_class(), ip.hop_limit(), ip.payload())
            }
            _ => return Err(Error::WrongProtocol("IP")),
        };
        icrc::verify(packet)?; // also that it is unfragmented UDP
        let udp = udp::Packet::new_checked(datagram)?;
        if udp.dst_port() != ROCE_PORT {
            return Err(Error::WrongProtocol("RoCEv2"));
        }
        let ip = Self { tos, ttl, sport: udp.src_port(), ..Self::new(src, dst, Opcode(0), 0) };
        Self::parse_bth(ip, udp.payload())
    }

    /// Fills in everything from the BTH on.
    fn parse_bth(self, bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let packet = bth::Packet::new_checked(bytes)?;
        let opcode = packet.opcode();
        if !HELD.contains(opcode.headers()) {
            return Err(Error::Unsupported(opcode));
        }
        let payload = packet.payload().ok_or(Error::Truncated("RoCEv2"))?;
        let repr = Repr {
            opcode,
            solicited: packet.solicited(),
            ack_req: packet.ack_request(),
            becn: packet.becn(),
            pkey: packet.pkey(),
            dest_qpn: packet.dest_qpn(),
            psn: packet.psn(),
            reth: packet.reth(),
            immediate: packet.immediate(),
            aeth: packet.aeth(),
            payload_len: payload.len(),
            ..self
        };
        Ok((repr, payload))
    }

    /// Writes BTH and extension headers, and returns where the payload begins.
    fn emit_headers(&self, payload: &[u8], buf: &mut [u8]) -> Result<usize, Error> {
        let headers = self.opcode.headers();
        if !HELD.contains(headers) {
            return Err(Error::Unsupported(self.opcode));
        }
        if payload.len() != self.payload_len
            || headers.contains(Headers::RETH) != self.reth.is_some()
            || headers.contains(Headers::AETH) != self.aeth.is_some()
            || headers.contains(Headers::IMMEDIATE) != self.immediate.is_some()
        {
            return Err(Error::Mismatch(self.opcode));
        }
        let bth = bth::Repr {
            opcode: self.opcode,
            solicited: self.solicited,
            pad_count: (payload.len().next_multiple_of(4) - payload.len()) as u8,
            pkey: self.pkey,
            fecn: false,
            becn: self.becn,
            dest_qpn: self.dest_qpn,
            ack_request: self.ack_req,
            psn: self.psn,
        };
        let mut at = bth.emit(buf)?;
        if let Some(reth) = self.reth {
            reth.write(&mut buf[at..at + Reth::LEN]);
            at += Reth::LEN;
        }
        if let Some(aeth) = self.aeth {
            aeth.write(&mut buf[at..at + Aeth::LEN]);
            at += Aeth::LEN;
        }
        if let Some(immediate) = self.immediate {
            super::put(buf, at, &immediate.to_be_bytes());
            at += size_of::<u32>();
        }
        Ok(at)
    }
}

/// Starts an ICRC over an IP header that the kernel builds.
fn start(src: IpAddr, dst: IpAddr, ip_payload_len: usize) -> Result<Icrc, Error> {
    match (src.to_canonical(), dst.to_canonical()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => icrc::start_ipv4(src, dst, ip_payload_len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => icrc::start_ipv6(src, dst, ip_payload_len),
        _ => Err(Error::MixedFamilies),
    }
}

/// Goes on with the UDP header and `covered`: everything from the BTH to the end of the padding.
fn hash(icrc: &mut Icrc, sport: u16, covered: &[u8]) -> Result<(), Error> {
    let (bth, rest) = covered.split_first_chunk().ok_or(Error::Truncated("BTH"))?;
    let mut udp = [0; udp::HEADER_LEN];
    udp::Repr { src_port: sport, dst_port: ROCE_PORT, payload_len: covered.len() + icrc::LEN }.emit(&mut udp)?;
    icrc.udp_bth(&udp, bth);
    icrc.update(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::vectors;
    use super::*;

    #[test]
    fn a_cnp_is_written_as_hardware_writes_it_but_for_the_ip_identification() {
        let captured = vectors::bytes(vectors::CNP_V4);
        let (repr, payload) = Repr::parse_frame(&captured).expect("a sound packet");
        assert_eq!(payload, CNP_RESERVED);
        let expected = Repr { tos: 0xc2, ..Repr::cnp(repr.src, repr.dst, 0x118) };
        assert_eq!(repr, expected);
        let mut frame = vec![0; repr.frame_len()];
        let eth = ethernet::Frame::new_checked(&captured).expect("whole");
        assert_eq!(repr.emit_frame(eth.src(), eth.dst(), payload, &mut frame), Ok(74));
        assert_eq!(frame[42..70], captured[42..70]); // BTH and reserved bytes; the ICRC covers the identification
    }

    #[test]
    fn headers_and_payload_must_fit_the_opcode() {
        let [src, dst] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let middle = Repr { payload_len: 4, ..Repr::new(src, dst, Opcode::WRITE_MIDDLE, 1) };
        let mut buf = [0; 64];
        assert_eq!(middle.emit_udp_payload(&[0; 4], &mut buf), Ok(20));
        assert_eq!(middle.emit_udp_payload(&[0; 4], &mut buf[..19]), Err(Error::TooLong));
        let mismatch = Err(Error::Mismatch(Opcode::WRITE_MIDDLE));
        assert_eq!(middle.emit_udp_payload(&[0; 3], &mut buf), mismatch);
        assert_eq!(Repr { immediate: Some(1), ..middle }.emit_udp_payload(&[0; 4], &mut buf), mismatch);
        let first = Repr { opcode: Opcode::WRITE_FIRST, ..middle };
        assert_eq!(first.emit_udp_payload(&[0; 4], &mut buf), Err(Error::Mismatch(Opcode::WRITE_FIRST)));
        let fetch_add = Repr { opcode: Opcode(0x14), ..middle };
        assert_eq!(fetch_add.emit_udp_payload(&[0; 4], &mut buf), Err(Error::Unsupported(Opcode(0x14))));
        let mixed = Repr { dst: IpAddr::from([0, 1, 0, 0, 0, 0, 0, 0]), ..middle };
        assert_eq!(mixed.emit_udp_payload(&[0; 4], &mut buf), Err(Error::MixedFamilies));
    }

    #[test]
    fn only_udp_to_the_port_of_rocev2_is_rocev2() {
        let mut frame = vectors::bytes(vectors::CNP_V4);
        frame[37] ^= 1; // destination port; covered by the ICRC, so set that right
        let icrc = icrc::compute(&frame[14..]).expect("whole");
        let at = frame.len() - 4;
        frame[at..].copy_from_slice(&icrc);
        assert_eq!(Repr::parse_frame(&frame), Err(Error::WrongProtocol("RoCEv2")));
    }
}
