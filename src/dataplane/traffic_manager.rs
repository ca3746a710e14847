//! Between ingress and egress: queues, buffer limits, the emulated line, RED.
//!
//! Each port has a data queue, a queue for what in-network aggregation sends, and a strict-priority queue for
//! acknowledgements and CNPs ([`Class`]). Data and aggregation share what the strict-priority queue leaves of the line
//! evenly, by bytes. Packets wait in one slab that all ports share, and a queue is a list through it, as in a switch's
//! shared buffer. All count in the buffer limits; only data is a matter of RED and of PFC.
//!
//! Time is virtual. A packet departs (its first bit leaves) at the end of the one before it on the line or when it was
//! enqueued, whichever is later, no matter how late the driver polls: late polling delays packets but does not lower the
//! rate, and what is chosen and marked is what would have been in time. For this to be exact a driver takes out what is
//! due ([`TrafficManager::dequeue`] with the new `now`) before it puts packets in at that `now`. A port without a rate
//! sends as fast as the driver polls: there, a packet departs when it is polled.
//!
//! A port that its neighbour has paused (802.1Qbb) holds its data queue back, and data that waited departs no earlier than
//! the resume. What is to be told to the neighbours is [`IngressAccounting`]'s.

use std::ops::{Index, IndexMut};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Nanos;
use super::config::{PortConfig, SwitchConfig};
use super::drop_reason::DropReason;
use super::line::Line;
use super::pfc::IngressAccounting;
use super::phv::{Class, Phv, PortId, PortSet};
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

/// The queues of a port, by class.
#[derive(Debug)]
struct Queues([Queue; 3]);

#[derive(Debug)]
struct Port {
    buffer_bytes: u64,
    line: Option<Line>,
    red: Option<RedCurve>,
    rng: ChaCha8Rng,
    queues: Queues,
    /// Bytes that data was sent more than aggregation, while both waited. At most a packet either way: whoever is ahead waits.
    data_ahead_bytes: i64,
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

    /// Whether a packet may be put into a queue of `port`. The other queues do not keep priority packets out: without ACKs
    /// and CNPs nobody would slow down. Data that came in by a port with PFC is limited there, not here.
    ///
    /// # Errors
    /// The reason to drop it: no such port, the shared buffer, the port's own or the ingress port's headroom is full.
    #[inline]
    pub fn admit(&self, port: PortId, phv: &Phv) -> Result<(), DropReason> {
        let own = self.ports.get(usize::from(port)).ok_or(DropReason::PortDown)?;
        let (bytes, class) = (phv.frame_bytes, phv.class());
        if self.used_bytes + u64::from(bytes) > self.buffer_bytes {
            return Err(DropReason::BufferFull);
        }
        if let Some(pfc) = &self.pfc
            && class == Class::Data
            && let Some(admitted) = pfc.admits(phv.ingress_port, bytes)
        {
            return if admitted { Ok(()) } else { Err(DropReason::HeadroomFull) };
        }
        let others = if class == Class::Priority {
            0
        } else {
            own.queues[Class::Data].bytes + own.queues[Class::Aggregation].bytes
        };
        if others + own.queues[Class::Priority].bytes + u64::from(bytes) > own.buffer_bytes {
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
        let class = phv.class();
        if let Some(pfc) = &mut self.pfc
            && class == Class::Data
        {
            pfc.add(phv.ingress_port, phv.frame_bytes);
        }
        let queue = &mut own.queues[class];
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
        own.max_depth_bytes = own.max_depth_bytes.max(own.queues[Class::Data].bytes);
        own.queues[Class::Data].bytes
    }

    /// When the next packet of `port` may depart: a dequeue from then on returns one. `None` when its queues are empty,
    /// or the port is paused and nothing but data waits.
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
        let (class, contended) = own.next_class(at);
        let (index, frame) = self.pop(port, class)?;
        let phv = &self.slab[index as usize].phv;
        let own = &mut self.ports[usize::from(port)];
        if contended {
            let bytes = i64::from(phv.frame_bytes);
            own.data_ahead_bytes += if class == Class::Data { bytes } else { -bytes };
        }
        let depth_bytes = own.queues[Class::Data].bytes;
        let red = class == Class::Data && own.red.is_some_and(|curve| curve.hits(depth_bytes, &mut own.rng));
        let ends_at = own.line.as_mut().map_or(at, |line| line.send(at, phv.frame_bytes));
        Some(Departure { frame, phv: *phv, port, at, ends_at, depth_bytes, red })
    }

