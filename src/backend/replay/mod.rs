//! Replay: a capture through the switch in virtual time, and a report of what it held and what the switch did to it.
//!
//! Time is that of the capture, counted from its first packet; it never runs backwards. Between two packets the traffic
//! manager sends what is due, at the end all that is left. Without ports nothing is forwarded: packets are tracked and
//! counted only. No flow and no station ages.
//!
//! Packets come in on a port by this rule: where the file describes several interfaces, by interface number; else every
//! source MAC has a port of its own, in the order of their first packets. Both wrap around.

mod classify;
mod exit;
mod flows;
mod frames;
mod journal;
mod ports;
mod report;
mod trace;

use std::io::{Read, Write};

use crate::capture::{self, Packet, Reader, Writer};
use crate::dataplane::{Conservation, Nanos, PortId, Switch, SwitchConfig, parse_l2_l3};
use crate::functions::forward::{Forward, ForwardConfig};
use crate::functions::symphony::{self, Job, Parameters, Symphony};

use classify::classify;
use exit::Exit;
use frames::{Frame, Store};
use journal::{Arrival, Journal};
use ports::Ports;
use report::Counts;
use trace::Recorder;

pub use report::{EcnCounts, FlowReport, IcrcCounts, JobReport, Report};

/// Flows and jobs that Symphony has room for; the kernel side's `MAX_FLOWS` and `MAX_JOBS`.
const MAX_FLOWS: u32 = 16384;
const MAX_JOBS: u16 = 1024;

/// The longest frame that a cut one is filled up to: what IP can carry, and then some for Ethernet and tags.
const LONGEST_FRAME: usize = 65_535 + 64;

/// Latest virtual time, so that adding to it cannot overflow whatever a capture says: 146 years.
const END_OF_TIME: Nanos = 1 << 62;

/// What is replayed into.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Buffers, seed, ports. Without ports nothing is forwarded.
    pub switch: SwitchConfig,
    /// Forwarding.
    pub forward: ForwardConfig,
    /// Symphony's parameters.
    pub parameters: Parameters,
    /// The jobs, known from the first packet on.
    pub jobs: Vec<Job>,
}

/// What is written on the way. Both are optional.
pub struct Outputs<'a> {
    /// The frames as they leave, as pcapng; those that do not leave as inbound ones.
    pub capture: Option<Box<dyn Write + 'a>>,
    /// One JSON object a packet of the capture, in its order.
    pub trace: Option<Box<dyn Write + 'a>>,
}

