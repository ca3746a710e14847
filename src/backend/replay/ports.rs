//! On which port a packet of a capture comes in.

use std::collections::HashMap;

use crate::dataplane::{MacAddress, PortId};

/// The rule that the head of [`super`] states.
pub struct Ports {
    count: usize,
    stations: HashMap<MacAddress, PortId>,
}

impl Ports {
    /// For a switch of `count` ports. Without any, all packets come in on port 0.
    pub fn new(count: usize) -> Self {
        Ports { count: count.max(1), stations: HashMap::new() }
    }

    /// The port of a frame that was captured on `interface`, one of the `interfaces` described so far.
    pub fn ingress(&mut self, frame: &[u8], interface: u32, interfaces: usize) -> PortId {
        if interfaces > 1 {
            return (interface as usize % self.count) as PortId;
        }
        let Some(source) = frame.get(6..12).and_then(|mac| mac.try_into().ok()) else { return 0 };
        let next = (self.stations.len() % self.count) as PortId;
        *self.stations.entry(source).or_insert(next)
    }
}
