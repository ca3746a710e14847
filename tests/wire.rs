//! The wire and capture modules against captures of Linux soft-RoCE, and against any bytes.

mod common;

use std::net::IpAddr;

use common::{captures, frames};
use proptest::prelude::*;
use symphony::wire::roce::{Repr, Reth};
use symphony::wire::{Ecn, Error, Opcode, bth, ethernet, icrc, ipv4, ipv6, udp};

/// Sets CE the way a switch does: in place, whatever the IP version. Returns whether the packet was ECN-capable.
fn set_ce(frame: &mut [u8]) -> bool {
    let eth = ethernet::Frame::new_checked(&*frame).expect("whole");
    let (at, ethertype) = (eth.header_len(), eth.ethertype());
    match ethertype {
        ethernet::IPV4 => ipv4::Packet::new_checked(&mut frame[at..]).expect("IPv4").set_ce(),
        _ => ipv6::Packet::new_checked(&mut frame[at..]).expect("IPv6").set_ce(),
    }
}

/// ECN field, and whether the IPv4 header checksum is right (always, for IPv6).
fn ecn_and_checksum(frame: &[u8]) -> (Ecn, bool) {
    let eth = ethernet::Frame::new_checked(frame).expect("whole");
    match eth.ethertype() {
        ethernet::IPV4 => {
            let ip = ipv4::Packet::new_checked(eth.payload()).expect("IPv4");
            (ip.ecn(), ip.checksum_is_valid())
        }
        _ => (ipv6::Packet::new_checked(eth.payload()).expect("IPv6").ecn(), true),
    }
}

#[test]
fn every_captured_packet_has_a_right_icrc_a_right_checksum_and_a_known_opcode() {
    let mut packets = 0;
    for name in captures() {
        for frame in frames(&name) {
            let eth = ethernet::Frame::new_checked(&frame[..]).expect("whole");
            assert_eq!(icrc::verify(eth.payload()), Ok(()), "{name}");
            assert!(ecn_and_checksum(&frame).1, "{name}");
            let ip_header = if eth.ethertype() == ethernet::IPV4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
            let udp = udp::Packet::new_checked(&eth.payload()[ip_header..]).expect("UDP");
            let bth = bth::Packet::new_checked(udp.payload()).expect("BTH");
            assert!(bth.opcode().is_known() && bth.headers_are_whole() && bth.payload().is_some(), "{name}");
            packets += 1;
        }
    }
    assert_eq!(packets, 2415);
}

#[test]
fn marking_every_captured_packet_keeps_checksum_and_icrc_and_leaves_not_ect_alone() {
    let (mut marked, mut left) = (0, 0);
    for name in captures() {
        for mut frame in frames(&name) {
            let before = frame.clone();
            if set_ce(&mut frame) {
                assert_eq!(ecn_and_checksum(&frame), (Ecn::Ce, true), "{name}");
                assert_eq!(icrc::verify(&frame[ethernet::HEADER_LEN..]), Ok(()), "{name}");
                marked += 1;
            } else {
                assert_eq!(frame, before, "{name}");
                left += 1;
            }
        }
    }
    assert!(marked > 1000 && left > 100, "{marked} marked, {left} left alone");
}

#[test]
fn routing_every_captured_packet_keeps_checksum_and_icrc() {
    for name in captures() {
        for mut frame in frames(&name) {
            let ip = &mut frame[ethernet::HEADER_LEN..];
            let alive = match ip[0] >> 4 {
                4 => ipv4::Packet::new_checked(ip).expect("IPv4").decrement_ttl(),
                _ => ipv6::Packet::new_checked(ip).expect("IPv6").decrement_hop_limit(),
            };
            assert!(alive && ecn_and_checksum(&frame).1, "{name}");
            assert_eq!(icrc::verify(&frame[ethernet::HEADER_LEN..]), Ok(()), "{name}");
        }
    }
}

#[test]
fn captured_packets_are_written_again_as_they_were_read() {
    for name in captures() {
        for frame in frames(&name) {
            let (repr, payload) = match Repr::parse_frame(&frame) {
                Ok(parsed) => parsed,
                Err(Error::Unsupported(Opcode(0x64))) => continue, // connection manager datagrams
                Err(error) => panic!("{name}: {error}"),
            };
            let eth = ethernet::Frame::new_checked(&frame[..]).expect("whole");
            let mut again = vec![0; repr.frame_len()];
            assert_eq!(repr.emit_frame(eth.src(), eth.dst(), payload, &mut again), Ok(frame.len()), "{name}");
            assert_eq!(Repr::parse_frame(&again), Ok((repr, payload)), "{name}");
            if eth.ethertype() == ethernet::IPV6 {
                assert_eq!(again, frame, "{name}"); // IPv4 differs: soft-RoCE numbers its packets
            }
        }
    }
}

