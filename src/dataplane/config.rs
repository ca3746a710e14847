//! What a driver tells the switch at start.

/// RED/ECN of a port's data queue, on the instantaneous depth at dequeue: no mark below `kmin_bytes`, linear to `pmax` at
/// `kmax_bytes`, every packet above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Lower threshold.
    pub kmin_bytes: u64,
    /// Upper threshold.
    pub kmax_bytes: u64,
    /// Marking probability at the upper threshold, 0..=1.
    pub pmax: f64,
}

/// One port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortConfig {
    /// Name, for people.
    pub name: String,
    /// Emulated line rate in bit/s; `None` sends as fast as the driver takes packets.
    pub rate_bps: Option<u64>,
    /// Limit of the port's queues together.
    pub buffer_bytes: u64,
    /// ECN marking; `None` for none.
    pub red: Option<Red>,
}

/// The switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchConfig {
    /// Limit of all queues of all ports together.
    pub buffer_bytes: u64,
    /// Seed of every random stream.
    pub seed: u64,
    /// The ports; a [`super::PortId`] is an index into this list. At most 64.
    pub ports: Vec<PortConfig>,
}
