//! Equal-cost multipath: which member of a group a flow takes.

use crc32fast::Hasher;

use crate::dataplane::Phv;

/// Hash of a flow: CRC-32 of (src, dst, protocol, sport, dport), addresses as 16 bytes, ports big-endian; of (src, dst,
/// protocol) alone for fragments, so that all fragments of a packet take one way.
///
/// CRC is linear: two seeds put into it would differ by a constant in all flows, and a spine that gets only the flows that a leaf
/// sent it would put them all on one of its links (polarisation). So the seed comes in behind it, by a finaliser that is
/// not linear (murmur3's).
#[inline]
pub(super) fn hash(phv: &Phv, seed: u32) -> u32 {
    let mut tuple = [0; 37];
    tuple[..16].copy_from_slice(&phv.src);
    tuple[16..32].copy_from_slice(&phv.dst);
    tuple[32] = phv.protocol;
    tuple[33..35].copy_from_slice(&phv.sport.to_be_bytes());
    tuple[35..].copy_from_slice(&phv.dport.to_be_bytes());
    let mut crc = Hasher::new();
    crc.update(if phv.fragment { &tuple[..33] } else { &tuple });
    let mut hash = crc.finalize() ^ seed;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// The member of a group of `len` for a hash, by multiplication: fair as a remainder is, without the division.
#[inline]
pub(super) fn member(hash: u32, len: usize) -> usize {
    ((u64::from(hash) * len as u64) >> 32) as usize
}
