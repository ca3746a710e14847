//! Static forwarding: by destination MAC (bridged) or else by the longest prefix of the destination address (routed).
//! Nothing is flooded and nothing is learned.

use super::config::{NextHop, Route, RouteMatch};
use super::ecmp;
use crate::dataplane::{Cx, DropReason, ExactTable, L3, LpmTable, MacAddress, Phv, Tracer, Verdict};

#[derive(Clone, Debug)]
pub(super) struct Routes {
    macs: ExactTable<MacAddress, Vec<NextHop>>,
    prefixes: LpmTable<Vec<NextHop>>,
    seed: u32,
}

impl Routes {
    /// Of two routes with the same match the later one counts.
    pub(super) fn new(routes: &[Route], seed: u64) -> Self {
        let mut own = Routes {
            macs: ExactTable::new(routes.len()),
            prefixes: LpmTable::default(),
            seed: (seed ^ seed >> 32) as u32,
        };
        for route in routes {
            match route.matches {
                RouteMatch::Mac(mac) => {
                    // It fits: there is room for every route.
                    let _ = own.macs.insert(mac, route.via.clone());
                }
                RouteMatch::Prefix(prefix) => {
                    own.prefixes.insert(prefix.address, prefix.bits, route.via.clone());
                }
            }
        }
        own
    }

    #[inline]
    pub(super) fn forward<T: Tracer>(&self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        let bridged = self.macs.get(&phv.eth_dst);
        cx.table("mac_routes", bridged.is_some());
        if let Some(hop) = bridged.and_then(|via| self.choose(via, phv)) {
            return bridge(hop, phv);
        }
        if phv.l3 == L3::Other {
            return Verdict::Drop(DropReason::NoRoute);
        }
        let routed = self.prefixes.get(&phv.dst);
        cx.table("routes", routed.is_some());
        let Some(hop) = routed.and_then(|via| self.choose(via, phv)) else {
            return Verdict::Drop(DropReason::NoRoute);
        };
        let Some(mac) = hop.mac else { return bridge(hop, phv) };
        if phv.ttl <= 1 {
            return Verdict::Drop(DropReason::TtlExpired);
        }
        // Without a source of its own, the address that the sender took the router to have.
        phv.eth_src = hop.source_mac.unwrap_or(phv.eth_dst);
        phv.eth_dst = mac;
        phv.ttl -= 1;
        phv.routed = true;
        Verdict::Forward(hop.port)
    }

    #[inline]
    fn choose<'a>(&self, via: &'a [NextHop], phv: &Phv) -> Option<&'a NextHop> {
        match via {
            [only] => Some(only),
            _ => via.get(ecmp::member(ecmp::hash(phv, self.seed), via.len())),
        }
    }
}

/// Out unchanged, but never back to where it came from.
#[inline]
fn bridge(hop: &NextHop, phv: &Phv) -> Verdict {
    if hop.port == phv.ingress_port { Verdict::Drop(DropReason::SamePort) } else { Verdict::Forward(hop.port) }
}
