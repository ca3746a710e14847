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

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Nanos;
use super::config::{PortConfig, Red, SwitchConfig};
use super::drop_reason::DropReason;
use super::phv::{Phv, PortId, PortSet};

/// A packet that left its queue.
#[derive(Debug)]
pub struct Dequeued<H> {
    /// Its headers and metadata.
    pub phv: Phv,
    /// Its frame.
    pub frame: H,
    /// When its first bit leaves.
    pub at: Nanos,
    /// When its last bit has left.
    pub ends_at: Nanos,
    /// Bytes left behind in the data queue.
    pub depth_bytes: u64,
    /// RED hits it.
    pub red: bool,
}

/// The traffic manager of a switch whose frames are `H`.
#[derive(Debug)]
pub struct TrafficManager<H> {
    buffer_bytes: u64,
    used_bytes: u64,
    ports: Vec<Port>,
    backlog: PortSet,
    slab: Vec<Slot<H>>,
    free: u32,
}

/// End of a list.
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<H> {
    next: u32,
    packet: Option<Packet<H>>,
}

#[derive(Debug)]
struct Packet<H> {
    enqueued_at: Nanos,
    phv: Phv,
    frame: H,
}

/// A first-in first-out list through the slab.
#[derive(Debug)]
struct Queue {
    head: u32,
    tail: u32,
    /// When the head came in; valid while the queue isn't empty.
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
    max_depth_bytes: u64,
}

impl<H> TrafficManager<H> {
    /// Empty queues for the ports of `config`.
    pub fn new(config: &SwitchConfig) -> Self {
        TrafficManager {
            buffer_bytes: config.buffer_bytes,
            used_bytes: 0,
            ports: config.ports.iter().zip(0..).map(|(port, number)| Port::new(port, config.seed, number)).collect(),
            backlog: PortSet::default(),
            slab: Vec::new(),
            free: NIL,
        }
    }

    /// Whether a packet of `bytes` may be put into a queue of `port`.
    ///
    /// # Errors
    /// The reason to drop it: no such port, the shared buffer or the port's own is full.
    #[inline]
    pub fn admit(&self, port: PortId, bytes: u32) -> Result<(), DropReason> {
        let own = self.ports.get(usize::from(port)).ok_or(DropReason::PortDown)?;
        if self.used_bytes + u64::from(bytes) > self.buffer_bytes {
            Err(DropReason::BufferFull)
        } else if own.data.bytes + own.priority.bytes + u64::from(bytes) > own.buffer_bytes {
            Err(DropReason::TailDrop)
        } else {
            Ok(())
        }
    }

    /// Puts a packet that was admitted into its queue; returns the bytes in the port's data queue with it.
    ///
    /// # Panics
    /// When there is no such port, which [`TrafficManager::admit`] would have said.
    #[inline]
    pub fn enqueue(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: H) -> u64 {
        let packet = Some(Packet { enqueued_at: now, phv: *phv, frame });
        let index = self.free;
        let index = match self.slab.get_mut(index as usize) {
            Some(slot) => {
                self.free = slot.next;
                *slot = Slot { next: NIL, packet };
                index
            }
            None => {
                self.slab.push(Slot { next: NIL, packet });
                (self.slab.len() - 1) as u32
            }
        };
        let own = &mut self.ports[usize::from(port)];
        let queue = if phv.is_priority() { &mut own.priority } else { &mut own.data };
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

    /// When the next packet of `port` may depart: a dequeue from then on returns one. `None` when its queues are empty.
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
    pub fn dequeue(&mut self, port: PortId, now: Nanos) -> Option<Dequeued<H>> {
        let own = self.ports.get(usize::from(port))?;
        let due = own.next_departure().filter(|due| *due <= now)?;
        let at = if own.line.is_some() { due } else { now };
        let is_priority = own.priority.head != NIL && own.priority.head_at <= at;
        let packet = self.pop(port, is_priority)?;
        let own = &mut self.ports[usize::from(port)];
        let depth_bytes = own.data.bytes;
        let red = !is_priority && own.red.is_some_and(|curve| curve.hits(depth_bytes, &mut own.rng));
        let ends_at = own.line.as_mut().map_or(at, |line| line.send(at, packet.phv.frame_bytes));
        Some(Dequeued { phv: packet.phv, frame: packet.frame, at, ends_at, depth_bytes, red })
    }

    /// Takes out the next frame of `port` whatever the time, as if it had never been there: for a port that goes down.
    pub fn flush_one(&mut self, port: PortId) -> Option<H> {
        let is_priority = self.ports.get(usize::from(port))?.priority.head != NIL;
        self.pop(port, is_priority).map(|packet| packet.frame)
    }

    /// Ports with packets in their queues.
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

    fn pop(&mut self, port: PortId, is_priority: bool) -> Option<Packet<H>> {
        let own = self.ports.get_mut(usize::from(port))?;
        let queue = if is_priority { &mut own.priority } else { &mut own.data };
        let index = queue.head;
        let slot = self.slab.get_mut(index as usize)?;
        let packet = slot.packet.take()?;
        queue.head = slot.next;
        // Last in, first out: the slot that was used last is still in the cache.
        slot.next = self.free;
        self.free = index;
        let bytes = u64::from(packet.phv.frame_bytes);
        queue.bytes -= bytes;
        self.used_bytes -= bytes;
        if let Some(head) = self.slab.get(queue.head as usize).and_then(|slot| slot.packet.as_ref()) {
            queue.head_at = head.enqueued_at;
        } else if own.data.head == own.priority.head {
            self.backlog = self.backlog.without(port); // both NIL
        }
        Some(packet)
    }
}

impl Queue {
    const EMPTY: Queue = Queue { head: NIL, tail: NIL, head_at: 0, bytes: 0 };

