//! The parser: bytes into a [`Phv`], as a Tofino's parser would: IPv4 without options, at most two VLAN tags, BTH and at
//! most 20 bytes of extension headers. What it does not understand is not an error: such a packet is forwarded by L2.

use std::net::Ipv4Addr;

use super::Nanos;
use super::drop_reason::DropReason;
use super::phv::{IpAddress, L3, Phv, PortId, Roce, VlanTags};
use crate::wire::{Ecn, PROTOCOL_UDP, ROCE_PORT, bth, ethernet, ipv4, ipv6, udp};

/// IP protocol number of TCP.
const PROTOCOL_TCP: u8 = 6;

/// Extension headers that the parser looks at: RETH and ImmDt. Of longer ones (AtomicETH, 28 bytes) it wants this much.
const MAX_EXTENSION_BYTES: usize = 20;

/// Parses a whole frame. Lengths are believed only as far as the frame holds them: an IP header that lies is
/// [`L3::Other`], a UDP header that lies is not RoCEv2.
///
/// # Errors
/// [`DropReason::Runt`] when the frame ends before its Ethernet header (VLAN tags included) does; nothing else.
pub fn parse(bytes: &[u8], ingress_port: PortId, now: Nanos) -> Result<Phv, DropReason> {
    let mut phv = Phv { ingress_port, received_at: now, ..Phv::default() };
    parse_into(bytes, &mut phv)?;
    Ok(phv)
}

/// As [`parse`] up to the UDP or TCP ports, without `roce`: for a driver that has that part from elsewhere.
///
/// # Errors
/// As [`parse`].
#[inline]
pub fn parse_l2_l3(bytes: &[u8], ingress_port: PortId, now: Nanos) -> Result<Phv, DropReason> {
    let mut phv = Phv { ingress_port, received_at: now, ..Phv::default() };
    headers(bytes, &mut phv)?;
    Ok(phv)
}

/// As [`parse`], into a PHV whose other fields are at their defaults: one that stays where it is.
///
/// Not inlined: the compiler would keep half of a PHV in registers that it does not have.
///
/// # Errors
/// As [`parse`].
#[inline(never)]
pub(super) fn parse_into(bytes: &[u8], phv: &mut Phv) -> Result<(), DropReason> {
    let l4 = headers(bytes, phv)?;
    if phv.protocol == PROTOCOL_UDP && phv.dport == ROCE_PORT {
        roce(phv, l4);
    }
    Ok(())
}

/// Everything up to the ports, and the bytes from the transport header to the end of the IP packet (empty where there
/// is none, or a fragment).
#[inline]
fn headers<'a>(bytes: &'a [u8], phv: &mut Phv) -> Result<&'a [u8], DropReason> {
    let frame = ethernet::Frame::new_checked(bytes).map_err(|_| DropReason::Runt)?;
    let tci = |number| frame.tag(number).map_or(0, |tag| tag.tci);
    phv.frame_bytes = bytes.len() as u32;
    phv.eth_dst = frame.dst();
    phv.eth_src = frame.src();
    phv.vlan = VlanTags { count: frame.tag_count() as u8, tci: [tci(0), tci(1)] };
    phv.ethertype = frame.ethertype();
    phv.l3_offset = frame.header_len() as u8;
    let l4 = match phv.ethertype {
        ethernet::IPV4 => l3_ipv4(phv, frame.payload()),
        ethernet::IPV6 => l3_ipv6(phv, frame.payload()),
        _ => None,
    };
    let l4 = l4.unwrap_or_default();
    if let (PROTOCOL_UDP | PROTOCOL_TCP, Some([s0, s1, d0, d1])) = (phv.protocol, l4.first_chunk()) {
        phv.sport = u16::from_be_bytes([*s0, *s1]);
        phv.dport = u16::from_be_bytes([*d0, *d1]);
    }
    Ok(l4)
}

