//! The switch: runs packets through parser, ingress stages, traffic manager, egress stages and deparser.
//!
//! What it owes a driver: every frame handed in is handed out in a [`Departure`], freed, or in a queue; every packet is
//! counted once, so that [`Conservation`](super::Conservation) holds between any two calls; no allocation per packet
//! once its queues have grown to what the traffic needs. What it asks of a driver: `now` never runs backwards, and what
//! is due is taken out ([`Switch::dequeue`]) before packets are put in at a later `now`.
//!
//! ```text
//! loop { now; for each port in switch.backlog() { while let Some(d) = switch.dequeue(port, now, ..) { send d } }
//!        for each frame received { switch.receive(port, now, frame, ..) } }
//! ```

use super::Nanos;
use super::config::SwitchConfig;
use super::counters::{Counters, PortCounters};
use super::deparser::deparse;
use super::drop_reason::DropReason;
use super::fault::{Links, Way};
use super::frames::{Frames, InHand};
use super::function::{Cx, Egress, Emission, Function, Verdict};
use super::parser::parse_into;
use super::phv::{Phv, PortId, PortSet};
use super::trace::{Event, Tracer};
use super::traffic_manager::{Departure, Replica, TrafficManager};
use crate::wire::Ecn;

mod faulty;

/// A switch that runs the functions `F` and moves frames `H`.
#[derive(Debug)]
pub struct Switch<F, H> {
    functions: F,
    traffic_manager: TrafficManager<H>,
    /// `None` when all are sound.
    links: Option<Box<Links<H>>>,
    up: PortSet,
    pass: u64,
    counters: Counters,
    /// Empty between packets; kept for its capacity.
    emissions: Vec<Emission>,
}

impl<F: Function, H> Switch<F, H> {
    /// A switch with empty queues and all ports up.
    pub fn new(config: &SwitchConfig, functions: F) -> Self {
        Switch {
            functions,
            traffic_manager: TrafficManager::new(config),
            links: Links::new(config),
            up: PortSet::first(config.ports.len()),
            pass: 0,
            counters: Counters { ports: vec![PortCounters::default(); config.ports.len()], ..Counters::default() },
            emissions: Vec::new(),
        }
    }

    /// Takes in a frame as it came from the wire: parses it, then as [`Switch::ingress`].
    pub fn receive<T: Tracer>(
        &mut self,
        port: PortId,
        now: Nanos,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        let mut phv = Phv { ingress_port: port, received_at: now, ..Phv::default() };
        match parse_into(frames.bytes(&frame), &mut phv) {
            Ok(()) => self.pass_ingress(now, &mut phv, frame, frames, trace),
            Err(reason) => self.drop_received(port, frame, reason, frames, trace),
        }
    }

    /// Takes in a parsed packet: runs the functions' ingress stages, then queues, replicates, drops or consumes it, and
    /// queues what the functions emitted. `phv.received_at` is for the functions; queues go by `now`.
    #[inline]
    pub fn ingress<T: Tracer>(
        &mut self,
        now: Nanos,
        mut phv: Phv,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.pass_ingress(now, &mut phv, frame, frames, trace);
    }

    /// As [`Switch::ingress`], with the PHV where the parser made it.
    #[inline]
    fn pass_ingress<T: Tracer>(
        &mut self,
        now: Nanos,
        phv: &mut Phv,
        mut frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.count_received(phv.ingress_port, phv.frame_bytes);
        if self.links.is_some() {
            let crossed = self.cross(Way::In(phv.ingress_port), now, phv, frame, frames, trace);
            let Some(whole) = crossed.and_then(|frame| self.come_in(phv, frame, frames, trace)) else { return };
            frame = whole;
        }
        self.run_ingress(now, phv, frame, frames, trace);
    }

