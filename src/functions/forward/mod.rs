//! Forwarding: learning L2, or static L2/L3 with ECMP groups.
//!
//! One ingress stage, last in the chain: it leaves no packet undecided. In both modes link-local control frames and
//! frames from a group address are dropped first.

mod config;
mod ecmp;
mod learning;
mod routes;

pub use config::{ForwardConfig, NextHop, Prefix, Route, RouteMatch};
pub use learning::{AGE_LIMIT_NS, MAX_STATIONS, Station};

use learning::Learning;
use routes::Routes;

use crate::dataplane::{Cx, DropReason, Function, MacAddress, Nanos, Phv, PortId, PortSet, Tracer, Verdict};

/// The function.
#[derive(Clone, Debug)]
pub struct Forward {
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Mode {
    Learning(Learning),
    Static(Routes),
}

impl Forward {
    /// Forwarding between the ports 0 to `ports` - 1. `seed` is the switch's and enters the ECMP hash.
    pub fn new(config: &ForwardConfig, ports: usize, seed: u64) -> Self {
        Forward {
            mode: match config {
                ForwardConfig::Learning => Mode::Learning(Learning::new(PortSet::first(ports))),
                ForwardConfig::Static(routes) => Mode::Static(Routes::new(routes, seed)),
            },
        }
    }

    /// Forgets the stations learned on `port`: it went down.
    pub fn forget_port(&mut self, port: PortId) {
        if let Mode::Learning(learning) = &mut self.mode {
            learning.forget_port(port);
        }
    }

    /// Gives the room of aged stations free. Ageing itself does not wait for it: an aged station is not found.
    pub fn expire(&mut self, now: Nanos) {
        if let Mode::Learning(learning) = &mut self.mode {
            learning.expire(now);
        }
    }

    /// The station of `mac` in a VLAN (0: untagged), aged or not.
    pub fn station(&self, vid: u16, mac: MacAddress) -> Option<Station> {
        match &self.mode {
            Mode::Learning(learning) => learning.station(vid, mac),
            Mode::Static(_) => None,
        }
    }

    /// Source addresses that could not be learned because the table was full, each time counted.
    pub fn not_learned(&self) -> u64 {
        match &self.mode {
            Mode::Learning(learning) => learning.not_learned(),
            Mode::Static(_) => 0,
        }
    }
}

impl Function for Forward {
    #[inline]
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        cx.stage("ingress", "forward");
        if is_link_local(&phv.eth_dst) {
            return Verdict::Drop(DropReason::LinkLocal);
        }
        if is_group(&phv.eth_src) {
            return Verdict::Drop(DropReason::BadSourceMac);
        }
        match &mut self.mode {
            Mode::Learning(learning) => learning.forward(cx, phv),
            Mode::Static(routes) => routes.forward(cx, phv),
        }
    }
}

/// IEEE 802.1Q table 8-1: 01:80:C2:00:00:00 to 0F, which bridges do not forward.
#[inline]
fn is_link_local(mac: &MacAddress) -> bool {
    mac[..5] == [0x01, 0x80, 0xc2, 0, 0] && mac[5] < 0x10
}

/// Multicast and broadcast (IEEE 802 8.2: the least significant bit of the first byte).
#[inline]
fn is_group(mac: &MacAddress) -> bool {
    mac[0] & 1 != 0
}

#[cfg(test)]
mod tests;