#[inline]
fn l3_ipv4<'a>(phv: &mut Phv, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let header: &[u8; ipv4::HEADER_LEN] = bytes.first_chunk()?;
    if header[0] != ipv4::WITHOUT_OPTIONS {
        return None;
    }
    let ip = ipv4::Packet::new_checked(bytes).ok()?;
    phv.l3 = L3::Ipv4;
    phv.src = mapped(ip.src());
    phv.dst = mapped(ip.dst());
    phv.dscp = ip.tos() >> 2;
    phv.ecn = ip.ecn();
    phv.ttl = ip.ttl();
    phv.protocol = ip.protocol();
    phv.fragment = ip.is_fragment();
    (!phv.fragment).then(|| ip.payload())
}

#[inline]
fn l3_ipv6<'a>(phv: &mut Phv, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let ip = ipv6::Packet::new_checked(bytes).ok()?;
    phv.l3 = L3::Ipv6;
    phv.src = ip.src().octets();
    phv.dst = ip.dst().octets();
    phv.dscp = ip.traffic_class() >> 2;
    phv.ecn = Ecn::from_tos(ip.traffic_class());
    phv.ttl = ip.hop_limit();
    phv.protocol = ip.next_header();
    phv.fragment = phv.protocol == ipv6::NEXT_FRAGMENT;
    (!phv.fragment).then(|| ip.payload())
}

/// The RoCEv2 part of a UDP datagram to port 4791.
#[inline]
fn roce(phv: &mut Phv, datagram: &[u8]) -> Option<()> {
    let payload = udp::Packet::new_checked(datagram).ok()?.payload();
    let bth = bth::Packet::new_checked(payload).ok()?;
    let opcode = bth.opcode();
    if payload.len() < bth::HEADER_LEN + opcode.headers().len().min(MAX_EXTENSION_BYTES) {
        return None;
    }
    phv.roce = Some(Roce {
        opcode,
        dest_qpn: bth.dest_qpn(),
        psn: bth.psn(),
        dma_len: bth.reth().map_or(0, |reth| reth.dma_len),
        immediate: bth.immediate().unwrap_or(0),
    });
    Some(())
}

