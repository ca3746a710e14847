//! What forwarding is told at start.

use crate::dataplane::{IpAddress, MacAddress, PortId};

/// How frames find their port.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ForwardConfig {
    /// A learning bridge: unknown and group destinations are flooded.
    #[default]
    Learning,
    /// Only what the routes say.
    Static(Vec<Route>),
}

/// One static route: a match and the next hops that share its traffic (ECMP by CRC-32 of the 5-tuple and the seed).
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// What it matches.
    pub matches: RouteMatch,
    /// One or more.
    pub via: Vec<NextHop>,
}

/// What a static route matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouteMatch {
    /// A destination MAC: bridged, the frame is not changed.
    Mac(MacAddress),
    /// A destination prefix, the longest wins: routed, MACs are rewritten and the TTL goes down by one.
    Prefix(Prefix),
}

/// An IP prefix; IPv4 is mapped into IPv6 (`10.0.0.0/24` has `bits` 96 + 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Address with the host part zero.
    pub address: IpAddress,
    /// Prefix length in the mapped address, 0..=128.
    pub bits: u8,
}

/// One way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Egress port.
    pub port: PortId,
    /// Destination MAC for routed packets. Without it the packet goes on unchanged, as by a MAC route.
    pub mac: Option<MacAddress>,
    /// Source MAC for routed packets: the egress port's own. Without it, the frame's old destination.
    pub source_mac: Option<MacAddress>,
}
