//! Switches, links and routes of a fabric.
//!
//! Host h has the addresses 10.0.0.0/8 with h in the next 12 bits; the last 12 bits tell its endpoints apart.

use std::net::{IpAddr, Ipv4Addr};

use super::setup::{Fabric, NOMINAL_BPS, Paths, Topology};
use super::{Error, error};
use crate::dataplane::{PortConfig, PortId, Red, SwitchConfig};
use crate::functions::forward::{ForwardConfig, NextHop, Prefix, Route, RouteMatch};
use crate::functions::symphony::mapped;

/// Most hosts of a fabric.
pub(super) const MAX_HOSTS: u32 = 1 << 12;
/// Most endpoints of a host that are there at the same time.
pub(super) const MAX_ENDPOINTS: u32 = 1 << 12;
/// Bits of an IPv4-mapped address up to and with the host.
const HOST_BITS: u8 = 96 + 8 + 12;

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Host(u32),
    Switch(u32, PortId),
}

/// One switch: its ports lead to `ports[p].0`.
#[derive(Clone, Debug)]
pub(super) struct SwitchPlan {
    pub(super) config: SwitchConfig,
    pub(super) forward: ForwardConfig,
    pub(super) seed: u64,
    pub(super) ends: Vec<End>,
}

/// A whole fabric.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) switches: Vec<SwitchPlan>,
    /// Where each host is plugged in.
    pub(super) hosts: Vec<(u32, PortId)>,
}

/// Address of an endpoint of a host.
pub(super) fn address(host: u32, endpoint: u32) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) | ((host % MAX_HOSTS) << 12) | (endpoint % MAX_ENDPOINTS)).into()
}

/// The host and the endpoint of an address that [`address`] made.
pub(super) fn endpoint(address: IpAddr) -> Option<(u32, u32)> {
    match address {
        IpAddr::V4(v4) => Some((v4.to_bits() >> 12 & (MAX_HOSTS - 1), v4.to_bits() & (MAX_ENDPOINTS - 1))),
        IpAddr::V6(_) => None,
    }
}

impl Topology {
    /// Hosts of the fabric.
    pub fn hosts(self) -> u32 {
        match self {
            Topology::Single { hosts } => hosts,
            Topology::LeafSpine { leaves, hosts_per_leaf, .. } => leaves * hosts_per_leaf,
            Topology::FatTree { k } => k * k * k / 4,
        }
    }

    /// The leaf (edge switch) of a host.
    pub fn leaf(self, host: u32) -> u32 {
        match self {
            Topology::Single { .. } => 0,
            Topology::LeafSpine { hosts_per_leaf, .. } => host / hosts_per_leaf,
            Topology::FatTree { k } => host / (k / 2),
        }
    }
}

/// A switch under construction.
struct Draft {
    ends: Vec<End>,
    rates: Vec<u64>,
    routes: Vec<Route>,
}

impl Draft {
    fn new() -> Self {
        Draft { ends: Vec::new(), rates: Vec::new(), routes: Vec::new() }
    }

    fn port(&mut self, end: End, bps: u64) -> PortId {
        self.ends.push(end);
        self.rates.push(bps);
        (self.ends.len() - 1) as PortId
    }

    /// Hosts `hosts` are reached by any of `ports`.
    fn route(&mut self, host: u32, ports: &[PortId]) {
        let prefix = Prefix { address: mapped(address(host, 0)), bits: HOST_BITS };
        self.routes.push(Route { matches: RouteMatch::Prefix(prefix), via: hops(ports) });
    }

    /// Everything else goes by any of `ports`, or, where paths must not collide, by the one that the host's number picks.
    fn route_up(&mut self, fabric: &Fabric, below: std::ops::Range<u32>, ports: &[PortId], shift: u32) {
        if fabric.paths == Paths::CollisionFree {
            for host in (0..fabric.topology.hosts()).filter(|host| !below.contains(host)) {
                self.route(host, &[ports[(host / shift) as usize % ports.len()]]);
            }
        } else {
            let prefix = Prefix { address: [0; 16], bits: 0 };
            self.routes.push(Route { matches: RouteMatch::Prefix(prefix), via: hops(ports) });
        }
    }
}