    /// Ingress behind the link.
    #[inline(always)] // what faulty links release has a copy of its own, so that sound ones do not pay for a call
    fn run_ingress<T: Tracer>(
        &mut self,
        now: Nanos,
        phv: &mut Phv,
        mut frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.pass += 1;
        let mut in_hand = InHand { store: frames, frame: &mut frame };
        let mut cx = Cx { now, pass: self.pass, trace, emissions: &mut self.emissions, frame: &mut in_hand };
        match self.functions.ingress(&mut cx, phv) {
            Verdict::Forward(port) => self.enqueue(now, port, phv, frame, frames, trace),
            Verdict::Multicast(ports) => self.distribute(now, ports, phv, frame, frames, trace),
            Verdict::Group(group) => self.distribute_group(now, group, phv, frame, frames, trace),
            Verdict::Continue => self.drop(frame, DropReason::NoRoute, frames, trace),
            Verdict::Drop(reason) => self.drop(frame, reason, frames, trace),
            Verdict::Consume => {
                self.counters.conservation.consumed += 1;
                if T::ENABLED {
                    trace.event(Event::Consume);
                }
                frames.free(frame);
            }
        }
        if !self.emissions.is_empty() {
            self.emit(now, frames, trace);
        }
    }

    /// Counts and frees a frame that was received and can't go into the pipeline: what the parser or the driver refuses.
    pub fn drop_received<T: Tracer>(
        &mut self,
        port: PortId,
        frame: H,
        reason: DropReason,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.count_received(port, frames.bytes(&frame).len() as u32);
        self.drop(frame, reason, frames, trace);
    }

    /// When the next packet of `port` departs: [`Switch::dequeue`] from then on has one. `None` when nothing is queued,
    /// or nothing but data at a port that is paused.
    pub fn next_departure(&self, port: PortId) -> Option<Nanos> {
        self.traffic_manager.next_departure(port)
    }

    /// The least of [`Switch::next_departure`] over all ports.
    pub fn next_departure_any(&self) -> Option<Nanos> {
        self.traffic_manager.next_departure_any()
    }

    /// Ports that have packets in their queues, due or not.
    pub fn backlog(&self) -> PortSet {
        self.traffic_manager.backlog()
    }

    /// Takes out the next packet of `port` that departs no later than `now`: RED, the functions' egress stages, the mark
    /// stage, the deparser. It is counted as sent; what the driver cannot send goes to [`Switch::drop_departure`].
    ///
    /// Egress stages see the departure as their time. A packet that they drop has used its time on the line all the same.
    #[inline]
    pub fn dequeue<T: Tracer>(
        &mut self,
        port: PortId,
        now: Nanos,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) -> Option<Departure<H>> {
        let mut departure = self.traffic_manager.dequeue(port, now);
        while let Some(packet) = &mut departure {
            let Some(reason) = self.egress(packet, frames, trace) else { break };
            let next = self.traffic_manager.dequeue(port, now);
            if let Some(dropped) = std::mem::replace(&mut departure, next) {
                self.drop(dropped.frame, reason, frames, trace);
            }
        }
        departure
    }

    /// Runs the egress stages on a packet, and the deparser if it leaves. Returns why it does not.
    #[inline]
    fn egress<T: Tracer>(
        &mut self,
        packet: &mut Departure<H>,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) -> Option<DropReason> {
        let Departure { frame, phv, port, at, depth_bytes, red, .. } = packet;
        let (port, at, depth_bytes, red) = (*port, *at, *depth_bytes, *red);
        self.counters.conservation.queued -= 1;
        if T::ENABLED {
            trace.event(Event::Dequeue { port, depth_bytes, red });
        }
        self.pass += 1;
        let dropped = self.traffic_manager.marking(port).and_then(|(kmin_bytes, rng)| {
            let mut in_hand = InHand { store: frames, frame };
            let mut cx = Cx { now: at, pass: self.pass, trace, emissions: &mut self.emissions, frame: &mut in_hand };
            let mut egress = Egress { port, depth_bytes, kmin_bytes, red, rng };
            self.functions.egress(&mut cx, &mut egress, phv)
        });
        if !self.emissions.is_empty() {
            self.emit(at, frames, trace);
        }
        if dropped.is_some() {
            return dropped;
        }
        let marked = self.mark(port, phv, red, trace);
        if marked || phv.routed {
            deparse(phv, frames.bytes_mut(frame));
        }
        if self.links.is_some()
            && let Err(reason) = self.corrupt(Way::Out(port), phv.frame_bytes, frame, frames)
        {
            return Some(reason);
        }
        self.counters.conservation.tx += 1;
        if let Some(counters) = self.counters.ports.get_mut(usize::from(port)) {
            counters.tx_packets += 1;
            counters.tx_bytes += u64::from(phv.frame_bytes);
        }
        None
    }

