//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// One's complement sum of `data` taken as big-endian 16-bit words, folded; its complement is the checksum.
///
/// Summed in the machine's byte order, which makes no difference but to the order of the result's bytes (RFC 1071 2(B)), and
/// 32 bits at a time.
pub fn sum(data: &[u8]) -> u16 {
    let (words, rest) = data.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let sum: u64 = words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let halves = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32 & 0xffff) + (sum >> 48);
    u16::from_be(fold(halves as u32))
}

/// The checksum after one covered 16-bit word went from `old` to `new`: RFC 1624 eqn 3, HC' = ~(~HC + ~m + m').
///
/// Eqn 2 and RFC 1141 (HC' = HC + m + ~m') give 0xffff where the right answer is 0, and some hardware drops that.
#[inline]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u32 + !old as u32 + new as u32)
}

/// The sum of two sums.
#[inline]
pub const fn add(one: u16, other: u16) -> u16 {
    fold(one as u32 + other as u32)
}

/// Folds the carries back in. Two rounds do for up to 2^16 words.
const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complement of the folded sum is what a full computation writes: 0xffff never, since a header is not all zero.
    fn full(words: &[u16]) -> u16 {
        !fold(words.iter().map(|w| u32::from(*w)).sum())
    }

    #[test]
    fn the_sum_of_rfc_1071s_example_is_ddf2() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn an_odd_last_byte_counts_as_the_high_half_of_a_word() {
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
    }

    #[test]
    fn the_sum_is_that_of_16_bit_words_whatever_the_length() {
        let data: Vec<u8> = (0..1500u32).map(|i| ((i * 167) >> 3) as u8 | 0x80).collect();
        for len in (0..64).chain(1436..=1500) {
            let words = data[..len].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
            assert_eq!(sum(&data[..len]), fold(words.sum()), "{len} bytes");
        }
        assert_eq!((sum(&[0; 33]), sum(&[0xff; 65_534])), (0, 0xffff));
    }

    /// All (DSCP, ECN = ECT(0), ECT(1)) x all sums of the header's other words, and Not-ECT to CE for completeness.
    #[test]
    fn setting_ce_incrementally_equals_the_full_checksum_for_every_header_and_never_gives_ffff() {
        for dscp in 0..64u16 {
            for ecn in 0..3u16 {
                let old = 0x4500 | dscp << 2 | ecn;
                let new = old | 3;
                for rest in 0..=0xffffu16 {
                    let updated = update(full(&[old, rest]), old, new);
                    assert_eq!(updated, full(&[new, rest]), "old {old:#06x} rest {rest:#06x}");
                    assert_ne!(updated, 0xffff);
                }
            }
        }
    }

    #[test]
    fn decrementing_the_ttl_incrementally_equals_the_full_checksum_for_every_header() {
        for ttl in 1..=255u16 {
            let (old, new) = (ttl << 8 | 17, (ttl - 1) << 8 | 17);
            for rest in 0..=0xffffu16 {
                assert_eq!(update(full(&[0x4500, old, rest]), old, new), full(&[0x4500, new, rest]));
            }
        }
    }
}
