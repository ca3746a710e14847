//! The deparser: writes what the stages changed in the PHV back into the frame.

use super::phv::{L3, Phv};
use crate::wire::{Ecn, ipv4, ipv6};

/// Writes what the stages changed of a packet that leaves into `bytes`, which are empty where packets travel as headers
/// only: CE, and a route's MACs and TTL.
///
/// The IPv4 checksum is updated, not computed anew (RFC 1624 eqn 3): a wrong one stays wrong, so that a corrupted header
/// is not made good. Neither change touches what RoCEv2's ICRC covers.
pub fn deparse(phv: &Phv, bytes: &mut [u8]) {
    if phv.routed
        && let Some(macs) = bytes.first_chunk_mut::<12>()
    {
        macs[..6].copy_from_slice(&phv.eth_dst);
        macs[6..].copy_from_slice(&phv.eth_src);
    }
    let Some(header) = bytes.get_mut(usize::from(phv.l3_offset)..) else { return };
    // The parser has found the header sound, so its length is all that there is to check.
    match phv.l3 {
        L3::Other => {}
        L3::Ipv4 => {
            let Some(header) = header.first_chunk_mut::<{ ipv4::HEADER_LEN }>() else { return };
            let mut ip = ipv4::Packet::new_unchecked(header);
            if phv.ecn == Ecn::Ce {
                ip.set_ce();
            }
            if phv.routed {
                ip.decrement_ttl();
            }
        }
        L3::Ipv6 => {
            let Some(header) = header.first_chunk_mut::<{ ipv6::HEADER_LEN }>() else { return };
            let mut ip = ipv6::Packet::new_unchecked(header);
            if phv.ecn == Ecn::Ce {
                ip.set_ce();
            }
            if phv.routed {
                ip.decrement_hop_limit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::parse;

    /// UDP of no payload in IPv4, ECT(0), TTL 64; the checksum is right.
    #[rustfmt::skip]
    const V4: [u8; 42] = [
        0x02, 0, 0, 0, 0, 2,  0x02, 0, 0, 0, 0, 1,  0x08, 0x00,
        0x45, 0x6a, 0x00, 0x1c, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0x65, 10, 0, 0, 1, 10, 0, 0, 2,
        0xc0, 0x01, 0x00, 0x07, 0x00, 0x08, 0x00, 0x00,
    ];

    fn differences(a: &[u8], b: &[u8]) -> Vec<usize> {
        (0..a.len()).filter(|i| a[*i] != b[*i]).collect()
    }

    fn checksum_is_valid(bytes: &[u8]) -> bool {
        ipv4::Packet::new_checked(&bytes[14..]).is_ok_and(|ip| ip.checksum_is_valid())
    }

    /// What a route does.
    fn route(phv: &mut Phv) {
        (phv.eth_dst, phv.eth_src, phv.ttl, phv.routed) = ([0x0a; 6], [0x0c; 6], phv.ttl - 1, true);
    }

    #[test]
    fn setting_ce_changes_the_ecn_bits_and_the_checksum_and_nothing_else() {
        assert!(checksum_is_valid(&V4));
        let (mut bytes, mut phv) = (V4, parse(&V4, 0, 0).expect("whole"));
        deparse(&phv, &mut bytes);
        assert_eq!(bytes, V4, "nothing to write");
        phv.ecn = Ecn::Ce;
        deparse(&phv, &mut bytes);
        assert_eq!(differences(&bytes, &V4), [15, 25], "ToS and the checksum's low byte");
        assert_eq!(bytes[15], 0x6b);
        assert!(checksum_is_valid(&bytes));
    }

    #[test]
    fn routing_rewrites_macs_and_ttl() {
        let (mut bytes, mut phv) = (V4, parse(&V4, 0, 0).expect("whole"));
        route(&mut phv);
        deparse(&phv, &mut bytes);
        assert_eq!(bytes[..12], [0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0c, 0x0c, 0x0c, 0x0c, 0x0c, 0x0c]);
        assert_eq!(bytes[22], 63);
        assert!(checksum_is_valid(&bytes));
        assert_eq!(parse(&bytes, 0, 0), Ok(Phv { routed: false, ..phv }));
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut bytes = V4;
        bytes[25] ^= 0x10;
        let mut phv = parse(&bytes, 0, 0).expect("whole");
        phv.ecn = Ecn::Ce;
        route(&mut phv);
        deparse(&phv, &mut bytes);
        assert!(!checksum_is_valid(&bytes));
    }

    #[test]
    fn ipv6_gets_ce_and_its_hop_limit_lowered_and_behind_a_vlan_tag_too() {
        let mut bytes =
            vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0x20, 0, 0, 0, 0, 59, 9];
        bytes.extend([0xfd; 32]);
        let mut phv = parse(&bytes, 0, 0).expect("whole");
        assert_eq!((phv.ecn, phv.ttl), (Ecn::Ect0, 9));
        phv.ecn = Ecn::Ce;
        route(&mut phv);
        deparse(&phv, &mut bytes);
        assert_eq!((bytes[19], bytes[25]), (0x30, 8));
        assert_eq!(parse(&bytes, 0, 0), Ok(Phv { routed: false, ..phv }));
    }

    #[test]
    fn without_bytes_there_is_nothing_to_write() {
        let mut phv = parse(&V4, 0, 0).expect("whole");
        phv.ecn = Ecn::Ce;
        route(&mut phv);
        deparse(&phv, &mut []);
    }
}
