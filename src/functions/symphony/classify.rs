//! Tables: which flow slot a queue pair has, and which job the address pair of a new one belongs to.

use std::collections::VecDeque;

use crate::dataplane::{ExactTable, IpAddress, Phv, TableFull};

/// Table `edges`: exact (source, destination) -> slot of the job. An edge is what a rank sends to its ring's next one.
#[derive(Clone, Debug)]
pub(super) struct Edges(ExactTable<(u128, u128), u16>);

fn edge_key(src: &IpAddress, dst: &IpAddress) -> (u128, u128) {
    (u128::from_ne_bytes(*src), u128::from_ne_bytes(*dst))
}

impl Edges {
    pub(super) fn new(capacity: usize) -> Self {
        Edges(ExactTable::new(capacity))
    }

    pub(super) fn get(&self, src: &IpAddress, dst: &IpAddress) -> Option<u16> {
        self.0.get(&edge_key(src, dst)).copied()
    }

    pub(super) fn insert(&mut self, src: &IpAddress, dst: &IpAddress, job: u16) -> Result<(), TableFull> {
        self.0.insert(edge_key(src, dst), job).map(|_| ())
    }

    pub(super) fn remove_job(&mut self, job: u16) {
        self.0.retain(|_, owner| *owner != job);
    }
}

/// Which flow: source, destination, destination queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    src: u128,
    dst: u128,
    dest_qpn: u32,
}

impl FlowKey {
    #[inline]
    pub(super) fn new(phv: &Phv, dest_qpn: u32) -> Self {
        FlowKey { src: u128::from_ne_bytes(phv.src), dst: u128::from_ne_bytes(phv.dst), dest_qpn }
    }

    /// Source, destination, destination queue pair.
    pub(super) fn parts(&self) -> (IpAddress, IpAddress, u32) {
        (self.src.to_ne_bytes(), self.dst.to_ne_bytes(), self.dest_qpn)
    }
}

/// An entry of table `flows`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowEntry {
    /// The flow's cell in every register.
    pub(super) slot: u32,
    /// Tick of its last packet: the idle timer of a Tofino's table entry.
    pub(super) last_seen: u32,
    /// Slot of its job. A flow goes when its job does.
    pub(super) job: u16,
}

/// Table `flows`: exact (source, destination, destination queue pair) -> slot and job, and the slots that are free.
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
    pub(super) fn lookup(&mut self, key: &FlowKey) -> Option<&mut FlowEntry> {
        self.table.get_mut(key)
    }

    /// Gives a new flow the slot at the head of the queue; `None` when there is none.
    #[cold]
    pub(super) fn insert(&mut self, key: FlowKey, job: u16, tick: u32) -> Option<u32> {
        let slot = *self.free.front()?;
        self.table.insert(key, FlowEntry { slot, last_seen: tick, job }).ok()?;
        self.free.pop_front()
    }

    /// Forgets the flows that `gone` picks. Their slots go to the queue's tail in ascending order. Returns their entries.
    pub(super) fn remove(&mut self, gone: impl Fn(&FlowEntry) -> bool) -> Vec<FlowEntry> {
        let mut removed = Vec::new();
        self.table.retain(|_, entry| {
            let gone = gone(entry);
            if gone {
                removed.push(*entry);
            }
            !gone
        });
        removed.sort_unstable_by_key(|entry| entry.slot);
        self.free.extend(removed.iter().map(|entry| entry.slot));
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&FlowKey, &FlowEntry)> {
        self.table.iter()
    }
}
