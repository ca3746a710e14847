//! Between ingress and egress: queues, buffer limits, the emulated line, RED.
//!
//! Each port has a data queue and a strict-priority queue for acknowledgements and CNPs. Packets wait in one slab that
//! all ports share, and a queue is a list through it, as in a switch's shared buffer.
//!
//! Time is virtual. A packet departs (its first bit leaves) at the end of the one before it on the line or when it was
//! enqueued, whichever is later, no matter how late the driver polls: late polling delays packets but does not lower the
//! rate, and what is chosen and marked is what would have been in time. For this to be exact a driver takes out what is
//! due ([`TrafficManager::dequeue`] with the new `now`) before it puts packets in at that `now`. A port without a rate
//! sends as fast as the driver polls: there, a packet departs when it is polled.
//!
//! A port that its neighbour has paused (802.1Qbb) holds its data queue back, and data that waited departs no earlier than
//! the resume. What is to be told to the neighbours is [`IngressAccounting`]'s.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Nanos;
use super::config::{PortConfig, SwitchConfig};
use super::drop_reason::DropReason;
use super::line::Line;
use super::pfc::IngressAccounting;
use super::phv::{Phv, PortId, PortSet};
use super::red::RedCurve;

/// A packet that left its queue, on its way out.
#[derive(Debug)]
pub struct Departure<H> {
    /// The frame. Its owner is whoever has the departure.
    pub frame: H,
    /// Its headers and metadata.
    pub phv: Phv,
    /// The port it leaves by.
    pub port: PortId,
    /// When its first bit leaves, in virtual time: at most the `now` of the call that gave it.
    pub at: Nanos,
    /// When its last bit has left at the port's rate; `at` where the port has none.
    pub ends_at: Nanos,
    /// Bytes left behind in the port's data queue.
    pub depth_bytes: u64,
    /// Whether RED hit it.
    pub red: bool,
}

/// One copy of a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Where it goes.
    pub port: PortId,
    /// What tells it from others to the same port: becomes `phv.rid`.
    pub rid: u8,
}

/// The traffic manager of a switch whose frames are `H`.
#[derive(Debug)]
pub struct TrafficManager<H> {
    buffer_bytes: u64,
    used_bytes: u64,
    ports: Vec<Port>,
    pfc: Option<IngressAccounting>,
    backlog: PortSet,
    /// Multicast groups by number.
    groups: Vec<Vec<Replica>>,
    slab: Vec<Slot<H>>,
    free: u32,
}

/// End of a list.
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<H> {
    next: u32,
    enqueued_at: Nanos,
    /// `None` while the slot is free.
    frame: Option<H>,
    phv: Phv,
}

/// A first-in first-out list through the slab.
#[derive(Debug)]
struct Queue {
    head: u32,
    tail: u32,
    /// When the head came in; [`NEVER`] while the queue is empty.
    head_at: Nanos,
    bytes: u64,
}

#[derive(Debug)]
struct Port {
    buffer_bytes: u64,
    line: Option<Line>,
    red: Option<RedCurve>,
    rng: ChaCha8Rng,
    priority: Queue,
    data: Queue,
    /// When data may depart: since the last resume, or [`NEVER`] while paused.
    data_from: Nanos,
    max_depth_bytes: u64,
}

/// Later than any time.
const NEVER: Nanos = Nanos::MAX;

impl<H> TrafficManager<H> {
    /// Empty queues for the ports of `config`.
    pub fn new(config: &SwitchConfig) -> Self {
        TrafficManager {
            buffer_bytes: config.buffer_bytes,
            used_bytes: 0,
            ports: config.ports.iter().zip(0..).map(|(port, number)| Port::new(port, config.seed, number)).collect(),
            pfc: IngressAccounting::new(config),
            backlog: PortSet::default(),
            groups: Vec::new(),
            slab: Vec::new(),
            free: NIL,
        }
    }

    /// Makes `replicas` the multicast group `group`.
    pub fn set_group(&mut self, group: u16, replicas: &[Replica]) {
        let index = usize::from(group);
        if self.groups.len() <= index {
            self.groups.resize_with(index + 1, Vec::new);
        }
        self.groups[index] = replicas.to_vec();
    }

    /// Copies in a group; 0 where there is none of that number.
    pub fn group_len(&self, group: u16) -> usize {
        self.groups.get(usize::from(group)).map_or(0, Vec::len)
    }

