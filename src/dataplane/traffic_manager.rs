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

/// The traffic manager of a switch whose frames are `H`.
#[derive(Debug)]
pub struct TrafficManager<H> {
    buffer_bytes: u64,
    used_bytes: u64,
    ports: Vec<Port>,
    pfc: Option<IngressAccounting>,
    backlog: PortSet,
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
    /// When data may depart: [`PAUSED`], or since the last resume.
    data_from: Nanos,
    max_depth_bytes: u64,
}

/// No time at all.
const PAUSED: Nanos = Nanos::MAX;

impl<H> TrafficManager<H> {
    /// Empty queues for the ports of `config`.
    pub fn new(config: &SwitchConfig) -> Self {
        TrafficManager {
            buffer_bytes: config.buffer_bytes,
            used_bytes: 0,
            ports: config.ports.iter().zip(0..).map(|(port, number)| Port::new(port, config.seed, number)).collect(),
            pfc: IngressAccounting::new(config),
            backlog: PortSet::default(),
            slab: Vec::new(),
            free: NIL,
        }
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
    #[inline]
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
            own.data_from = PAUSED;
        } else if own.data_from == PAUSED {
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
        if let Some(head) = self.slab.get(queue.head as usize) {
            queue.head_at = head.enqueued_at;
        } else if own.data.head == own.priority.head {
            self.backlog = self.backlog.without(port); // both NIL
        }
        Some((index, frame))
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
            data_from: 0,
            max_depth_bytes: 0,
        }
    }

    #[inline]
    fn next_departure(&self) -> Option<Nanos> {
        let data_at = self.data.head_at().map(|at| at.max(self.data_from)).filter(|at| *at != PAUSED);
        let head_at = match (self.priority.head_at(), data_at) {
            (Some(priority), Some(data)) => priority.min(data),
            (priority, data) => priority.or(data)?,
        };
        Some(self.line.as_ref().map_or(head_at, |line| head_at.max(line.free_at())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rand_chacha::rand_core::Rng;

    use super::*;
    use crate::dataplane::{Red, Roce};
    use crate::wire::Opcode;

    fn phv(bytes: u32, priority: bool) -> Phv {
        let roce = priority.then(|| Roce { opcode: Opcode::CNP, ..Roce::default() });
        Phv { frame_bytes: bytes, roce, ..Phv::default() }
    }

    /// 8 Gbit/s: one nanosecond a byte.
    fn port(rate_bps: Option<u64>) -> PortConfig {
        PortConfig { name: "p".into(), rate_bps, buffer_bytes: 1_000_000, red: None, pfc: None }
    }

    fn manager(ports: Vec<PortConfig>) -> TrafficManager<u32> {
        TrafficManager::new(&SwitchConfig { buffer_bytes: 2_000_000, seed: 1, ports })
    }

    const RATE: Option<u64> = Some(8_000_000_000);

    #[test]
    fn a_packet_departs_at_the_end_of_the_one_before_or_when_it_came_in() {
        let mut tm = manager(vec![port(RATE)]);
        tm.enqueue(0, 100, &phv(1000, false), 1);
        tm.enqueue(0, 150, &phv(500, false), 2);
        tm.enqueue(0, 5000, &phv(500, false), 3);
        assert_eq!(tm.next_departure(0), Some(100));
        assert!(tm.dequeue(0, 99).is_none());
        // Polled very late: the rate is kept, not lowered.
        let departures: Vec<_> =
            std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at, d.ends_at)).collect();
        assert_eq!(departures, [(1, 100, 1100), (2, 1100, 1600), (3, 5000, 5500)]);
        assert_eq!(tm.next_departure_any(), None);
        // And an idle line gives no credit for the past.
        tm.enqueue(0, 9000, &phv(100, false), 4);
        tm.enqueue(0, 9000, &phv(100, false), 5);
        assert_eq!(tm.dequeue(0, 9000).map(|d| d.at), Some(9000));
        assert_eq!(tm.next_departure(0), Some(9100));
    }

    #[test]
    fn rates_that_do_not_divide_a_nanosecond_lose_nothing_over_many_packets() {
        let mut tm = manager(vec![port(Some(7_000_000_000))]);
        let mut end = 0;
        for n in 0..70_000 {
            tm.enqueue(0, 0, &phv(100, false), n);
            end = tm.dequeue(0, Nanos::MAX).map_or(0, |d| d.ends_at);
        }
        assert_eq!(end, 8_000_000, "7 MB at 7 Gbit/s");
    }

    #[test]
    fn a_priority_packet_overtakes_what_has_not_departed_before_it_came() {
        let mut tm = manager(vec![port(RATE)]);
        tm.enqueue(0, 0, &phv(1000, false), 1);
        tm.enqueue(0, 0, &phv(1000, false), 2);
        tm.enqueue(0, 0, &phv(1000, false), 3);
        tm.enqueue(0, 1500, &phv(64, true), 9);
        let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at)).collect();
        // At 1000 the CNP had not come yet, however late the driver asks.
        assert_eq!(order, [(1, 0), (2, 1000), (9, 2000), (3, 2064)]);
    }

    #[test]
    fn without_a_rate_everything_is_due_at_once_and_departs_when_polled_priority_first() {
        let mut tm = manager(vec![port(None)]);
        tm.enqueue(0, 10, &phv(1000, false), 1);
        tm.enqueue(0, 20, &phv(64, true), 2);
        assert_eq!(tm.next_departure(0), Some(10));
        let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 500)).map(|d| (d.frame, d.at, d.ends_at)).collect();
        assert_eq!(order, [(2, 500, 500), (1, 500, 500)]);
    }

    #[test]
    fn the_port_limit_is_a_tail_drop_and_the_shared_one_a_full_buffer() {
        let config = |own| PortConfig { buffer_bytes: own, ..port(RATE) };
        let mut tm: TrafficManager<u32> =
            TrafficManager::new(&SwitchConfig { buffer_bytes: 2500, seed: 1, ports: vec![config(1500), config(1500)] });
        assert_eq!(tm.admit(0, &phv(1501, false)), Err(DropReason::TailDrop));
        assert_eq!(tm.admit(0, &phv(1501, true)), Err(DropReason::TailDrop));
        assert_eq!(tm.admit(0, &phv(1500, false)), Ok(()));
        tm.enqueue(0, 0, &phv(1000, false), 1);
        tm.enqueue(0, 0, &phv(400, true), 2);
        assert_eq!(tm.admit(0, &phv(101, false)), Err(DropReason::TailDrop), "both queues count");
        assert_eq!(tm.admit(0, &phv(1100, true)), Ok(()), "data does not keep acknowledgements out");
        assert_eq!(tm.admit(0, &phv(100, false)), Ok(()));
        assert_eq!(tm.admit(1, &phv(1101, true)), Err(DropReason::BufferFull));
        assert_eq!(tm.admit(1, &phv(1100, false)), Ok(()));
        assert_eq!(tm.admit(2, &phv(1, false)), Err(DropReason::PortDown));
        assert_eq!((tm.depth_bytes(0), tm.max_depth_bytes(0)), (1000, 1000), "of the data queue");
        assert_eq!(tm.flush_one(0), Some(2));
        assert_eq!(tm.flush_one(0), Some(1));
        assert_eq!(tm.flush_one(0), None);
        assert_eq!(tm.admit(1, &phv(1500, false)), Ok(()), "room is given back");
        assert_eq!((tm.depth_bytes(0), tm.max_depth_bytes(0), tm.backlog()), (0, 1000, PortSet::default()));
    }

    /// Keeps `depth` packets of 1000 bytes behind each packet taken out, and says for how many of `n` RED hit.
    fn red_hits(red: Red, depth: u32, n: u32) -> u32 {
        let mut tm = manager(vec![PortConfig { red: Some(red), ..port(RATE) }]);
        for _ in 0..depth {
            tm.enqueue(0, 0, &phv(1000, false), 0);
        }
        let mut hits = 0;
        for _ in 0..n {
            tm.enqueue(0, 0, &phv(1000, false), 0);
            let packet = tm.dequeue(0, Nanos::MAX).expect("queued");
            assert_eq!(packet.depth_bytes, u64::from(depth) * 1000);
            hits += u32::from(packet.red);
        }
        hits
    }

    #[test]
    fn red_is_silent_up_to_kmin_linear_up_to_kmax_and_sure_above() {
        let red = Red { kmin_bytes: 10_000, kmax_bytes: 40_000, pmax: 0.2 };
        assert_eq!(red_hits(red, 0, 1000), 0);
        assert_eq!(red_hits(red, 10, 1000), 0);
        let half = red_hits(red, 25, 10_000);
        assert!((900..1100).contains(&half), "0.1 expected at half way, {half} of 10000 seen");
        let full = red_hits(red, 40, 10_000);
        assert!((1850..2150).contains(&full), "0.2 expected at Kmax, {full} of 10000 seen");
        assert_eq!(red_hits(red, 41, 1000), 1000);
    }

    #[test]
    fn red_draws_once_for_each_data_packet_above_kmin_and_never_else() {
        let red = Red { kmin_bytes: 1000, kmax_bytes: 2000, pmax: 0.5 };
        let mut tm = manager(vec![PortConfig { red: Some(red), ..port(RATE) }; 2]);
        let mut expected = ChaCha8Rng::seed_from_u64(1);
        expected.set_stream(1);
        let next = |tm: &mut TrafficManager<u32>| tm.marking(1).map(|(_, rng)| rng.clone().next_u32());
        for bytes in [1000, 500, 500, 600, 400, 1000] {
            tm.enqueue(1, 0, &phv(bytes, false), 0);
        }
        tm.enqueue(1, 0, &phv(64, true), 0);
        // Behind the CNP 4000, no draw; then 3000 and 2500 (above Kmax), 2000, 1400, 1000, 0.
        for (depth, draws) in [(4000, 0), (3000, 1), (2500, 1), (2000, 1), (1400, 1), (1000, 0), (0, 0)] {
            let packet = tm.dequeue(1, Nanos::MAX).expect("queued");
            assert_eq!(packet.depth_bytes, depth);
            for _ in 0..draws {
                expected.next_u32();
            }
            assert_eq!(next(&mut tm), Some(expected.clone().next_u32()), "at depth {depth}");
        }
    }

    #[test]
    fn every_port_has_a_random_stream_of_its_own_and_the_seed_decides_it() {
        let config = SwitchConfig { buffer_bytes: 1, seed: 7, ports: vec![port(None), port(None)] };
        let draw = |config: &SwitchConfig, port| {
            TrafficManager::<u32>::new(config).marking(port).map(|(_, rng)| rng.next_u64())
        };
        assert_ne!(draw(&config, 0), draw(&config, 1));
        assert_eq!(draw(&config, 0), draw(&config, 0));
        assert_ne!(draw(&config, 0), draw(&SwitchConfig { seed: 8, ..config.clone() }, 0));
    }

    /// What a port does, said in the plainest way.
    #[derive(Default)]
    struct Model {
        data: VecDeque<(Nanos, u32, u32)>,
        priority: VecDeque<(Nanos, u32, u32)>,
        free_at: Nanos,
    }

    impl Model {
        fn dequeue(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
            let first = self.data.front().into_iter().chain(self.priority.front()).map(|p| p.0).min()?;
            let at = first.max(self.free_at);
            if at > now {
                return None;
            }
            let is_priority = self.priority.front().is_some_and(|p| p.0 <= at);
            let queue = if is_priority { &mut self.priority } else { &mut self.data };
            let (_, bytes, frame) = queue.pop_front()?;
            self.free_at = at + Nanos::from(bytes);
            Some((frame, at))
        }
    }

    proptest! {
        #[test]
        fn queues_behave_as_the_plain_model_says(
            steps in proptest::collection::vec((0..2u16, 0..3000u64, 60..1500u32, any::<bool>(), any::<bool>()), 1..200)
        ) {
            let mut tm = manager(vec![port(RATE), port(RATE)]);
            let mut models = [Model::default(), Model::default()];
            let mut now = 0;
            for (frame, (port, wait, bytes, is_priority, is_enqueue)) in (0..).zip(steps) {
                now += wait;
                let model = &mut models[usize::from(port)];
                if is_enqueue {
                    prop_assert_eq!(tm.admit(port, &phv(bytes, is_priority)), Ok(()));
                    tm.enqueue(port, now, &phv(bytes, is_priority), frame);
                    let queue = if is_priority { &mut model.priority } else { &mut model.data };
                    queue.push_back((now, bytes, frame));
                } else {
                    let due = tm.next_departure(port);
                    let got = tm.dequeue(port, now).map(|d| (d.frame, d.at));
                    prop_assert_eq!(got, model.dequeue(now));
                    if let Some((_, at)) = got {
                        prop_assert_eq!(due, Some(at));
                    }
                }
                for (port, model) in (0..).zip(&models) {
                    let bytes: u64 = model.data.iter().map(|p| u64::from(p.1)).sum();
                    prop_assert_eq!(tm.depth_bytes(port), bytes);
                    let waits = !(model.data.is_empty() && model.priority.is_empty());
                    prop_assert_eq!(tm.backlog().contains(port), waits);
                }
            }
        }
    }
}