fn hops(ports: &[PortId]) -> Vec<NextHop> {
    ports.iter().map(|&port| NextHop { port, mac: None, source_mac: None }).collect()
}

impl Plan {
    /// The switches of a fabric, leaves first.
    pub(super) fn new(fabric: &Fabric, seed: u64) -> Result<Self, Error> {
        check(fabric)?;
        let mut hosts = Vec::new();
        let drafts = match fabric.topology {
            Topology::Single { hosts: count } => {
                let mut only = Draft::new();
                for host in 0..count {
                    let port = only.port(End::Host(host), fabric.host_bps);
                    only.route(host, &[port]);
                    hosts.push((0, port));
                }
                vec![only]
            }
            Topology::LeafSpine { leaves, hosts_per_leaf, spines } => {
                let mut drafts: Vec<Draft> = (0..leaves + spines).map(|_| Draft::new()).collect();
                for leaf in 0..leaves {
                    let below = leaf * hosts_per_leaf..(leaf + 1) * hosts_per_leaf;
                    for host in below.clone() {
                        let port = drafts[leaf as usize].port(End::Host(host), fabric.host_bps);
                        drafts[leaf as usize].route(host, &[port]);
                        hosts.push((leaf, port));
                    }
                    let up: Vec<PortId> = (0..spines)
                        .map(|spine| {
                            let bps = uplink_bps(fabric, leaf, spine);
                            let down = drafts[(leaves + spine) as usize]
                                .port(End::Switch(leaf, (hosts_per_leaf + spine) as PortId), fabric.fabric_bps);
                            for host in below.clone() {
                                drafts[(leaves + spine) as usize].route(host, &[down]);
                            }
                            drafts[leaf as usize].port(End::Switch(leaves + spine, leaf as PortId), bps)
                        })
                        .collect();
                    drafts[leaf as usize].route_up(fabric, below, &up, 1);
                }
                drafts
            }
            Topology::FatTree { k } => fat_tree(fabric, k, &mut hosts),
        };
        let switches = drafts.into_iter().zip(0..).map(|(draft, number)| finish(fabric, draft, seed, number)).collect();
        Ok(Plan { switches, hosts })
    }
}

/// Edge switches, then aggregation switches, pod by pod, then cores. Core a*k/2+c hangs on aggregation switch a of each pod.
fn fat_tree(fabric: &Fabric, k: u32, hosts: &mut Vec<(u32, PortId)>) -> Vec<Draft> {
    let half = k / 2;
    let (edges, pod_hosts) = (k * half, half * half);
    let mut drafts: Vec<Draft> = (0..2 * edges + half * half).map(|_| Draft::new()).collect();
    let aggregation = |pod: u32, a: u32| edges + pod * half + a;
    let core = |a: u32, c: u32| 2 * edges + a * half + c;
    for pod in 0..k {
        for e in 0..half {
            let edge = pod * half + e;
            let below = edge * half..(edge + 1) * half;
            let own = &mut drafts[edge as usize];
            for host in below.clone() {
                let port = own.port(End::Host(host), fabric.host_bps);
                own.route(host, &[port]);
                hosts.push((edge, port));
            }
            let up: Vec<PortId> = (0..half)
                .map(|a| own.port(End::Switch(aggregation(pod, a), e as PortId), uplink_bps(fabric, edge, a)))
                .collect();
            own.route_up(fabric, below, &up, 1);
        }
        for a in 0..half {
            let own = &mut drafts[aggregation(pod, a) as usize];
            for e in 0..half {
                let edge = pod * half + e;
                let down = own.port(End::Switch(edge, (half + a) as PortId), fabric.fabric_bps);
                for host in edge * half..(edge + 1) * half {
                    own.route(host, &[down]);
                }
            }
            let up: Vec<PortId> =
                (0..half).map(|c| own.port(End::Switch(core(a, c), pod as PortId), fabric.fabric_bps)).collect();
            own.route_up(fabric, pod * pod_hosts..(pod + 1) * pod_hosts, &up, half);
        }
    }
    for a in 0..half {
        for c in 0..half {
            let own = &mut drafts[core(a, c) as usize];
            for pod in 0..k {
                let down = own.port(End::Switch(aggregation(pod, a), (half + c) as PortId), fabric.fabric_bps);
                for host in pod * pod_hosts..(pod + 1) * pod_hosts {
                    own.route(host, &[down]);
                }
            }
        }
    }
    drafts
}

