//! Tables: which job an address pair belongs to, and which flow slot a queue pair of it has.

use std::collections::VecDeque;

use crate::dataplane::{ExactTable, IpAddress, Phv, TableFull};

/// One edge of a ring: whose packets a rank sends to its next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Slot of the job.
    pub job: u16,
    /// Rank of the sender.
    pub rank: u16,
}

/// Table `edges`: exact (source, destination) -> [`Edge`].
#[derive(Clone, Debug)]
pub(super) struct Edges(ExactTable<(u128, u128), Edge>);

fn edge_key(src: &IpAddress, dst: &IpAddress) -> (u128, u128) {
    (u128::from_ne_bytes(*src), u128::from_ne_bytes(*dst))
}

impl Edges {
    pub(super) fn new(capacity: usize) -> Self {
        Edges(ExactTable::new(capacity))
    }

    #[inline]
    pub(super) fn lookup(&self, phv: &Phv) -> Option<Edge> {
        self.get(&phv.src, &phv.dst)
    }

    pub(super) fn get(&self, src: &IpAddress, dst: &IpAddress) -> Option<Edge> {
        self.0.get(&edge_key(src, dst)).copied()
    }

    pub(super) fn insert(&mut self, src: &IpAddress, dst: &IpAddress, edge: Edge) -> Result<(), TableFull> {
        self.0.insert(edge_key(src, dst), edge).map(|_| ())
    }

    pub(super) fn remove_job(&mut self, job: u16) {
        self.0.retain(|_, edge| edge.job != job);
    }
}

/// Which flow: an edge and a destination queue pair. As exact as (source, destination, queue pair), and one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey(u64);

impl FlowKey {
    pub(super) fn new(edge: Edge, dest_qpn: u32) -> Self {
        FlowKey(u64::from(edge.job) << 48 | u64::from(edge.rank) << 32 | u64::from(dest_qpn))
    }

    pub(super) fn edge(self) -> Edge {
        Edge { job: (self.0 >> 48) as u16, rank: (self.0 >> 32) as u16 }
    }

    pub(super) fn dest_qpn(self) -> u32 {
        self.0 as u32
    }
}

/// An entry of table `flows`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEntry {
    /// The flow's cell in every register.
    pub(super) slot: u32,
    /// Tick of its last packet: the idle timer of a Tofino's table entry.
    pub(super) last_seen: u32,
}

/// Table `flows`: exact (edge, destination queue pair) -> slot, and the slots that are free.
///
/// A sender can choose its queue pairs, so it can fill the table; 2^24 of them bound the length of a chain in it.
#[derive(Clone, Debug)]
pub(super) struct Flows {
    table: ExactTable<FlowKey, FlowEntry>,
    /// First in, first out: a slot rests as long as it can before it is used again.
    free: VecDeque<u32>,
}

impl Flows {
    pub(super) fn new(capacity: u32) -> Self {
        Flows { table: ExactTable::new(capacity as usize), free: (0..capacity).collect() }
    }

    #[inline]
    pub(super) fn lookup(&mut self, key: FlowKey, tick: u32) -> Option<u32> {
        let entry = self.table.get_mut(&key)?;
        entry.last_seen = tick;
        Some(entry.slot)
    }

    /// Gives a new flow the slot at the head of the queue; `None` when there is none.
    pub(super) fn insert(&mut self, key: FlowKey, tick: u32) -> Option<u32> {
        let slot = *self.free.front()?;
        self.table.insert(key, FlowEntry { slot, last_seen: tick }).ok()?;
        self.free.pop_front()
    }

    /// Forgets the flows that `gone` picks. Their slots go to the queue's tail in ascending order, and are returned.
    pub(super) fn remove(&mut self, gone: impl Fn(FlowKey, &FlowEntry) -> bool) -> Vec<(FlowKey, u32)> {
        let mut removed = Vec::new();
        self.table.retain(|key, entry| {
            let gone = gone(*key, entry);
            if gone {
                removed.push((*key, entry.slot));
            }
            !gone
        });
        removed.sort_unstable_by_key(|(_, slot)| *slot);
        self.free.extend(removed.iter().map(|(_, slot)| *slot));
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FlowKey, u32)> {
        self.table.iter().map(|(key, entry)| (*key, entry.slot))
    }
}
