//! What a frame is, as the report counts it: by the letter of the headers, not by what the switch's parser understands.

use std::net::IpAddr;

use crate::dataplane::Roce;
use crate::wire::{Ecn, Error, PROTOCOL_UDP, ROCE_PORT, bth, ethernet, icrc, ipv4, ipv6, udp};

/// An unfragmented UDP datagram to port 4791 with a whole BTH.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RocePacket {
    /// IP source.
    pub src: IpAddr,
    /// IP destination.
    pub dst: IpAddr,
    /// ECN field.
    pub ecn: Ecn,
    /// What the stages get to see of it.
    pub roce: Roce,
    /// Bytes between headers and padding; `None` where they do not fit.
    pub payload_len: Option<usize>,
    /// Whether the ICRC is right.
    pub icrc: bool,
    /// Bytes of the frame up to the end of the BTH.
    pub bth_end: usize,
}

/// Looks at a frame: `Ok(None)` for what is sound but no RoCEv2 (fragments and IPv6 extension headers included).
///
/// # Errors
/// A frame whose headers end early or contradict themselves.
pub fn classify(frame: &[u8]) -> Result<Option<RocePacket>, Error> {
    let eth = ethernet::Frame::new_checked(frame)?;
    let packet = eth.payload();
    let (src, dst, ecn, l3_len, datagram) = match eth.ethertype() {
        ethernet::IPV4 => {
            let ip = ipv4::Packet::new_checked(packet)?;
            if ip.is_fragment() || ip.protocol() != PROTOCOL_UDP {
                return Ok(None);
            }
            (IpAddr::V4(ip.src()), IpAddr::V4(ip.dst()), ip.ecn(), ip.header_len(), ip.payload())
        }
        ethernet::IPV6 => {
            let ip = ipv6::Packet::new_checked(packet)?;
            if ip.next_header() != PROTOCOL_UDP {
                return Ok(None);
            }
            (IpAddr::V6(ip.src()), IpAddr::V6(ip.dst()), ip.ecn(), ipv6::HEADER_LEN, ip.payload())
        }
        _ => return Ok(None),
    };
    let udp = udp::Packet::new_checked(datagram)?;
    if udp.dst_port() != ROCE_PORT {
        return Ok(None);
    }
    let bth = bth::Packet::new_checked(udp.payload())?;
    let roce = Roce {
        opcode: bth.opcode(),
        dest_qpn: bth.dest_qpn(),
        psn: bth.psn(),
        dma_len: bth.reth().map_or(0, |reth| reth.dma_len),
        immediate: bth.immediate().unwrap_or(0),
    };
    let payload_len = bth.payload().map(<[u8]>::len);
    let bth_end = eth.header_len() + l3_len + udp::HEADER_LEN + bth::HEADER_LEN;
    Ok(Some(RocePacket { src, dst, ecn, roce, payload_len, icrc: icrc::verify(packet).is_ok(), bth_end }))
}