/// `::ffff:a.b.c.d`, written as two words: what reads it next reads words.
#[inline]
fn mapped(address: Ipv4Addr) -> IpAddress {
    (0xffff_0000_0000 | u128::from(address.to_bits())).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Opcode;

    /// RC RDMA WRITE Only with immediate, 4 bytes of payload: Ethernet, IPv4, UDP, BTH, RETH, ImmDt, payload, ICRC.
    #[rustfmt::skip]
    const WRITE_ONLY_IMM: [u8; 82] = [
        0x02, 0, 0, 0, 0, 2,  0x02, 0, 0, 0, 0, 1,  0x08, 0x00,
        0x45, 0x6a, 0x00, 0x44, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x39, 10, 0, 0, 1, 10, 0, 0, 2,
        0xc0, 0x01, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00,
        0x0b, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0xff, 0xff, 0xfe,
        0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 7, 0x00, 0x01, 0x00, 0x04,
        0xde, 0xad, 0xbe, 0xef,
        1, 2, 3, 4,
        0xaa, 0xbb, 0xcc, 0xdd,
    ];

    const IP: usize = 14;
    const UDP: usize = 34;

    fn frame(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = WRITE_ONLY_IMM.to_vec();
        change(&mut bytes);
        bytes
    }

    fn parsed(bytes: &[u8]) -> Phv {
        parse(bytes, 3, 77).expect("it has an Ethernet header")
    }

    /// The same datagram in IPv6.
    fn v6() -> Vec<u8> {
        let mut bytes = WRITE_ONLY_IMM[..12].to_vec();
        bytes.extend([0x86, 0xdd, 0x66, 0xa0, 0, 0, 0x00, 0x30, 0x11, 0x3f]);
        for last in [1, 2] {
            bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        bytes.extend(&WRITE_ONLY_IMM[UDP..]);
        bytes
    }

    #[test]
    fn every_field_of_a_rocev2_packet_lands_in_the_phv() {
        let expected = Phv {
            ingress_port: 3,
            received_at: 77,
            frame_bytes: 82,
            eth_dst: [2, 0, 0, 0, 0, 2],
            eth_src: [2, 0, 0, 0, 0, 1],
            ethertype: 0x0800,
            l3: L3::Ipv4,
            l3_offset: 14,
            src: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1],
            dst: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
            dscp: 26,
            ecn: Ecn::Ect0,
            ttl: 64,
            protocol: 17,
            sport: 0xc001,
            dport: 4791,
            roce: Some(Roce {
                opcode: Opcode::WRITE_ONLY_IMM,
                dest_qpn: 0x11,
                psn: 0xff_fffe,
                dma_len: 0x10004,
                immediate: 0xdead_beef,
            }),
            ..Phv::default()
        };
        assert_eq!(parsed(&WRITE_ONLY_IMM), expected);
        assert_eq!(parse_l2_l3(&WRITE_ONLY_IMM, 3, 77), Ok(Phv { roce: None, ..expected }));
    }

    #[test]
    fn ipv6_is_parsed_to_the_same_roce_part() {
        let phv = parsed(&v6());
        assert_eq!((phv.l3, phv.l3_offset, phv.ttl, phv.protocol), (L3::Ipv6, 14, 63, 17));
        assert_eq!((phv.dscp, phv.ecn), (26, Ecn::Ect0));
        assert_eq!((phv.src[0], phv.src[15], phv.dst[15]), (0xfd, 1, 2));
        assert_eq!(phv.roce, parsed(&WRITE_ONLY_IMM).roce);
    }

    #[test]
    fn up_to_two_vlan_tags_are_looked_behind_and_a_third_hides_the_rest() {
        let tags = [[0x88, 0xa8, 0x20, 0x0a], [0x81, 0x00, 0x60, 0x14], [0x81, 0x00, 0x00, 0x1e]];
        for count in 1..=2 {
            let phv = parsed(&frame(|b| drop(b.splice(12..12, tags[..count].concat()))));
            assert_eq!(usize::from(phv.vlan.count), count);
            assert_eq!(phv.vlan.tci, [0x200a, if count == 2 { 0x6014 } else { 0 }]);
            assert_eq!((phv.l3, usize::from(phv.l3_offset)), (L3::Ipv4, 14 + 4 * count));
            assert!(phv.roce.is_some());
        }
        let phv = parsed(&frame(|b| drop(b.splice(12..12, tags.concat()))));
        assert_eq!((phv.vlan.count, phv.ethertype, phv.l3, phv.roce), (2, 0x8100, L3::Other, None));
    }

    #[test]
    fn only_a_frame_without_a_whole_ethernet_header_is_refused() {
        for len in 0..14 {
            assert_eq!(parse(&WRITE_ONLY_IMM[..len], 0, 0), Err(DropReason::Runt));
        }
        for len in 14..WRITE_ONLY_IMM.len() {
            let phv = parsed(&WRITE_ONLY_IMM[..len]);
            assert_eq!((phv.l3, phv.roce), (L3::Other, None), "the IP length lies about {len} bytes");
        }
    }

    #[test]
    fn ip_that_the_parser_does_not_understand_is_left_to_l2() {
        let cases: [(&str, Vec<u8>); 5] = [
            ("options", frame(|b| b[IP] = 0x46)),
            ("version", frame(|b| b[IP] = 0x65)),
            ("total length above the frame", frame(|b| b[IP + 3] = 0x45)),
            ("total length below the header", frame(|b| b[IP + 3] = 19)),
            ("RoCEv1", frame(|b| b[12..14].copy_from_slice(&[0x89, 0x15]))),
        ];
        for (case, bytes) in cases {
            let phv = parsed(&bytes);
            assert_eq!((phv.l3, phv.protocol, phv.dport, phv.roce), (L3::Other, 0, 0, None), "{case}");
            assert_eq!(phv.eth_dst, [2, 0, 0, 0, 0, 2], "{case}");
        }
    }

    #[test]
    fn fragments_have_no_ports_and_are_not_rocev2() {
        for flags in [[0x20, 0x00], [0x00, 0x01], [0x3f, 0xff]] {
            let phv = parsed(&frame(|b| b[IP + 6..IP + 8].copy_from_slice(&flags)));
            assert_eq!((phv.l3, phv.fragment, phv.sport, phv.dport, phv.roce), (L3::Ipv4, true, 0, 0, None));
        }
        let mut bytes = v6();
        bytes[IP + 6] = 44;
        let phv = parsed(&bytes);
        assert_eq!((phv.l3, phv.fragment, phv.dport, phv.roce), (L3::Ipv6, true, 0, None));
    }

    #[test]
    fn udp_that_lies_or_goes_elsewhere_is_not_rocev2() {
        let cases: [(&str, Vec<u8>); 5] = [
            ("longer than IP", frame(|b| b[UDP + 5] = 0x31)),
            ("shorter than its header", frame(|b| b[UDP + 5] = 7)),
            ("no room for a BTH", frame(|b| b[UDP + 5] = 8 + 11)),
            ("no room for RETH and immediate", frame(|b| b[UDP + 5] = 8 + 12 + 19)),
            ("another port", frame(|b| b[UDP + 3] = 0xb8)),
        ];
        for (case, bytes) in cases {
            let phv = parsed(&bytes);
            assert_eq!((phv.l3, phv.sport, phv.roce), (L3::Ipv4, 0xc001, None), "{case}");
        }
        let tcp = parsed(&frame(|b| b[IP + 9] = 6));
        assert_eq!((tcp.sport, tcp.dport, tcp.roce), (0xc001, 4791, None));
        let icmp = parsed(&frame(|b| b[IP + 9] = 1));
        assert_eq!((icmp.sport, icmp.dport, icmp.roce), (0, 0, None));
    }

    #[test]
    fn an_opcode_gets_its_extension_headers_and_no_others() {
        let roce = |opcode: u8, udp_len: u8| {
            parsed(&frame(|b| {
                b[UDP + 5] = udp_len;
                b[UDP + 8] = opcode;
            }))
            .roce
            .map(|r| (r.dma_len, r.immediate))
        };
        assert_eq!(roce(0x07, 20), Some((0, 0)), "Middle: a whole BTH is enough");
        assert_eq!(roce(0x09, 24), Some((0, 0)), "Last with immediate: it is the first word");
        assert_eq!(roce(0x09, 23), None);
        assert_eq!(roce(0x0c, 36), Some((0x10004, 0)), "READ request: RETH");
        assert_eq!(roce(0x0c, 35), None);
        assert_eq!(roce(0x11, 24), Some((0, 0)), "ACK: AETH");
        assert_eq!(roce(0x11, 23), None);
        assert_eq!(roce(0x13, 40), Some((0, 0)), "atomics: 20 bytes of AtomicETH are looked at");
        assert_eq!(roce(0x13, 39), None);
        assert_eq!(roce(0xff, 20), Some((0, 0)), "unknown: BTH alone");
    }

    proptest! {
        #[test]
        fn the_parser_never_panics_and_its_offset_lies_in_the_frame(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..128),
            as_ip in any::<bool>(),
        ) {
            if as_ip && bytes.len() > 40 {
                bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
                bytes[IP + 2] = 0;
                bytes[IP + 9] = 17;
                bytes[UDP + 2..UDP + 5].copy_from_slice(&[0x12, 0xb7, 0]);
            }
            match parse(&bytes, 0, 0) {
                Err(reason) => prop_assert_eq!(reason, DropReason::Runt),
                Ok(phv) => {
                    prop_assert!(usize::from(phv.l3_offset) <= bytes.len());
                    prop_assert_eq!(parse_l2_l3(&bytes, 0, 0), Ok(Phv { roce: None, ..phv }));
                }
            }
        }

        #[test]
        fn one_changed_byte_never_panics(at in 0..82usize, value in any::<u8>(), len in 0..=82usize) {
            let mut bytes = WRITE_ONLY_IMM;
            bytes[at] = value;
            let _ = parse(&bytes[..len], 0, 0);
        }
    }
}