/// Why a replay could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The capture could not be read at all, or the output not be written.
    #[error(transparent)]
    Capture(#[from] capture::Error),
    /// A job that Symphony refuses.
    #[error(transparent)]
    Job(#[from] symphony::Error),
    /// The trace could not be written.
    #[error("could not write the trace")]
    Trace(#[from] std::io::Error),
}

/// What came out of a replay.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: Report,
    /// The conservation law, with empty queues.
    pub conservation: Conservation,
    /// Frames that the capture had cut. They were filled up with zeros, and their ICRC is neither right nor wrong.
    pub cut: u64,
    /// Those of them that were cut before the end of their BTH. Nobody can tell their opcode, queue pair or PSN, so they
    /// pass the switch as something that is no RoCEv2 packet.
    pub cut_in_bth: u64,
    /// Why reading ended before the end of the file did; the report is of what was read.
    pub broken: Option<capture::Error>,
}

/// Replays a capture.
///
/// # Errors
/// See [`Error`]. A capture that breaks off behind its first packet is none: see [`Outcome::broken`].
pub fn replay<R: Read>(mut capture: Reader<R>, spec: &Spec, outputs: Outputs<'_>) -> Result<Outcome, Error> {
    let writer = match outputs.capture {
        Some(sink) => Some(Writer::new(sink, interface_names(&spec.switch))?),
        None => None,
    };
    let mut replay = Replay::new(spec, Journal::new(writer, outputs.trace))?;
    let broken = loop {
        match capture.next() {
            Some(Ok(packet)) => replay.packet(packet, capture.interfaces())?,
            Some(Err(error)) if replay.start_ns.is_none() => return Err(error.into()),
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    replay.finish(broken)
}

/// One interface a port in the capture that is written, and one for frames that come in where there are no ports.
fn interface_names(switch: &SwitchConfig) -> impl Iterator<Item = &str> {
    let nowhere = switch.ports.is_empty().then_some("in");
    switch.ports.iter().map(|port| port.name.as_str()).chain(nowhere)
}

struct Replay<'a> {
    switch: Switch<(Symphony, Exit), Frame>,
    store: Store,
    recorder: Recorder,
    ports: Ports,
    counts: Counts,
    journal: Journal<'a>,
    /// Time of the first packet; virtual time counts from there.
    start_ns: Option<Nanos>,
    now: Nanos,
    cut: u64,
    cut_in_bth: u64,
}

impl<'a> Replay<'a> {
    fn new(spec: &Spec, journal: Journal<'a>) -> Result<Self, Error> {
        let ports = spec.switch.ports.len();
        let mut symphony = Symphony::new(spec.parameters, MAX_FLOWS, MAX_JOBS);
        for job in &spec.jobs {
            symphony.add_job(job, 0)?;
        }
        let forward = (ports > 0).then(|| Forward::new(&spec.forward, ports, spec.switch.seed));
        Ok(Replay {
            switch: Switch::new(&spec.switch, (symphony, Exit::new(forward))),
            store: Store::default(),
            recorder: Recorder::default(),
            ports: Ports::new(ports),
            counts: Counts::new(&spec.parameters),
            journal,
            start_ns: None,
            now: 0,
            cut: 0,
            cut_in_bth: 0,
        })
    }

    /// Lets time pass up to a packet, and takes it in.
    fn packet(&mut self, packet: Packet, interfaces: usize) -> Result<(), Error> {
        let start_ns = *self.start_ns.get_or_insert(packet.timestamp_ns);
        self.now = self.now.max(packet.timestamp_ns.saturating_sub(start_ns).min(END_OF_TIME));
        self.send_until(self.now)?;

        let captured_bytes = packet.data.len();
        let mut bytes = packet.data;
        let whole_bytes = (packet.original_len as usize).min(LONGEST_FRAME);
        let is_cut = whole_bytes > captured_bytes;
        if is_cut {
            bytes.resize(whole_bytes, 0);
            self.cut += 1;
        }
        let mut classified = classify(&bytes);
        let is_cut_in_bth = matches!(&classified, Ok(Some(packet)) if packet.bth_end > captured_bytes);
        if is_cut_in_bth {
            classified = Ok(None);
            self.cut_in_bth += 1;
        }
        self.counts.frame(&classified, is_cut, self.now);

        let port = self.ports.ingress(&bytes, packet.interface, interfaces);
        let arrival =
            Arrival { number: packet.number, capture_ns: packet.timestamp_ns, port, bytes: bytes.len(), at: self.now };
        self.switch.functions_mut().1.forget();
        let frame = Frame { number: packet.number, captured_bytes, bytes };
        self.store.number = packet.number;
        match is_cut_in_bth.then(|| parse_l2_l3(&frame.bytes, port, self.now)) {
            Some(Ok(phv)) => self.switch.ingress(self.now, phv, frame, &mut self.store, &mut self.recorder),
            _ => self.switch.receive(port, self.now, frame, &mut self.store, &mut self.recorder),
        }
        let (symphony, exit) = self.switch.functions();
        self.journal.arrived(&arrival, exit.seen(), symphony, &self.recorder.take(), self.store.freed.drain(..))?;
        self.send_until(self.now)
    }

    /// Sends everything that departs no later than `now`, in the order of its departure.
    fn send_until(&mut self, now: Nanos) -> Result<(), Error> {
        while let Some((due, port)) = self.next_departure().filter(|(due, _)| *due <= now) {
            let departure = self.switch.dequeue(port, due, &mut self.store, &mut self.recorder);
            let (symphony, _) = self.switch.functions();
            let mut events = self.recorder.take();
            for frame in self.store.freed.drain(..) {
                let rest = trace::split_after_drop(&mut events);
                self.journal.dropped(port, due, frame, symphony, &events)?;
                events = rest;
            }
            if let Some(departure) = departure {
                self.journal.departed(departure, symphony, &events)?;
            }
        }
        Ok(())
    }

    fn next_departure(&self) -> Option<(Nanos, PortId)> {
        let departures = self.switch.backlog().iter();
        departures.filter_map(|port| Some((self.switch.next_departure(port)?, port))).min()
    }

    fn finish(mut self, broken: Option<capture::Error>) -> Result<Outcome, Error> {
        self.send_until(Nanos::MAX)?;
        self.journal.finish()?;
        let counters = self.switch.counters();
        let (symphony, _) = self.switch.functions();
        Ok(Outcome {
            report: self.counts.report(symphony, counters),
            conservation: counters.conservation,
            cut: self.cut,
            cut_in_bth: self.cut_in_bth,
            broken,
        })
    }
}
