//! Match tables: exact and longest prefix. Bounded, filled by the control plane (or by learning), looked up by stages.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::phv::IpAddress;

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
    entries: HashMap<K, V, BuildHasherDefault<FoldHasher>>,
}

impl<K: Eq + Hash, V> ExactTable<K, V> {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        ExactTable { capacity, entries: HashMap::with_capacity_and_hasher(capacity, BuildHasherDefault::default()) }
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
    lengths: Vec<(u128, HashMap<u128, V, BuildHasherDefault<FoldHasher>>)>,
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
        // Digits of pi, odd: nothing up the sleeve. The additive constant keeps zeros from being absorbed.
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
        self.mix(n as u64);
        self.mix((n >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }
}