    /// Drops a departure that the driver cannot send, and takes it back out of the port's sent packets. Its marks stay
    /// counted: they were made.
    pub fn drop_departure<T: Tracer>(
        &mut self,
        departure: Departure<H>,
        reason: DropReason,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.counters.conservation.tx -= 1;
        if let Some(counters) = self.counters.ports.get_mut(usize::from(departure.port)) {
            counters.tx_packets -= 1;
            counters.tx_bytes -= u64::from(departure.phv.frame_bytes);
        }
        self.drop(departure.frame, reason, frames, trace);
    }

    /// Says whether `port` works. While it does not, packets to it are dropped as [`DropReason::PortDown`]; what is in
    /// its queues already stays there until [`Switch::flush_port`].
    pub fn set_port_up(&mut self, port: PortId, up: bool) {
        if usize::from(port) < self.counters.ports.len() {
            self.up = if up { self.up.with(port) } else { self.up.without(port) };
        }
    }

    /// Pauses or resumes the data of `port`, as its neighbour asks (802.1Qbb); acknowledgements and CNPs go on. Data that
    /// waited departs at `now` or later once resumed. As with packets, what is due is taken out before.
    pub fn pause(&mut self, port: PortId, now: Nanos, paused: bool) {
        self.traffic_manager.pause(port, now, paused);
    }

    /// Whom to tell to pause or to resume, since the last call: pairs of a port, whose neighbour to tell, and whether it is
    /// to pause. Asked after each packet put in or taken out; nothing without [`Pfc`](super::Pfc).
    #[inline]
    pub fn take_pauses(&mut self) -> impl Iterator<Item = (PortId, bool)> + use<F, H> {
        let (changed, paused) = self.traffic_manager.take_pauses();
        for port in paused.iter() {
            if let Some(counters) = self.counters.ports.get_mut(usize::from(port)) {
                counters.pfc_pauses += 1;
            }
        }
        changed.iter().map(move |port| (port, paused.contains(port)))
    }

    /// Drops all that waits for `port`, as [`DropReason::PortDown`].
    pub fn flush_port<T: Tracer>(&mut self, port: PortId, frames: &mut impl Frames<Handle = H>, trace: &mut T) {
        while let Some(frame) = self.traffic_manager.flush_one(port) {
            self.counters.conservation.queued -= 1;
            self.drop(frame, DropReason::PortDown, frames, trace);
        }
    }

    /// Makes `replicas` what [`Verdict::Group`] of `group` sends to.
    pub fn set_group(&mut self, group: u16, replicas: &[Replica]) {
        self.traffic_manager.set_group(group, replicas);
    }

    /// All counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes in the data queue of `port`.
    pub fn depth_bytes(&self, port: PortId) -> u64 {
        self.traffic_manager.depth_bytes(port)
    }

    /// The most bytes there ever were in the data queue of `port`.
    pub fn max_depth_bytes(&self, port: PortId) -> u64 {
        self.traffic_manager.max_depth_bytes(port)
    }

    /// The functions, to read their state.
    pub fn functions(&self) -> &F {
        &self.functions
    }

    /// The functions, for the control plane to change between packets.
    pub fn functions_mut(&mut self) -> &mut F {
        &mut self.functions
    }

    #[inline]
    fn count_received(&mut self, port: PortId, bytes: u32) {
        self.counters.conservation.rx += 1;
        if let Some(counters) = self.counters.ports.get_mut(usize::from(port)) {
            counters.rx_packets += 1;
            counters.rx_bytes += u64::from(bytes);
        }
    }

    /// The last egress stage: CE = ECT and (RED or a function's extra mark). Returns whether it was set.
    #[inline]
    fn mark<T: Tracer>(&mut self, port: PortId, phv: &mut Phv, red: bool, trace: &mut T) -> bool {
        let extra = phv.extra_mark;
        if !(phv.ecn.is_ect() && (red || extra)) {
            return false;
        }
        phv.ecn = Ecn::Ce;
        if let Some(counters) = self.counters.ports.get_mut(usize::from(port)) {
            if red {
                counters.marks.red += 1;
            } else {
                counters.marks.symphony += 1;
            }
        }
        if T::ENABLED {
            trace.event(Event::Mark { red, extra });
        }
        true
    }