    /// A group's copy number `index`, counted from 0.
    pub fn replica(&self, group: u16, index: usize) -> Option<Replica> {
        self.groups.get(usize::from(group))?.get(index).copied()
    }

    /// Whether a packet may be put into a queue of `port`. A full data queue does not keep priority packets out: without
    /// ACKs and CNPs nobody would slow down. Data that came in by a port with PFC is limited there, not here.
    ///
    /// # Errors
    /// The reason to drop it: no such port, the shared buffer, the port's own or the ingress port's headroom is full.
    #[inline]
    pub fn admit(&self, port: PortId, phv: &Phv) -> Result<(), DropReason> {
        let own = self.ports.get(usize::from(port)).ok_or(DropReason::PortDown)?;
        let (bytes, is_priority) = (phv.frame_bytes, phv.is_priority());
        if self.used_bytes + u64::from(bytes) > self.buffer_bytes {
            return Err(DropReason::BufferFull);
        }
        if let Some(pfc) = &self.pfc
            && !is_priority
            && let Some(admitted) = pfc.admits(phv.ingress_port, bytes)
        {
            return if admitted { Ok(()) } else { Err(DropReason::HeadroomFull) };
        }
        let data_bytes = if is_priority { 0 } else { own.data.bytes };
        if data_bytes + own.priority.bytes + u64::from(bytes) > own.buffer_bytes {
            Err(DropReason::TailDrop)
        } else {
            Ok(())
        }
    }

    /// Puts a packet that was admitted into its queue; returns the bytes in the port's data queue with it.
    ///
    /// # Panics
    /// When there is no such port, which [`TrafficManager::admit`] would have said.
    #[inline(always)] // what it shares with `admit`, right before it, is computed once
    pub fn enqueue(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: H) -> u64 {
        let index = match self.slab.get_mut(self.free as usize) {
            Some(slot) => {
                let index = self.free;
                self.free = slot.next;
                // Field by field: the PHV is copied once.
                slot.next = NIL;
                slot.enqueued_at = now;
                slot.frame = Some(frame);
                slot.phv = *phv;
                index
            }
            None => {
                self.slab.push(Slot { next: NIL, enqueued_at: now, frame: Some(frame), phv: *phv });
                (self.slab.len() - 1) as u32
            }
        };
        let own = &mut self.ports[usize::from(port)];
        let is_priority = phv.is_priority();
        if let Some(pfc) = &mut self.pfc
            && !is_priority
        {
            pfc.add(phv.ingress_port, phv.frame_bytes);
        }
        let queue = if is_priority { &mut own.priority } else { &mut own.data };
        if queue.head == NIL {
            queue.head = index;
            queue.head_at = now;
        } else {
            self.slab[queue.tail as usize].next = index;
        }
        queue.tail = index;
        queue.bytes += u64::from(phv.frame_bytes);
        self.used_bytes += u64::from(phv.frame_bytes);
        self.backlog = self.backlog.with(port);
        own.max_depth_bytes = own.max_depth_bytes.max(own.data.bytes);
        own.data.bytes
    }

    /// When the next packet of `port` may depart: a dequeue from then on returns one. `None` when its queues are empty,
    /// or the port is paused and only data waits.
    #[inline]
    pub fn next_departure(&self, port: PortId) -> Option<Nanos> {
        self.ports.get(usize::from(port))?.next_departure()
    }

    /// The least of [`TrafficManager::next_departure`] over the ports.
    #[inline]
    pub fn next_departure_any(&self) -> Option<Nanos> {
        self.backlog.iter().filter_map(|port| self.next_departure(port)).min()
    }

    /// Takes out the next packet of `port` if it departs no later than `now`, and asks RED about it.
    #[inline]
    pub fn dequeue(&mut self, port: PortId, now: Nanos) -> Option<Departure<H>> {
        let own = self.ports.get(usize::from(port))?;
        let due = own.next_departure().filter(|due| *due <= now)?;
        let at = if own.line.is_some() { due } else { now };
        let is_priority = own.priority.head != NIL && own.priority.head_at <= at;
        let (index, frame) = self.pop(port, is_priority)?;
        let phv = &self.slab[index as usize].phv;
        let own = &mut self.ports[usize::from(port)];
        let depth_bytes = own.data.bytes;
        let red = !is_priority && own.red.is_some_and(|curve| curve.hits(depth_bytes, &mut own.rng));
        let ends_at = own.line.as_mut().map_or(at, |line| line.send(at, phv.frame_bytes));
        Some(Departure { frame, phv: *phv, port, at, ends_at, depth_bytes, red })
    }

