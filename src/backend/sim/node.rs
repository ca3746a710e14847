//! A switch as the engine sees it, and what only an oracle may look at.

use std::collections::HashMap;

use super::packet::Transport;
use super::results::Results;
use crate::dataplane::{Departure, Function, IpAddress, Nanos, NoTrace, Phv, PortId, PortSet, Switch};
use crate::functions::symphony::Symphony;
use crate::roce::psn;

/// A switch.
pub(super) trait Node<W: Transport> {
    /// A packet has come in.
    fn arrive(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, progress: &Progress);

    /// The packet that departs now.
    fn dequeue(&mut self, port: PortId, now: Nanos, wire: &mut W, progress: &Progress) -> Option<Departure<W::Handle>>;

    /// When the next packet may depart; may lie in the past.
    fn next_departure(&self, port: PortId) -> Option<Nanos>;

    /// Ports with packets.
    fn backlog(&self) -> PortSet;

    /// A neighbour asks to pause or resume the data of a port.
    fn pause(&mut self, port: PortId, now: Nanos, paused: bool);

    /// Neighbours to pause or resume, by port.
    fn take_pauses(&mut self) -> impl Iterator<Item = (PortId, bool)> + use<Self, W>;

    /// Adds what it has seen to the results.
    fn report(&self, results: &mut Results);
}

/// How far every flow is, in truth.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// By sender and destination queue pair.
    flows: HashMap<(IpAddress, u32), u32>,
    state: Vec<Flow>,
    /// Least `received` of each job, in packets.
    minimum: Vec<u64>,
}

/// One edge of a ring.
#[derive(Clone, Copy, Debug)]
struct Flow {
    job: u32,
    packets_per_step: u64,
    received: u64,
}

impl Progress {
    /// A new edge: from `src` to queue pair `qpn`.
    pub(super) fn add(&mut self, src: IpAddress, qpn: u32, job: u32, packets_per_step: u32) {
        self.flows.insert((src, qpn), self.state.len() as u32);
        self.state.push(Flow { job, packets_per_step: packets_per_step.into(), received: 0 });
        self.minimum.resize(self.minimum.len().max(job as usize + 1), 0);
    }

    /// The edge that a packet belongs to.
    pub(super) fn flow(&self, phv: &Phv) -> Option<u32> {
        let roce = phv.roce.filter(|roce| roce.opcode.is_request_data())?;
        self.flows.get(&(phv.src, roce.dest_qpn)).copied()
    }

    /// A packet has come to its receiver.
    pub(super) fn deliver(&mut self, phv: &Phv) {
        let (Some(flow), Some(roce)) = (self.flow(phv), phv.roce) else { return };
        let before = self.state[flow as usize].received;
        self.state[flow as usize].received = before.max(packet_number(roce.psn, before) + 1);
        let job = self.state[flow as usize].job;
        if before == self.minimum[job as usize] {
            let of_job = self.state.iter().filter(|flow| flow.job == job);
            self.minimum[job as usize] = of_job.map(|flow| flow.received).min().unwrap_or(0);
        }
    }

    /// Lead of a packet over its job's minimum, in 1/256 steps.
    pub(super) fn lead(&self, flow: u32, phv: &Phv) -> i64 {
        let flow = self.state[flow as usize];
        let number = phv.roce.map_or(0, |roce| packet_number(roce.psn, flow.received));
        (number as i64 - self.minimum[flow.job as usize] as i64) * 256 / flow.packets_per_step as i64
    }
}

/// Which packet of its queue pair a PSN means, near one that was received; simulated queue pairs start at 0.
fn packet_number(psn: u32, near: u64) -> u64 {
    psn::from_wire(0, psn, near).unwrap_or(0)
}

/// The functions of a simulated switch: with or without Symphony.
pub(super) trait Functions: Function {
    /// Symphony, where it is.
    fn symphony(&self) -> Option<&Symphony>;
}

impl<F: Function> Functions for (F,) {
    fn symphony(&self) -> Option<&Symphony> {
        None
    }
}

impl<F: Function> Functions for (Symphony, F) {
    fn symphony(&self) -> Option<&Symphony> {
        Some(&self.0)
    }
}

impl<W: Transport, F: Functions> Node<W> for Switch<F, W::Handle> {
    #[inline]
    fn arrive(&mut self, port: PortId, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, _: &Progress) {
        wire.enter(self, port, now, phv, frame);
    }

    #[inline]
    fn dequeue(&mut self, port: PortId, now: Nanos, wire: &mut W, _: &Progress) -> Option<Departure<W::Handle>> {
        Switch::dequeue(self, port, now, wire, &mut NoTrace)
    }

    #[inline]
    fn next_departure(&self, port: PortId) -> Option<Nanos> {
        Switch::next_departure(self, port)
    }

    #[inline]
    fn backlog(&self) -> PortSet {
        Switch::backlog(self)
    }

    fn pause(&mut self, port: PortId, now: Nanos, paused: bool) {
        Switch::pause(self, port, now, paused);
    }

    fn take_pauses(&mut self) -> impl Iterator<Item = (PortId, bool)> + use<W, F> {
        Switch::take_pauses(self)
    }

    fn report(&self, results: &mut Results) {
        let counters = self.counters();
        let deepest = (0..counters.ports.len()).map(|port| self.max_depth_bytes(port as PortId)).max().unwrap_or(0);
        results.max_queue_bytes = results.max_queue_bytes.max(deepest);
        let marks = counters.marks();
        results.marks.red += marks.red;
        results.marks.symphony += marks.symphony;
        results.conservation += counters.conservation;
        for (reason, count) in counters.drops.iter().filter(|(_, count)| *count > 0) {
            *results.drops.entry(reason.label()).or_default() += count;
        }
        if let Some(symphony) = self.functions().symphony() {
            for job in symphony.jobs() {
                results.job_packets += job.packets;
                results.lead_tests += job.lead_tests;
            }
        }
    }
}
