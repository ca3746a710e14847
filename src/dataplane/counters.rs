//! What the switch counts. In packets unless a name says bytes.

use serde::Serialize;

use super::drop_reason::DropReason;

/// The conservation law: `rx + emitted + replicas = tx + consumed + dropped + queued`, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conservation {
    /// Received from the ports.
    pub rx: u64,
    /// Made by functions.
    pub emitted: u64,
    /// Made by flooding and multicast beyond the first.
    pub replicas: u64,
    /// Handed to the ports.
    pub tx: u64,
    /// Absorbed by functions.
    pub consumed: u64,
    /// Dropped, for whatever reason.
    pub dropped: u64,
    /// In queues now.
    pub queued: u64,
}

impl Conservation {
    /// Whether the law holds.
    pub fn holds(&self) -> bool {
        self.rx + self.emitted + self.replicas == self.tx + self.consumed + self.dropped + self.queued
    }
}

impl std::ops::AddAssign for Conservation {
    fn add_assign(&mut self, other: Self) {
        self.rx += other.rx;
        self.emitted += other.emitted;
        self.replicas += other.replicas;
        self.tx += other.tx;
        self.consumed += other.consumed;
        self.dropped += other.dropped;
        self.queued += other.queued;
    }
}

/// Marks set, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Marks {
    /// ECT packets that RED hit.
    pub red: u64,
    /// Extra marks without a RED hit.
    pub symphony: u64,
}

/// Drops by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Drops([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Packets dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count, zeros included, in the order of [`DropReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.iter().map(|reason| (*reason, self.get(*reason)))
    }

    pub(super) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }
}

/// One port's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets in.
    pub rx_packets: u64,
    /// Bytes in, without FCS.
    pub rx_bytes: u64,
    /// Packets out.
    pub tx_packets: u64,
    /// Bytes out, without FCS.
    pub tx_bytes: u64,
    /// Marks on packets that left here.
    pub marks: Marks,
    /// Times that the port's neighbour was told to pause its data ([`Pfc`](super::Pfc)).
    pub pfc_pauses: u64,
}

/// All counters of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The conservation law, true between any two calls into the switch.
    pub conservation: Conservation,
    /// Drops by reason; their sum is `conservation.dropped`.
    pub drops: Drops,
    /// By port, in the order of the configuration.
    pub ports: Vec<PortCounters>,
}

impl Counters {
    /// Marks of all ports.
    pub fn marks(&self) -> Marks {
        self.ports.iter().fold(Marks::default(), |sum, port| Marks {
            red: sum.red + port.marks.red,
            symphony: sum.symphony + port.marks.symphony,
        })
    }

    pub(super) fn drop(&mut self, reason: DropReason) {
        self.conservation.dropped += 1;
        self.drops.count(reason);
    }
}