    fn admit(&self, port: PortId, phv: &Phv) -> Result<(), DropReason> {
        if !self.up.contains(port) {
            return Err(DropReason::PortDown);
        }
        self.traffic_manager.admit(port, phv)
    }

    /// A packet on its way to the queues of `port`.
    #[inline]
    fn enqueue<T: Tracer>(
        &mut self,
        now: Nanos,
        port: PortId,
        phv: &Phv,
        mut frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        if self.links.is_some() {
            let Some(crossed) = self.cross(Way::Out(port), now, phv, frame, frames, trace) else { return };
            frame = crossed;
        }
        self.put(now, port, phv, frame, frames, trace);
    }

    /// Puts a packet into its queue, or drops it where there is no room.
    #[inline]
    fn put<T: Tracer>(
        &mut self,
        now: Nanos,
        port: PortId,
        phv: &Phv,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        match self.admit(port, phv) {
            Ok(()) => {
                let depth_bytes = self.traffic_manager.enqueue(port, now, phv, frame);
                self.counters.conservation.queued += 1;
                if T::ENABLED {
                    trace.event(Event::Enqueue { port, depth_bytes });
                }
            }
            Err(reason) => self.drop(frame, reason, frames, trace),
        }
    }

    /// One packet to each port of a set: replicas to all but the last, which gets the original.
    fn distribute<T: Tracer>(
        &mut self,
        now: Nanos,
        ports: PortSet,
        phv: &Phv,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        let mut rest = ports.iter();
        let Some(mut port) = rest.next() else { return self.drop(frame, DropReason::NoRoute, frames, trace) };
        for next in rest {
            self.replicate(now, port, phv, &frame, frames, trace);
            port = next;
        }
        self.enqueue(now, port, phv, frame, frames, trace);
    }

    /// As [`Switch::distribute`], to the replicas of a multicast group.
    fn distribute_group<T: Tracer>(
        &mut self,
        now: Nanos,
        group: u16,
        phv: &mut Phv,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        let copies = self.traffic_manager.group_len(group);
        for number in 0..copies {
            let Some(Replica { port, rid }) = self.traffic_manager.replica(group, number) else { break };
            phv.bridged.rid = rid;
            if number + 1 == copies {
                return self.enqueue(now, port, phv, frame, frames, trace);
            }
            self.replicate(now, port, phv, &frame, frames, trace);
        }
        self.drop(frame, DropReason::NoRoute, frames, trace);
    }

    /// A copy of a packet into a queue of `port`.
    fn replicate<T: Tracer>(
        &mut self,
        now: Nanos,
        port: PortId,
        phv: &Phv,
        frame: &H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) {
        self.counters.conservation.replicas += 1;
        // Asked before the copy is made: a full queue costs no frame. Behind a link that delays it may be another matter.
        let admitted = if self.links.is_some() { Ok(()) } else { self.admit(port, phv) };
        match admitted.and_then(|()| frames.replicate(frame).ok_or(DropReason::NoFrame)) {
            Ok(replica) => self.enqueue(now, port, phv, replica, frames, trace),
            Err(reason) => self.count_drop(reason, trace),
        }
    }

    /// Queues what the functions emitted.
    #[cold]
    fn emit<T: Tracer>(&mut self, now: Nanos, frames: &mut impl Frames<Handle = H>, trace: &mut T) {
        let mut emissions = std::mem::take(&mut self.emissions);
        for emission in emissions.drain(..) {
            self.counters.conservation.emitted += 1;
            match frames.emit(&emission.bytes) {
                Some(frame) => self.distribute(now, emission.ports, &emission.phv, frame, frames, trace),
                None => self.count_drop(DropReason::NoFrame, trace),
            }
        }
        self.emissions = emissions;
    }

    #[inline]
    fn count_drop<T: Tracer>(&mut self, reason: DropReason, trace: &mut T) {
        self.counters.drop(reason);
        if T::ENABLED {
            trace.event(Event::Drop(reason));
        }
    }

    #[cold]
    fn drop<T: Tracer>(&mut self, frame: H, reason: DropReason, frames: &mut impl Frames<Handle = H>, trace: &mut T) {
        self.count_drop(reason, trace);
        frames.free(frame);
    }
}

#[cfg(test)]
mod tests;
