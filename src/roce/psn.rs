//! Packet sequence numbers: 24 bits on the wire, 64 bits inside.
//!
//! A queue pair counts its packets from 0 in 64 bits, which never wrap; the wire shows the low 24 bits of that count plus
//! the first PSN. A PSN from the wire is brought back relative to a count nearby (serial-number arithmetic: less than 2^23
//! ahead is newer).

/// PSNs are modulo 2^24.
pub const MASK: u32 = 0xff_ffff;

/// The PSN of packet `count` of a queue pair that started at `first`.
pub fn to_wire(first: u32, count: u64) -> u32 {
    first.wrapping_add(count as u32) & MASK
}

/// The count that `psn` means, near to `reference`; `None` when that lies before the first packet.
pub fn from_wire(first: u32, psn: u32, reference: u64) -> Option<u64> {
    let ahead = psn.wrapping_sub(to_wire(first, reference)) & MASK;
    if ahead < 0x80_0000 {
        reference.checked_add(u64::from(ahead))
    } else {
        reference.checked_sub(u64::from(MASK + 1 - ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_wrap_of_24_bits() {
        assert_eq!(to_wire(0xff_fff0, 0x0f), 0xff_ffff);
        assert_eq!(to_wire(0xff_fff0, 0x10), 0);
        assert_eq!(from_wire(0xff_fff0, 3, 0x0f), Some(0x13));
        assert_eq!(from_wire(0xff_fff0, 0xff_ffff, 0x13), Some(0x0f));
        assert_eq!(from_wire(5, 5, 1 << 24), Some(1 << 24));
    }

    #[test]
    fn what_lies_before_the_first_packet_is_nothing() {
        assert_eq!(from_wire(100, 99, 0), None);
        assert_eq!(from_wire(100, 100 + 0x7f_ffff, 0), Some(0x7f_ffff));
        assert_eq!(from_wire(100, 100 + 0x80_0000, 0), None);
    }
}
