//! One port: its interface as last seen, its socket while there is one, and how sending goes.

use super::netdev::Interface;
use super::socket::{Kick, PortSocket};
use super::umem::{Frame, Pool};
use crate::dataplane::{Nanos, PortId};

/// A peer that takes nothing for so long has stalled; what is due then is dropped, so that buffers serve other ports.
const STALL_NS: Nanos = 1_000_000_000;
/// A packet this much behind its time says that the worker lacks CPU, or that the kernel takes none.
const LATE_NS: Nanos = 1_000_000;
/// Ethernet header and one VLAN tag: what Linux lets pass on top of the MTU (`is_skb_forwardable`).
const L2_BYTES: u32 = 18;

/// One port.
pub struct Port {
    id: PortId,
    /// Name, for people.
    pub name: String,
    /// Interface name.
    pub interface: String,
    /// While the interface exists and could be bound.
    pub socket: Option<PortSocket>,
    /// The interface as last seen.
    pub seen: Option<Interface>,
    /// Packets that left more than [`LATE_NS`] after their time.
    pub late_packets: u64,
    /// The most by which one was late.
    pub max_late_ns: Nanos,
    /// Since when the kernel has taken nothing of what is in the transmit ring.
    blocked_since: Option<Nanos>,
    /// Frames that the kernel had not sent when the socket was closed.
    unsent: u64,
}

/// Whether more may be put into a port's transmit ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Yes.
    Ready,
    /// Not now: the kernel still has to take what is there.
    Blocked,
    /// It has been blocked for too long.
    Stalled,
    /// The interface is down or gone.
    Down,
}

impl Port {
    /// A port that has no socket yet.
    pub fn new(id: PortId, name: String, interface: String) -> Self {
        Port {
            id,
            name,
            interface,
            socket: None,
            seen: None,
            late_packets: 0,
            max_late_ns: 0,
            blocked_since: None,
            unsent: 0,
        }
    }

    /// Whether frames can go out.
    pub fn is_up(&self) -> bool {
        self.socket.is_some() && self.seen.is_some_and(|seen| seen.running)
    }

    /// The longest frame that the interface takes.
    pub fn longest_frame(&self) -> u32 {
        self.seen.map_or(0, |seen| seen.mtu + L2_BYTES)
    }

    /// Whether the kernel still has to take frames of ours.
    pub fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Frames that the kernel was given and did not send, because the interface was removed or the device refused them.
    pub fn not_sent(&self) -> u64 {
        self.unsent + self.socket.as_ref().map_or(0, PortSocket::refused)
    }

    /// Counts a packet that left `late_ns` after its time.
    #[inline]
    pub fn count_lateness(&mut self, late_ns: Nanos) {
        self.late_packets += u64::from(late_ns > LATE_NS);
        self.max_late_ns = self.max_late_ns.max(late_ns);
    }

    /// Room in the transmit ring, in frames.
    pub fn transmit_room(&mut self) -> usize {
        self.socket.as_mut().map_or(0, PortSocket::transmit_room)
    }

    /// Puts frames into the transmit ring, which has room for them.
    pub fn transmit(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) {
        if let Some(socket) = self.socket.as_mut() {
            socket.transmit(pool, frames);
        }
    }

    /// Makes the kernel send what is in the transmit ring, and takes back what it has sent.
    pub fn push(&mut self, pool: &mut Pool, now: Nanos) -> Readiness {
        let up = self.is_up();
        let Some(socket) = self.socket.as_mut() else { return Readiness::Down };
        socket.complete(pool);
        match if up { socket.kick(pool) } else { Kick::Down } {
            Kick::Done => {
                self.blocked_since = None;
                Readiness::Ready
            }
            Kick::Progress => {
                self.blocked_since = Some(now);
                Readiness::Blocked
            }
            Kick::Busy => {
                let since = *self.blocked_since.get_or_insert(now);
                if now.saturating_sub(since) > STALL_NS { Readiness::Stalled } else { Readiness::Blocked }
            }
            Kick::Down => Readiness::Down,
        }
    }

    /// Closes the socket and takes its frames back.
    pub fn close(&mut self, pool: &mut Pool) {
        let Some(mut socket) = self.socket.take() else { return };
        socket.complete(pool);
        self.unsent += socket.refused();
        drop(socket);
        self.blocked_since = None;
        self.unsent += pool.reclaim(self.id) as u64;
    }
}
