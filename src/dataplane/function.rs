//! The seam between the switch and what runs in its stages.

use rand_chacha::ChaCha8Rng;

use super::Nanos;
use super::drop_reason::DropReason;
use super::frames::FrameBytes;
use super::phv::{Phv, PortId, PortSet};
use super::trace::{Event, Tracer};

/// What ingress decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: the next function has its turn. Left at the end: dropped as `NoRoute`.
    Continue,
    /// Out of one port.
    Forward(PortId),
    /// A replica out of each port of the set; an empty set is a drop as `NoRoute`.
    Multicast(PortSet),
    /// A copy to each replica of a multicast group ([`super::Switch::set_group`]); an empty group is a drop as `NoRoute`.
    Group(u16),
    /// Absorbed by a function: the packet ends here and is counted as consumed.
    Consume,
    /// Dropped, counted by reason.
    Drop(DropReason),
}

/// A packet that a function makes itself. It enters the traffic manager right after the packet that caused it.
#[derive(Clone, Debug)]
pub struct Emission {
    /// Headers and metadata; `frame_bytes` is its length.
    pub phv: Phv,
    /// Where it goes.
    pub ports: PortSet,
    /// Its bytes; empty where packets travel as parsed headers.
    pub bytes: Vec<u8>,
}

/// What a stage may use besides its own tables and registers.
pub struct Cx<'a, T: Tracer> {
    /// Time of this pass.
    pub now: Nanos,
    /// Number of this pass; a packet has one in ingress and one in egress. Lets [`super::Register`] see a second access.
    pub pass: u64,
    /// Who looks on.
    pub trace: &'a mut T,
    /// Packets to emit. Reused from packet to packet.
    pub emissions: &'a mut Vec<Emission>,
    /// The packet's own bytes, for functions that look behind the headers or rewrite it. A function that changes their
    /// number sets `phv.frame_bytes` too.
    pub frame: &'a mut dyn FrameBytes,
}

/// The egress side of a packet: what is known only at dequeue.
pub struct Egress<'a> {
    /// The port it leaves by.
    pub port: PortId,
    /// Bytes left in the port's data queue behind this packet.
    pub depth_bytes: u64,
    /// The port's RED minimum threshold; 0 when the port has no ECN.
    pub kmin_bytes: u64,
    /// Whether RED hits this packet.
    pub red: bool,
    /// The port's random stream, also used by RED.
    pub rng: &'a mut ChaCha8Rng,
}

/// An in-network function: a set of ingress and egress stages with their tables and registers.
///
/// Functions do not know each other; a driver puts a tuple of them together and they run in its order. Ingress stops at
/// the first verdict other than [`Verdict::Continue`].
pub trait Function {
    /// Runs the ingress stages on one packet.
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict;

    /// Runs the egress stages on one packet that leaves by `egress.port`. `None` lets it go on.
    fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, egress: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        let _ = (cx, egress, phv);
        None
    }
}

impl<T: Tracer> Cx<'_, T> {
    /// Says that a stage begins.
    #[inline]
    pub fn stage(&mut self, gress: &'static str, name: &'static str) {
        if T::ENABLED {
            self.trace.event(Event::Stage { gress, name });
        }
    }

    /// Says that a table was asked.
    #[inline]
    pub fn table(&mut self, name: &'static str, hit: bool) {
        if T::ENABLED {
            self.trace.event(Event::Table { name, hit });
        }
    }
}

macro_rules! chain {
    ($($f:ident $n:tt),*) => {
        impl<$($f: Function),*> Function for ($($f,)*) {
            #[inline]
            fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
                $(match self.$n.ingress(cx, phv) { Verdict::Continue => {} verdict => return verdict })*
                Verdict::Continue
            }
            #[inline]
            fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, egress: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
                $(if let Some(reason) = self.$n.egress(cx, egress, phv) { return Some(reason) })*
                None
            }
        }
    };
}
chain!(A 0);
chain!(A 0, B 1);
chain!(A 0, B 1, C 2);
