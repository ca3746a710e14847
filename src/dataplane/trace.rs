//! What happens to a packet inside the pipeline, for those who want to look.

use super::drop_reason::DropReason;
use super::phv::PortId;

/// One event of a packet's way through the pipeline. Register cells are shown as 64 bits, second word high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stage begins. `gress` is "ingress" or "egress".
    Stage {
        /// "ingress" or "egress".
        gress: &'static str,
        /// The stage's name.
        name: &'static str,
    },
    /// A table was asked.
    Table {
        /// Table name.
        name: &'static str,
        /// Whether a match was found.
        hit: bool,
    },
    /// A register cell was read, modified, written.
    Register {
        /// Register name.
        name: &'static str,
        /// Cell number.
        index: u32,
        /// Before.
        old: u64,
        /// After.
        new: u64,
    },
    /// Put into a queue of a port.
    Enqueue {
        /// The port.
        port: PortId,
        /// Bytes in the port's data queue with this packet.
        depth_bytes: u64,
    },
    /// Taken out of a queue.
    Dequeue {
        /// The port.
        port: PortId,
        /// Bytes left behind in the data queue.
        depth_bytes: u64,
        /// RED wants CE.
        red: bool,
    },
    /// CE was set.
    Mark {
        /// RED hit.
        red: bool,
        /// A function's extra mark.
        extra: bool,
    },
    /// The packet was dropped.
    Drop(DropReason),
    /// The packet was absorbed by a function.
    Consume,
}

/// Receives events. With `ENABLED = false` the compiler removes every call.
pub trait Tracer {
    /// Whether `event` does anything.
    const ENABLED: bool;
    /// Takes one event of the packet in hand.
    fn event(&mut self, event: Event);
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Tracer for NoTrace {
    const ENABLED: bool = false;
    fn event(&mut self, _: Event) {}
}