    /// Takes out the next frame of `port` whatever the time, as if it had never been there: for a port that goes down.
    pub fn flush_one(&mut self, port: PortId) -> Option<H> {
        let is_priority = self.ports.get(usize::from(port))?.priority.head != NIL;
        self.pop(port, is_priority).map(|(_, frame)| frame)
    }

    /// Pauses or resumes the data queue of `port` for its neighbour, at `now`. As with packets put in, what is due before is
    /// to be taken out before.
    pub fn pause(&mut self, port: PortId, now: Nanos, paused: bool) {
        let Some(own) = self.ports.get_mut(usize::from(port)) else { return };
        if paused {
            own.data_from = NEVER;
        } else if own.data_from == NEVER {
            own.data_from = now;
        }
    }

    /// Since the last call: the ports whose neighbours are to be told to pause or to resume their data, and those of them
    /// that are to pause. Both empty without PFC.
    #[inline]
    pub fn take_pauses(&mut self) -> (PortSet, PortSet) {
        self.pfc.as_mut().map_or_else(Default::default, IngressAccounting::take_changes)
    }

    /// Ports with packets in their queues, paused ones included.
    #[inline]
    pub fn backlog(&self) -> PortSet {
        self.backlog
    }

    /// Bytes in the data queue of `port`; 0 when there is no such port.
    pub fn depth_bytes(&self, port: PortId) -> u64 {
        self.ports.get(usize::from(port)).map_or(0, |own| own.data.bytes)
    }

    /// The most bytes there ever were in it.
    pub fn max_depth_bytes(&self, port: PortId) -> u64 {
        self.ports.get(usize::from(port)).map_or(0, |own| own.max_depth_bytes)
    }

    /// RED's lower threshold at `port` and its random stream. Egress stages may draw from the stream too.
    pub(super) fn marking(&mut self, port: PortId) -> Option<(u64, &mut ChaCha8Rng)> {
        let own = self.ports.get_mut(usize::from(port))?;
        Some((own.red.map_or(0, |curve| curve.kmin_bytes), &mut own.rng))
    }

    /// Takes the head of a queue out. Its slot is free, but holds its PHV until the next enqueue.
    #[inline]
    fn pop(&mut self, port: PortId, is_priority: bool) -> Option<(u32, H)> {
        let own = self.ports.get_mut(usize::from(port))?;
        let queue = if is_priority { &mut own.priority } else { &mut own.data };
        let index = queue.head;
        let slot = self.slab.get_mut(index as usize)?;
        let frame = slot.frame.take()?;
        queue.head = slot.next;
        // Last in, first out: the slot that was used last is still in the cache.
        slot.next = self.free;
        self.free = index;
        let bytes = u64::from(slot.phv.frame_bytes);
        queue.bytes -= bytes;
        self.used_bytes -= bytes;
        if let Some(pfc) = &mut self.pfc
            && !is_priority
        {
            pfc.remove(slot.phv.ingress_port, slot.phv.frame_bytes);
        }
        queue.head_at = self.slab.get(queue.head as usize).map_or(NEVER, |head| head.enqueued_at);
        if own.data.head == own.priority.head {
            self.backlog = self.backlog.without(port); // both NIL
        }
        Some((index, frame))
    }
}

impl Queue {
    const EMPTY: Queue = Queue { head: NIL, tail: NIL, head_at: NEVER, bytes: 0 };
}

impl Port {
    fn new(config: &PortConfig, seed: u64, number: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(number);
        Port {
            buffer_bytes: config.buffer_bytes,
            line: config.rate_bps.map(Line::new),
            red: config.red.map(RedCurve::new),
            rng,
            priority: Queue::EMPTY,
            data: Queue::EMPTY,
            data_from: 0,
            max_depth_bytes: 0,
        }
    }

    #[inline]
    fn next_departure(&self) -> Option<Nanos> {
        let head_at = self.priority.head_at.min(self.data.head_at.max(self.data_from));
        let departs_at = || self.line.as_ref().map_or(head_at, |line| head_at.max(line.free_at()));
        (head_at != NEVER).then(departs_at)
    }
}

#[cfg(test)]
mod tests;