/// Everything that reads bytes, on bytes of whatever kind.
fn read_everything(bytes: &[u8]) {
    if let Ok(eth) = ethernet::Frame::new_checked(bytes) {
        let _ = (ethernet::Repr::parse(&eth), eth.payload().len());
    }
    let mut copy = bytes.to_vec();
    if let Ok(mut ip) = ipv4::Packet::new_checked(&mut copy) {
        let _ = (ipv4::Repr::parse(&ip), ip.id(), ip.dont_fragment(), ip.is_fragment(), ip.checksum_is_valid());
        let _ = (ip.set_ce(), ip.decrement_ttl());
        let _ = ipv4::Packet::new_checked(bytes).map(|ip| ip.payload().len());
    }
    if let Ok(mut ip) = ipv6::Packet::new_checked(&mut copy) {
        let _ = (ipv6::Repr::parse(&ip), ip.set_ce(), ip.decrement_hop_limit());
        let _ = ipv6::Packet::new_checked(bytes).map(|ip| ip.payload().len());
    }
    if let Ok(udp) = udp::Packet::new_checked(bytes) {
        let _ = (udp::Repr::parse(&udp), udp.checksum(), udp.payload().len());
    }
    if let Ok(bth) = bth::Packet::new_checked(bytes) {
        let _ = (bth::Repr::parse(&bth), bth.migrated(), bth.opcode().to_string(), bth.headers_are_whole());
        let _ =
            (bth.reth(), bth.immediate(), bth.aeth(), bth.atomic_eth(), bth.atomic_ack_eth(), bth.deth(), bth.ieth());
        let _ = bth.payload();
    }
    let _ = (icrc::compute(bytes), icrc::verify(bytes), Repr::parse_frame(bytes));
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let _ = Repr::parse_udp_payload(loopback, loopback, 0, 0, bytes);
}

fn opcodes() -> impl Strategy<Value = Opcode> {
    let held = [0x00, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x10, 0x11, 0x23, 0x26, 0x2b, 0x81];
    proptest::sample::select(held.map(Opcode).to_vec())
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (src.into(), dst.into())),
        any::<([u8; 16], [u8; 16])>()
            .prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)))
            .prop_filter("both of one family", |(src, dst)| src.to_canonical().is_ipv4()
                == dst.to_canonical().is_ipv4()),
    ]
}

prop_compose! {
    fn packets()(
        (src, dst) in addresses(),
        opcode in opcodes(),
        (tos, ttl, sport, pkey) in any::<(u8, u8, u16, u16)>(),
        (solicited, ack_req, becn) in any::<(bool, bool, bool)>(),
        dest_qpn in 0..1u32 << 24,
        psn in 0..1u32 << 24,
        (va, rkey, dma_len, immediate) in any::<(u64, u32, u32, u32)>(),
        (syndrome, msn) in (any::<u8>(), 0..1u32 << 24),
        payload in proptest::collection::vec(any::<u8>(), 0..80),
    ) -> (Repr, Vec<u8>) {
        use symphony::wire::{Headers, roce::Aeth};
        let headers = opcode.headers();
        let repr = Repr {
            tos, ttl, sport, solicited, ack_req, becn, pkey, psn,
            reth: headers.contains(Headers::RETH).then_some(Reth { va, rkey, dma_len }),
            immediate: headers.contains(Headers::IMMEDIATE).then_some(immediate),
            aeth: headers.contains(Headers::AETH).then_some(Aeth { syndrome, msn }),
            payload_len: payload.len(),
            ..Repr::new(src, dst, opcode, dest_qpn)
        };
        (repr, payload)
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
    }

    #[test]
    fn no_mutated_frame_makes_a_reader_panic(
        (repr, payload) in packets(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut frame = vec![0; 256];
        let len = repr.emit_frame([2; 6], [4; 6], &payload, &mut frame).unwrap();
        frame.truncate(len);
        for (at, value) in changes {
            *at.get_mut(&mut frame) = value;
        }
        let at = cut.index(ethernet::HEADER_LEN + 54);
        read_everything(&frame);
        read_everything(frame.get(at..).unwrap_or_default());
        read_everything(&frame[..cut.index(frame.len())]);
    }

    #[test]
    fn frames_are_read_as_they_were_written((repr, payload) in packets()) {
        let mut frame = vec![0xaa; repr.frame_len() + 9];
        let len = repr.emit_frame([2; 6], [4; 6], &payload, &mut frame).unwrap();
        prop_assert_eq!(len, repr.frame_len());
        let canonical = Repr { src: repr.src.to_canonical(), dst: repr.dst.to_canonical(), ..repr };
        // The bytes behind it stand for Ethernet padding.
        prop_assert_eq!(Repr::parse_frame(&frame), Ok((canonical, &payload[..])));
        prop_assert!(ecn_and_checksum(&frame).1);
    }

    #[test]
    fn datagrams_are_read_as_they_were_written_and_as_the_kernel_frames_them((repr, payload) in packets()) {
        let mut datagram = vec![0xaa; repr.udp_payload_len()];
        let len = repr.emit_udp_payload(&payload, &mut datagram).unwrap();
        prop_assert_eq!(len, datagram.len());
        let read = Repr::parse_udp_payload(repr.src, repr.dst, repr.tos, repr.sport, &datagram);
        let expected = Repr { ttl: symphony::wire::roce::DEFAULT_TTL, ..repr };
        prop_assert_eq!(read, Ok((expected, &payload[..])));
        let mut frame = vec![0; repr.frame_len()];
        repr.emit_frame([2; 6], [4; 6], &payload, &mut frame).unwrap();
        prop_assert!(frame.ends_with(&datagram));
    }

    #[test]
    fn one_flipped_bit_that_the_icrc_covers_is_found(
        (repr, payload) in packets(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8,
    ) {
        let mut datagram = vec![0; repr.udp_payload_len()];
        repr.emit_udp_payload(&payload, &mut datagram).unwrap();
        let at = at.index(datagram.len());
        datagram[at] ^= 1u8 << bit;
        let read = Repr::parse_udp_payload(repr.src, repr.dst, repr.tos, repr.sport, &datagram);
        if at == 4 { // FECN, BECN and reserved bits
            prop_assert!(read.is_ok());
        } else {
            prop_assert_eq!(read, Err(Error::BadIcrc));
        }
    }
}