fn uplink_bps(fabric: &Fabric, leaf: u32, uplink: u32) -> u64 {
    let slow = fabric.slow_links.iter().find(|slow| (slow.leaf, slow.uplink) == (leaf, uplink));
    slow.map_or(fabric.fabric_bps, |slow| slow.bps)
}

fn finish(fabric: &Fabric, draft: Draft, seed: u64, number: u64) -> SwitchPlan {
    let ports = draft.rates.iter().zip(0..).map(|(&bps, port)| PortConfig {
        name: format!("s{number}p{port}"),
        rate_bps: Some(bps),
        buffer_bytes: fabric.buffer_bytes,
        red: fabric.red.map(|red| scaled(red, bps)),
        pfc: fabric.pfc,
        fault: None,
    });
    let seed = mix(seed, number);
    SwitchPlan {
        config: SwitchConfig { buffer_bytes: fabric.buffer_bytes, seed, ports: ports.collect() },
        forward: ForwardConfig::Static(draft.routes),
        seed,
        ends: draft.ends,
    }
}

/// Thresholds grow with the rate, so that a queue stands for the same time.
fn scaled(red: Red, bps: u64) -> Red {
    let of = |bytes: u64| (u128::from(bytes) * u128::from(bps) / u128::from(NOMINAL_BPS)) as u64;
    Red { kmin_bytes: of(red.kmin_bytes), kmax_bytes: of(red.kmax_bytes), pmax: red.pmax }
}

/// A seed for each switch (splitmix64).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn check(fabric: &Fabric) -> Result<(), Error> {
    let bad = |reason: String| Err(error("fabric.topology", reason));
    let ports = match fabric.topology {
        Topology::Single { hosts } => hosts,
        Topology::LeafSpine { leaves, hosts_per_leaf, spines } => {
            if leaves == 0 || hosts_per_leaf == 0 || spines == 0 {
                return bad("leaves, hosts per leaf and spines must be at least 1".into());
            }
            (hosts_per_leaf + spines).max(leaves)
        }
        Topology::FatTree { k } => {
            if k < 2 || !k.is_multiple_of(2) {
                return bad(format!("a fat tree of {k} ports a switch: use an even number from 2 on"));
            }
            k
        }
    };
    if ports == 0 || ports > 64 {
        return bad(format!("a switch would have {ports} ports: it can have 1 to 64"));
    }
    if fabric.topology.hosts() > MAX_HOSTS {
        return bad(format!("{} hosts: at most {MAX_HOSTS}", fabric.topology.hosts()));
    }
    let rates = [fabric.host_bps, fabric.fabric_bps].into_iter().chain(fabric.slow_links.iter().map(|slow| slow.bps));
    if rates.into_iter().any(|bps| bps == 0) {
        return Err(error("fabric", "a link of rate 0: give it one, for example 10Gbit".into()));
    }
    Ok(())
}

/// Time that `bytes` take on a line, in picoseconds.
pub(super) fn serialisation_ps(bytes: u32, bps: u64) -> u64 {
    (u128::from(bytes) * 8_000_000_000_000 / u128::from(bps)) as u64
}
