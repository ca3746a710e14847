//! What became of each packet, written down: the capture and the trace that a replay makes.
//!
//! The capture has every frame as it leaves, outbound on its port; of a packet of which no copy leaves it has the frame
//! as it came, inbound, with the reason. The trace has one line a packet, in the order of the capture, whenever all
//! copies of it and of those before it are gone.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use super::Error;
use super::frames::Frame;
use super::trace::{Pass, drops, enqueued, marked_by};
use crate::capture::{Direction, Writer};
use crate::dataplane::{Bridged, Departure, Event, Nanos, Phv, PortId, Step};
use crate::functions::symphony::Symphony;

/// A packet as it came in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Number in the capture, from 1 and without gaps.
    pub number: u64,
    /// Time in the capture.
    pub capture_ns: Nanos,
    /// Port that it comes in on.
    pub port: PortId,
    /// Length of the frame.
    pub bytes: usize,
    /// Virtual time.
    pub at: Nanos,
}

/// Writes captures and traces; either may be missing.
pub struct Journal<'a> {
    capture: Option<Writer<Box<dyn Write + 'a>>>,
    trace: Option<Box<dyn Write + 'a>>,
    /// Packets from `first` on that are not yet written down. Kept without a trace too: they tell when a packet is gone.
    pending: VecDeque<Entry>,
    first: u64,
}

/// One packet of which copies may still be queued.
struct Entry {
    arrival: Arrival,
    seen: Bridged,
    queued: usize,
    sent: usize,
    line: Line,
}

/// One line of the trace.
#[derive(Serialize)]
struct Line {
    packet: u64,
    at_ns: Nanos,
    port: PortId,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    roce: Option<Headers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracked: Option<Tracked>,
    ingress: Pass,
    egress: Vec<EgressLine>,
}

/// One copy's way out.
#[derive(Serialize)]
struct EgressLine {
    port: PortId,
    /// When its first bit leaves, or when it was dropped.
    at_ns: Nanos,
    #[serde(flatten)]
    pass: Pass,
}

/// Which RoCEv2 packet it is.
#[derive(Serialize)]
struct Headers {
    src: IpAddr,
    dst: IpAddr,
    opcode: String,
    qpn: u32,
    psn: u32,
}

impl Headers {
    fn new(phv: &Phv) -> Option<Self> {
        let roce = phv.roce?;
        let address = |octets| IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
        Some(Headers {
            src: address(phv.src),
            dst: address(phv.dst),
            opcode: format!("{:02x}", roce.opcode.0),
            qpn: roce.dest_qpn,
            psn: roce.psn,
        })
    }
}

/// What tracking found out.
#[derive(Clone, Copy, Serialize)]
struct Tracked {
    job: u32,
    flow: u32,
    steps_done: u32,
    /// 1/256 steps.
    progress: u32,
    /// 1/256 steps.
    lead: i32,
    armed: bool,
}

impl Tracked {
    fn new(seen: Bridged, symphony: &Symphony) -> Option<Self> {
        let (job, _) = symphony.job(seen.job).filter(|_| seen.step == Step::Data)?;
        let Bridged { flow, steps_done, progress, lead, armed, .. } = seen;
        Some(Tracked { job: job.id, flow, steps_done, progress, lead, armed })
    }
}

impl<'a> Journal<'a> {
    /// A journal of nothing yet.
    pub fn new(capture: Option<Writer<Box<dyn Write + 'a>>>, trace: Option<Box<dyn Write + 'a>>) -> Self {
        Journal { capture, trace, pending: VecDeque::new(), first: 1 }
    }

    /// A packet went through ingress. `freed` are the copies of it that did not get into a queue.
    pub fn arrived(
        &mut self,
        arrival: &Arrival,
        seen: &Phv,
        symphony: &Symphony,
        events: &[Event],
        freed: impl Iterator<Item = Frame>,
    ) -> Result<(), Error> {
        let line = Line {
            packet: arrival.number,
            at_ns: arrival.at,
            port: arrival.port,
            bytes: arrival.bytes,
            roce: Headers::new(seen),
            tracked: Tracked::new(seen.bridged, symphony),
            ingress: Pass::new(events),
            egress: Vec::new(),
        };
        let queued = enqueued(events);
        self.pending.push_back(Entry { arrival: *arrival, seen: seen.bridged, queued, sent: 0, line });
        if queued == 0
            && let Some(frame) = freed.last()
        {
            self.write_inbound(frame, symphony, events)?;
        }
        self.write_lines()
    }

