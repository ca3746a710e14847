//! What a driver tells the function at start.

use std::net::Ipv4Addr;

use crate::dataplane::{MacAddress, PortId};

/// The aggregation service of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SereneConfig {
    /// Where workers send to; unspecified (0.0.0.0): no service. Must be in their subnet, or routed to them: the switch
    /// answers ARP requests for it.
    pub address: Ipv4Addr,
    /// The Ethernet address that goes with it.
    pub mac: MacAddress,
    /// The port that only the controller is behind: its packets come in here, and their answers go out.
    pub cpu_port: Option<PortId>,
    /// A number drawn when the switch starts. Workers know by it that their sums are gone.
    pub incarnation: u32,
}

/// Which checks are made: all, but in tests that show what each of them is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guards {
    /// A swap's boundary lies beyond every round pushed for.
    pub(crate) boundary: bool,
    /// A contribution counts once.
    pub(crate) duplicate: bool,
    /// A contribution is not to a round whose predecessor may be open.
    pub(crate) base: bool,
    /// A contribution to a round before the last completed swap does not count.
    pub(crate) old: bool,
}

impl Guards {
    pub(crate) const ALL: Guards = Guards { boundary: true, duplicate: true, base: true, old: true };
}
