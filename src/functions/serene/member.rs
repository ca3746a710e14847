//! Stage `member`: which job a packet is of, and whether its sender may speak for the worker it names.

use std::net::SocketAddrV4;

use crate::dataplane::{Cx, MacAddress, Nanos, PortId, Register, Tracer};
use crate::wire::aggregation::Repr;

/// Where a worker's process is, as its JOIN said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The switch port it is behind.
    pub port: PortId,
    /// Its Ethernet address, or its router's.
    pub mac: MacAddress,
    /// The number that it drew when it started.
    pub incarnation: u32,
}

/// An entry of the member table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddrV4,
    pub(super) link: Option<Link>,
    /// A process that has sent a JOIN while another has the place. It takes the place with its next packet: only one that
    /// lives sends one, while the JOIN may be an old one of a process that is gone.
    successor: Option<Link>,
    /// The process before this one: its packets may still be under way.
    predecessor: Option<u32>,
}

/// Whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The process that has the place.
    Current,
    /// One that has just taken it from another.
    Successor(Link),
    /// One that has not: none has, since the job is there.
    Unjoined,
    /// One that another has replaced.
    Stale,
}

/// The member table of a job, and the register that says who lives.
#[derive(Clone, Debug)]
pub(super) struct Members {
    table: Vec<Member>,
    /// When the control plane was told last that a worker lives, in ms, plus 1.
    alive: Register<u32>,
}

impl Members {
    pub(super) fn new(addresses: &[SocketAddrV4]) -> Self {
        let member =
            |address: &SocketAddrV4| Member { address: *address, link: None, successor: None, predecessor: None };
        Members { table: addresses.iter().map(member).collect(), alive: Register::new("alive", addresses.len()) }
    }

    /// The entry that matches the worker's number and address.
    #[inline]
    pub(super) fn get(&mut self, worker: u8, source: SocketAddrV4) -> Option<&mut Member> {
        self.table.get_mut(usize::from(worker)).filter(|member| member.address == source)
    }

    /// The entry of a worker.
    pub(super) fn of(&self, worker: u8) -> Option<&Member> {
        self.table.get(usize::from(worker))
    }

    /// Those that have joined, with their numbers.
    pub(super) fn joined(&self) -> impl Iterator<Item = (u8, Link)> {
        let numbered = (0..).zip(&self.table);
        numbered.filter_map(|(worker, member)| Some((worker, member.link?)))
    }

    /// Whether the control plane is to be told that the worker lives.
    #[inline]
    pub(super) fn hear<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, worker: u8) -> bool {
        const EVERY_MS: u32 = (super::ALIVE_NS / NANOS_PER_MS) as u32;
        const NANOS_PER_MS: Nanos = 1_000_000;
        let tick = ((cx.now / NANOS_PER_MS) as u32).wrapping_add(1);
        self.alive.execute(cx, worker.into(), |cell| {
            let due = *cell == 0 || tick.wrapping_sub(*cell) >= EVERY_MS;
            if due {
                *cell = tick;
            }
            due
        })
    }
}

impl Member {
    /// Whose a packet is that is no JOIN. A successor takes the place.
    #[inline]
    pub(super) fn sender(&mut self, header: &Repr) -> Sender {
        let incarnation = header.incarnation_or_included;
        match self.link {
            Some(link) if link.incarnation == incarnation => Sender::Current,
            Some(link) => match self.successor.take_if(|successor| successor.incarnation == incarnation) {
                Some(successor) => {
                    (self.link, self.predecessor) = (Some(successor), Some(link.incarnation));
                    Sender::Successor(successor)
                }
                None => Sender::Stale,
            },
            None => Sender::Unjoined,
        }
    }

    /// A process asks for the place, which it has at once if nobody else does. False: it had it, and was replaced.
    pub(super) fn join(&mut self, link: Link) -> bool {
        let refused = self.predecessor == Some(link.incarnation);
        if self.link.is_none_or(|current| current.incarnation == link.incarnation) {
            self.link = Some(link);
        } else if !refused {
            self.successor = Some(link);
        }
        !refused
    }
}
