//! A learning bridge.
//!
//! Stations are learned per (VLAN, MAC), as bridges with independent VLAN learning do: the same MAC may live on different
//! ports in different VLANs without moving back and forth. The VLAN is that of the outermost tag, 0 without one. There
//! is no VLAN membership: flooding goes to every other port.

use super::is_group;
use crate::dataplane::{Cx, DropReason, ExactTable, MacAddress, Nanos, Phv, PortId, PortSet, Tracer, Verdict};

/// A station that was silent for so long is not known any more (IEEE 802.1Q 8.8.3: 300 s).
pub const AGE_LIMIT_NS: Nanos = 300_000_000_000;

/// Most stations that are known at a time.
pub const MAX_STATIONS: usize = 8192;

/// Where a station is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its port.
    pub port: PortId,
    /// When it was last heard.
    pub heard_at: Nanos,
}

#[derive(Clone, Debug)]
pub(super) struct Learning {
    ports: PortSet,
    stations: ExactTable<u64, Station>,
    not_learned: u64,
}

impl Learning {
    pub(super) fn new(ports: PortSet) -> Self {
        Learning { ports, stations: ExactTable::new(MAX_STATIONS), not_learned: 0 }
    }

    #[inline]
    pub(super) fn forward<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &Phv) -> Verdict {
        let vid = if phv.vlan.count > 0 { phv.vlan.tci[0] & 0xfff } else { 0 };
        self.learn(key(vid, phv.eth_src), Station { port: phv.ingress_port, heard_at: cx.now });
        let destination = if is_group(&phv.eth_dst) { None } else { self.stations.get(&key(vid, phv.eth_dst)) };
        let destination = destination.filter(|station| cx.now.saturating_sub(station.heard_at) <= AGE_LIMIT_NS);
        cx.table("stations", destination.is_some());
        match destination {
            Some(station) if station.port == phv.ingress_port => Verdict::Drop(DropReason::SamePort),
            Some(station) => Verdict::Forward(station.port),
            None => Verdict::Multicast(self.ports.without(phv.ingress_port)),
        }
    }

    /// A station that is heard on another port has moved there.
    #[inline]
    fn learn(&mut self, key: u64, station: Station) {
        match self.stations.get_mut(&key) {
            Some(known) => *known = station,
            None => self.enter(key, station),
        }
    }

    #[cold]
    fn enter(&mut self, key: u64, station: Station) {
        self.not_learned += u64::from(self.stations.insert(key, station).is_err());
    }

    pub(super) fn forget_port(&mut self, port: PortId) {
        self.stations.retain(|_, station| station.port != port);
    }

    pub(super) fn expire(&mut self, now: Nanos) {
        self.stations.retain(|_, station| now.saturating_sub(station.heard_at) <= AGE_LIMIT_NS);
    }

    pub(super) fn station(&self, vid: u16, mac: MacAddress) -> Option<Station> {
        self.stations.get(&key(vid, mac)).copied()
    }

    pub(super) fn not_learned(&self) -> u64 {
        self.not_learned
    }
}

#[inline]
fn key(vid: u16, mac: MacAddress) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from(vid) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
