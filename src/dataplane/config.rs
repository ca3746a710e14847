//! What a driver tells the switch at start.

use super::Nanos;

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

/// Priority flow control (IEEE 802.1Qbb) of a port's neighbour, by what the switch holds of the data that came in by the
/// port. Acknowledgements and CNPs are of another class, which is never paused and not accounted for.
///
/// A packet is booked as reserve, else as shared up to the threshold, else as headroom. The neighbour is paused once there
/// is headroom in use or as much shared as the threshold, and resumed once there is neither headroom in use nor more
/// shared than `resume_offset_bytes` below the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pfc {
    /// How much the port may hold as shared.
    pub threshold: PfcThreshold,
    /// What the port may hold besides.
    pub reserve_bytes: u64,
    /// Room for the packet that crosses the threshold and for what is on its way until the pause works: the round trip at
    /// line rate, and a packet of maximal length at either end.
    pub headroom_bytes: u64,
    /// How far below the threshold the neighbour is resumed.
    pub resume_offset_bytes: u64,
}

/// The threshold of [`Pfc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcThreshold {
    /// The same at all times.
    Static {
        /// The threshold.
        xoff_bytes: u64,
    },
    /// A share of what is left: the switch's buffer without all reserves and headrooms and without what all ports hold as
    /// shared now, over 2^`shift` (Choudhury and Hahne 1998, with alpha 2^-`shift`).
    Dynamic {
        /// Divides by 2^`shift`.
        shift: u8,
    },
}

impl Pfc {
    /// Pauses when the port holds `xoff_bytes` or more and resumes at `xon_bytes` or less.
    pub const fn fixed(xoff_bytes: u64, xon_bytes: u64, headroom_bytes: u64) -> Pfc {
        Pfc {
            threshold: PfcThreshold::Static { xoff_bytes },
            reserve_bytes: 0,
            headroom_bytes,
            resume_offset_bytes: xoff_bytes.saturating_sub(xon_bytes),
        }
    }

    /// A dynamic threshold with the reserve and the resume offset of HPCC's ns-3 model: 4096 and 3072 bytes.
    pub const fn dynamic(shift: u8, headroom_bytes: u64) -> Pfc {
        Pfc {
            threshold: PfcThreshold::Dynamic { shift },
            reserve_bytes: 4096,
            headroom_bytes,
            resume_offset_bytes: 3072,
        }
    }
}

/// Faults of a port's link, each drawn for every packet by itself; the words and their meaning are those of `tc netem`.
/// Probabilities are 0..=1.
///
/// A driver of a switch that has any calls [`Switch::release`](super::Switch::release) at
/// [`Switch::next_release`](super::Switch::next_release).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fault {
    /// Which way.
    pub direction: Direction,
    /// Of a packet that is lost.
    pub loss: f64,
    /// Of a packet that comes twice, one right behind the other.
    pub duplicate: f64,
    /// How long packets are held back.
    pub delay_ns: Nanos,
    /// By how much it is less or more for a packet, evenly spread: at most `delay_ns`. Packets overtake each other.
    pub delay_jitter_ns: Nanos,
    /// Of a packet that is not held back and so overtakes those that are.
    pub reorder: f64,
    /// Of a packet one bit of which is flipped, anywhere in the frame.
    pub corrupt: f64,
}

/// Which way packets go through a port's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Into the switch.
    In,
    /// Out of it.
    Out,
    /// Both, each by draws of its own.
    #[default]
    Both,
}

impl Direction {
    /// Whether packets that come in are meant.
    pub fn is_in(self) -> bool {
        self != Direction::Out
    }

    /// Whether packets that go out are meant.
    pub fn is_out(self) -> bool {
        self != Direction::In
    }
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
    /// Flow control of the neighbour; `None` for none. With it, `buffer_bytes` of the ports that they leave by do not limit
    /// the data that comes in here: only this and the switch's buffer do.
    pub pfc: Option<Pfc>,
    /// Faults of the port's link; `None` for a sound one.
    pub fault: Option<Fault>,
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