    /// Takes out the next frame of `port` whatever the time, as if it had never been there: for a port that goes down.
    pub fn flush_one(&mut self, port: PortId) -> Option<H> {
        let own = self.ports.get(usize::from(port))?;
        let waits = |class: &Class| own.queues[*class].head != NIL;
        let class = [Class::Priority, Class::Data, Class::Aggregation].into_iter().find(waits)?;
        self.pop(port, class).map(|(_, frame)| frame)
    }

    /// Pauses or resumes the data queue of `port`, and no other, for its neighbour, at `now`. As with packets put in, what is due before is
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
        self.ports.get(usize::from(port)).map_or(0, |own| own.queues[Class::Data].bytes)
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
    fn pop(&mut self, port: PortId, class: Class) -> Option<(u32, H)> {
        let own = self.ports.get_mut(usize::from(port))?;
        let queue = &mut own.queues[class];
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
            && class == Class::Data
        {
            pfc.remove(slot.phv.ingress_port, slot.phv.frame_bytes);
        }
        queue.head_at = self.slab.get(queue.head as usize).map_or(NEVER, |head| head.enqueued_at);
        if own.queues.are_empty() {
            self.backlog = self.backlog.without(port);
        }
        Some((index, frame))
    }
}

impl Queues {
    fn new() -> Self {
        Queues(std::array::from_fn(|_| Queue { head: NIL, tail: NIL, head_at: NEVER, bytes: 0 }))
    }

    #[inline]
    fn are_empty(&self) -> bool {
        let [data, aggregation, priority] = &self.0;
        data.head & aggregation.head & priority.head == NIL // all bits set, in all of them
    }
}

impl Index<Class> for Queues {
    type Output = Queue;

    #[inline]
    fn index(&self, class: Class) -> &Queue {
        &self.0[class as usize]
    }
}

impl IndexMut<Class> for Queues {
    #[inline]
    fn index_mut(&mut self, class: Class) -> &mut Queue {
        &mut self.0[class as usize]
    }
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
            queues: Queues::new(),
            data_ahead_bytes: 0,
            data_from: 0,
            max_depth_bytes: 0,
        }
    }

    /// When the data queue's head may depart at the earliest; [`NEVER`] where none may.
    #[inline]
    fn data_at(&self) -> Nanos {
        self.queues[Class::Data].head_at.max(self.data_from)
    }

    /// Which queue's head departs at `at`, and whether data and aggregation both had one that could.
    #[inline]
    fn next_class(&self, at: Nanos) -> (Class, bool) {
        let at = at.min(NEVER - 1);
        if self.queues[Class::Priority].head_at <= at {
            (Class::Priority, false)
        } else if self.queues[Class::Aggregation].head_at > at {
            (Class::Data, false)
        } else {
            let both = self.data_at() <= at;
            let class = if both && self.data_ahead_bytes <= 0 { Class::Data } else { Class::Aggregation };
            (class, both)
        }
    }

    #[inline]
    fn next_departure(&self) -> Option<Nanos> {
        let [priority_at, aggregation_at] =
            [Class::Priority, Class::Aggregation].map(|class| self.queues[class].head_at);
        let head_at = priority_at.min(aggregation_at).min(self.data_at());
        let departs_at = || self.line.as_ref().map_or(head_at, |line| head_at.max(line.free_at()));
        (head_at != NEVER).then(departs_at)
    }
}

#[cfg(test)]
mod tests;