    fn head_at(&self) -> Option<Nanos> {
        (self.head != NIL).then_some(self.head_at)
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
            priority: Queue::EMPTY,
            data: Queue::EMPTY,
            max_depth_bytes: 0,
        }
    }

    #[inline]
    fn next_departure(&self) -> Option<Nanos> {
        let head_at = match (self.priority.head_at(), self.data.head_at()) {
            (Some(priority), Some(data)) => priority.min(data),
            (priority, data) => priority.or(data)?,
        };
        Some(self.line.as_ref().map_or(head_at, |line| head_at.max(line.free_at())))
    }
}

/// The emulated line of a port. Counts frame bytes as they are in memory: no preamble, FCS or gap between frames.
#[derive(Debug)]
struct Line {
    /// 1/2^32 ns a byte, so that sending takes a multiplication and no division.
    per_byte: u64,
    /// When the line is free, in 1/2^32 ns: no rate is lost to rounding.
    free_at: u128,
}

impl Line {
    fn new(rate_bps: u64) -> Self {
        // 0 bit/s and other rates below 2 bit/s become 2^32 ns a byte, a little below 2 bit/s.
        let per_byte = (8_000_000_000u128 << 32) / u128::from(rate_bps.max(1));
        Line { per_byte: u64::try_from(per_byte).unwrap_or(u64::MAX), free_at: 0 }
    }

    /// First whole nanosecond at which the line is free.
    #[inline]
    fn free_at(&self) -> Nanos {
        ((self.free_at + u128::from(u32::MAX)) >> 32) as Nanos
    }

    /// Sends `bytes` from `at` on, which is not before [`Line::free_at`]; returns when the last bit has left.
    #[inline]
    fn send(&mut self, at: Nanos, bytes: u32) -> Nanos {
        // Back to back, the fraction of a nanosecond by which `at` was rounded up is not lost.
        let start = if at == self.free_at() { self.free_at } else { u128::from(at) << 32 };
        self.free_at = start + u128::from(self.per_byte) * u128::from(bytes);
        self.free_at()
    }
}

/// RED as a stage computes it: a comparison and a multiplication.
#[derive(Clone, Copy, Debug)]
struct RedCurve {
    kmin_bytes: u64,
    kmax_bytes: u64,
    /// Of 2^32, a byte above `kmin_bytes`.
    slope: f64,
}

impl RedCurve {
    fn new(red: Red) -> Self {
        let width = red.kmax_bytes.saturating_sub(red.kmin_bytes).max(1);
        RedCurve {
            kmin_bytes: red.kmin_bytes,
            kmax_bytes: red.kmax_bytes,
            slope: red.pmax.clamp(0.0, 1.0) * 4_294_967_296.0 / width as f64,
        }
    }

    /// Draws once above Kmin, also where the answer is sure: so that the streams of two runs stay paired.
    #[inline]
    fn hits(&self, depth_bytes: u64, rng: &mut ChaCha8Rng) -> bool {
        if depth_bytes <= self.kmin_bytes {
            return false;
        }
        let draw = rng.next_u32();
        depth_bytes > self.kmax_bytes || f64::from(draw) < (depth_bytes - self.kmin_bytes) as f64 * self.slope
    }
}