    /// A copy was dropped in egress.
    pub fn dropped(
        &mut self,
        port: PortId,
        at: Nanos,
        frame: Frame,
        symphony: &Symphony,
        events: &[Event],
    ) -> Result<(), Error> {
        if let Some(entry) = self.entry(frame.number) {
            entry.queued = (entry.queued + enqueued(events)).saturating_sub(1);
            entry.line.egress.push(EgressLine { port, at_ns: at, pass: Pass::new(events) });
            if entry.queued == 0 && entry.sent == 0 {
                self.write_inbound(frame, symphony, events)?;
            }
        }
        self.write_lines()
    }

    /// A copy left.
    pub fn departed(
        &mut self,
        departure: Departure<Frame>,
        symphony: &Symphony,
        events: &[Event],
    ) -> Result<(), Error> {
        let Departure { frame, phv, port, at, .. } = departure;
        if let Some(entry) = self.entry(frame.number) {
            entry.queued = (entry.queued + enqueued(events)).saturating_sub(1);
            entry.sent += 1;
            entry.line.egress.push(EgressLine { port, at_ns: at, pass: Pass::new(events) });
            let capture_ns = entry.arrival.capture_ns.saturating_add(at.saturating_sub(entry.arrival.at));
            let comment = comment(frame.number, Tracked::new(phv.bridged, symphony), events);
            self.write_frame(capture_ns, port, Direction::Outbound, &frame, &comment)?;
        }
        self.write_lines()
    }

    /// Hands the last bytes on.
    pub fn finish(self) -> Result<(), Error> {
        if let Some(capture) = self.capture {
            capture.finish()?;
        }
        if let Some(mut trace) = self.trace {
            trace.flush()?;
        }
        Ok(())
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        self.pending.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn write_inbound(&mut self, frame: Frame, symphony: &Symphony, events: &[Event]) -> Result<(), Error> {
        let Some(Entry { arrival, seen, .. }) = self.entry(frame.number) else { return Ok(()) };
        let (capture_ns, port) = (arrival.capture_ns, arrival.port);
        let comment = comment(frame.number, Tracked::new(*seen, symphony), events);
        self.write_frame(capture_ns, port, Direction::Inbound, &frame, &comment)
    }

    fn write_frame(
        &mut self,
        capture_ns: Nanos,
        port: PortId,
        direction: Direction,
        frame: &Frame,
        comment: &str,
    ) -> Result<(), Error> {
        if let Some(capture) = &mut self.capture {
            let captured = frame.bytes.get(..frame.captured_bytes).unwrap_or(&frame.bytes);
            capture.packet(capture_ns, port.into(), direction, frame.bytes.len() as u32, captured, comment)?;
        }
        Ok(())
    }

    /// Writes down the packets at the front that are gone.
    fn write_lines(&mut self) -> Result<(), Error> {
        while self.pending.front().is_some_and(|entry| entry.queued == 0) {
            let gone = self.pending.pop_front();
            self.first += 1;
            if let (Some(entry), Some(trace)) = (gone, &mut self.trace) {
                serde_json::to_writer(&mut *trace, &entry.line).map_err(std::io::Error::from)?;
                trace.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

/// A packet's story in a line, for people who look at the capture.
fn comment(number: u64, tracked: Option<Tracked>, events: &[Event]) -> String {
    let mut comment = format!("packet {number}");
    if let Some(Tracked { job, steps_done, lead, armed, .. }) = tracked {
        let armed = if armed { "" } else { ", not armed" };
        comment += &format!("; job {job}, step {steps_done}, {:.2} steps ahead{armed}", f64::from(lead) / 256.0);
    }
    if let Some(by) = marked_by(events) {
        comment += &format!("; CE set by {by}");
    }
    for reason in drops(events) {
        comment += &format!("; dropped: {reason}");
    }
    comment
}
