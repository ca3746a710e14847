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
///
/// A lookup multiplies once a word of the key, then reads one bucket and one entry: buckets are few bytes and entries lie
/// close together, so that both are in the cache. Entries go in bulk only ([`ExactTable::retain`]).
#[derive(Clone, Debug)]
pub struct ExactTable<K, V> {
    capacity: usize,
    /// A power of two of them, at most half in use: number of the entry + 1, in the first bucket from the key's hash on
    /// that was free; 0 in a free one.
    buckets: Box<[u32]>,
    /// In the order in which they came.
    entries: Vec<(K, V)>,
}

impl<K: Eq + Hash, V> ExactTable<K, V> {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        let buckets = vec![0; (2 * capacity.max(1)).next_power_of_two()].into();
        ExactTable { capacity, buckets, entries: Vec::with_capacity(capacity) }
    }

    /// The entry that matches.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        let number = self.find(key).ok()?;
        self.entries.get(number).map(|(_, value)| value)
    }

    /// The entry that matches, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let number = self.find(key).ok()?;
        self.entries.get_mut(number).map(|(_, value)| value)
    }

    /// Adds an entry, or replaces the one of the same key and returns its old value.
    ///
    /// # Errors
    /// [`TableFull`] when the key is new and there is no room; the table is as before.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, TableFull> {
        match self.find(&key) {
            Ok(number) => Ok(Some(std::mem::replace(&mut self.entries[number].1, value))),
            Err(_) if self.entries.len() >= self.capacity => Err(TableFull { capacity: self.capacity }),
            Err(bucket) => {
                self.entries.push((key, value));
                self.buckets[bucket] = self.entries.len() as u32;
                Ok(None)
            }
        }
    }

    /// Keeps the entries for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let before = self.entries.len();
        self.entries.retain_mut(|(key, value)| keep(key, value));
        if self.entries.len() == before {
            return;
        }
        self.buckets.fill(0);
        for number in 0..self.entries.len() {
            // All keys differ, so each search ends at a free bucket.
            if let Err(bucket) = self.find(&self.entries[number].0) {
                self.buckets[bucket] = number as u32 + 1;
            }
        }
    }

    /// All entries, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of the entry, or else the bucket where it would be entered.
    #[inline]
    fn find(&self, key: &K) -> Result<usize, usize> {
        let mut hasher = FoldHasher::default();
        key.hash(&mut hasher);
        let mask = self.buckets.len() - 1;
        let mut bucket = hasher.finish() as usize & mask;
        loop {
            match self.buckets[bucket].checked_sub(1) {
                None => return Err(bucket),
                Some(number) if self.entries[number as usize].0 == *key => return Ok(number as usize),
                Some(_) => bucket = (bucket + 1) & mask,
            }
        }
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
        table.retain(|key, _| *key != 1);
        assert_eq!((table.get(&1), table.get(&2)), (None, Some(&'d')));
        assert_eq!(table.insert(3, 'c'), Ok(None));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(&2, &'d'), (&3, &'c')]);
    }

    /// Few keys and a full table, so that searches run into each other and around the end.
    #[test]
    fn an_exact_table_behaves_like_a_map_whatever_is_done_to_it() {
        for capacity in [0, 1, 2, 3, 8, 12] {
            let (mut table, mut model) = (ExactTable::new(capacity), std::collections::BTreeMap::new());
            let mut random = 1u64;
            for step in 0..5000u64 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let key = random >> 60;
                if random >> 40 & 7 == 0 {
                    table.retain(|other, _| other % 3 != key % 3);
                    model.retain(|other, _| other % 3 != key % 3);
                } else if model.len() < capacity || model.contains_key(&key) {
                    assert_eq!(table.insert(key, step), Ok(model.insert(key, step)));
                } else {
                    assert_eq!(table.insert(key, step), Err(TableFull { capacity }));
                }
                for key in 0..16 {
                    assert_eq!(table.get(&key), model.get(&key), "capacity {capacity}, step {step}, key {key}");
                    assert_eq!(table.get_mut(&key), model.get_mut(&key));
                }
                assert_eq!((table.len(), table.is_empty()), (model.len(), model.is_empty()));
            }
        }
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
