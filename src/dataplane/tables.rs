//! Match tables: exact and longest prefix. Bounded, filled by the control plane (or by learning), looked up by stages.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::phv::IpAddress;

type Map<K, V> = HashMap<K, V, BuildHasherDefault<FoldHasher>>;

/// A table has no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table is full: it holds {capacity} entries")]
pub struct TableFull {
    /// Its size.
    pub capacity: usize,
}

/// An exact-match table of at most `capacity` entries. Room for all of them is taken at once, so that no insert allocates.
#[derive(Clone, Debug)]
pub struct ExactTable<K, V> {
    capacity: usize,
    entries: Map<K, V>,
}

impl<K: Eq + Hash, V> ExactTable<K, V> {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        // Twice the room: a map that is at most half full reuses the places of removed entries and never grows.
        let entries = HashMap::with_capacity_and_hasher(2 * capacity, BuildHasherDefault::default());
        ExactTable { capacity, entries }
    }

    /// The entry that matches.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// The entry that matches, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Adds an entry, or replaces the one of the same key and returns its old value.
    ///
    /// # Errors
    /// [`TableFull`] when the key is new and there is no room; the table is as before.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, TableFull> {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            return Err(TableFull { capacity: self.capacity });
        }
        Ok(self.entries.insert(key, value))
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }

    /// Keeps the entries for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain(|key, value| keep(key, value));
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A longest-prefix-match table over 128-bit addresses, IPv4 mapped into IPv6.
///
/// One exact map a prefix length, longest first: a lookup asks one map for each length that is in use (at most 129).
#[derive(Clone, Debug)]
pub struct LpmTable<V> {
    /// Mask and map, longest prefix first.
    lengths: Vec<(u128, Map<u128, V>)>,
}

impl<V> Default for LpmTable<V> {
    fn default() -> Self {
        LpmTable { lengths: Vec::new() }
    }
}

impl<V> LpmTable<V> {
    /// Adds a prefix, or replaces the one that is equal and returns its old value. Bits of `address` behind the first
    /// `bits` don't count; `bits` above 128 is 128.
    pub fn insert(&mut self, address: IpAddress, bits: u8, value: V) -> Option<V> {
        let mask = prefix_mask(bits);
        let at = self.lengths.partition_point(|(other, _)| *other > mask);
        if self.lengths.get(at).is_none_or(|(other, _)| *other != mask) {
            self.lengths.insert(at, (mask, HashMap::default()));
        }
        self.lengths[at].1.insert(u128::from_be_bytes(address) & mask, value)
    }

    /// The entry with the longest prefix that holds `address`.
    #[inline]
    pub fn get(&self, address: &IpAddress) -> Option<&V> {
        let address = u128::from_be_bytes(*address);
        self.lengths.iter().find_map(|(mask, map)| map.get(&(address & mask)))
    }
}

/// The `bits` highest bits set. A longer prefix has the greater mask.
fn prefix_mask(bits: u8) -> u128 {
    match bits {
        0 => 0,
        1..=127 => u128::MAX << (128 - u32::from(bits)),
        _ => u128::MAX,
    }
}

/// Folded multiply: each word is mixed in by one 64x64 -> 128 bit multiplication whose halves are XORed.
///
/// Fast and the same in every run, so not proof against chosen keys: tables of it are bounded.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldHasher(u64);

impl FoldHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        // Digits of pi keep zeros from being absorbed; the multiplier is 2^64 over the golden ratio.
        let product = u128::from(self.0 ^ word ^ 0x2438_5a30_8d31_3199) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FoldHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.mix(n.into());
    }

    #[inline]
    fn write_u16(&mut self, n: u16) {
        self.mix(n.into());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.mix(n.into());
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    #[inline]
    fn write_u128(&mut self, n: u128) {
        self.mix((n as u64).rotate_left(32) ^ (n >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn an_exact_table_refuses_a_new_key_when_full_but_replaces_an_old_one() {
        let mut table = ExactTable::new(2);
        assert_eq!(table.insert(1u64, 'a'), Ok(None));
        assert_eq!(table.insert(2, 'b'), Ok(None));
        assert_eq!(table.insert(3, 'c'), Err(TableFull { capacity: 2 }));
        assert_eq!(table.insert(2, 'd'), Ok(Some('b')));
        assert_eq!((table.get(&1), table.get(&2), table.get(&3), table.len()), (Some(&'a'), Some(&'d'), None, 2));
        assert_eq!(table.remove(&1), Some('a'));
        assert_eq!(table.insert(3, 'c'), Ok(None));
    }

    #[test]
    fn the_longest_prefix_wins_whatever_the_order_of_insertion() {
        let address = |last: [u8; 4]| {
            let [a, b, c, d] = last;
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        };
        let prefixes = [(96, "default"), (96 + 8, "10/8"), (96 + 24, "10.0.0/24"), (128, "10.0.0.7"), (0, "all")];
        for rotation in 0..prefixes.len() {
            let mut table = LpmTable::default();
            for (bits, name) in prefixes.iter().cycle().skip(rotation).take(prefixes.len()) {
                // 10.0.0.7 with its host bits: they don't count.
                table.insert(address([10, 0, 0, 7]), *bits, *name);
            }
            assert_eq!(table.get(&address([10, 0, 0, 7])), Some(&"10.0.0.7"));
            assert_eq!(table.get(&address([10, 0, 0, 8])), Some(&"10.0.0/24"));
            assert_eq!(table.get(&address([10, 9, 0, 8])), Some(&"10/8"));
            assert_eq!(table.get(&address([11, 9, 0, 8])), Some(&"default"));
            assert_eq!(table.get(&[0xfd; 16]), Some(&"all"));
        }
        assert_eq!(LpmTable::<()>::default().get(&[0; 16]), None);
    }

    /// hashbrown takes the slot from the low bits and a tag from the high ones.
    #[test]
    fn keys_that_differ_in_few_bits_spread_over_low_and_high_bits_of_the_hash() {
        let hasher = BuildHasherDefault::<FoldHasher>::default();
        for shift in [0, 8, 16, 40, 48] {
            let mut low = std::collections::HashSet::new();
            let mut high = std::collections::HashSet::new();
            for n in 0..1024u64 {
                let hash = hasher.hash_one(n << shift);
                low.insert(hash & 0x3ff);
                high.insert(hash >> 54);
            }
            // 1024 balls into 1024 bins at random leave about 37 % of them empty.
            assert!(low.len() > 500 && high.len() > 500, "shift {shift}: {} and {}", low.len(), high.len());
        }
    }
}
