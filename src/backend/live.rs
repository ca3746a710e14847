//! What goes between the control plane and a running switch: [`Command`]s down, [`Snapshot`]s up. Applied between batches.

use std::collections::BTreeMap;

use serde::Serialize;

pub use crate::dataplane::{Conservation, Marks};
use crate::functions::symphony::{Job, Parameters};

/// A wish of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Adds a job. Refused when its id or one of its edges is taken.
    AddJob(Job),
    /// Removes a job and all its state.
    RemoveJob(u32),
    /// Switches one job on or off.
    EnableJob(u32, bool),
    /// Replaces Symphony's parameters.
    SetParameters(Parameters),
    /// Asks for a snapshot.
    Snapshot,
}

/// A command and where its answer goes.
#[derive(Debug)]
pub struct Request {
    /// What is wished.
    pub command: Command,
    /// Takes one answer: `Err` says in a sentence why not.
    pub reply: crossbeam::channel::Sender<Result<Option<Box<Snapshot>>, String>>,
}

/// One port's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortSnapshot {
    /// Name.
    pub name: String,
    /// Interface.
    pub interface: String,
    /// Whether the port's socket works.
    pub up: bool,
    /// Packets in and out.
    pub rx_packets: u64,
    /// Bytes in.
    pub rx_bytes: u64,
    /// Packets out.
    pub tx_packets: u64,
    /// Bytes out.
    pub tx_bytes: u64,
    /// Bytes in the data queue now.
    pub depth_bytes: u64,
    /// Most bytes ever in it.
    pub max_depth_bytes: u64,
    /// Marks on packets that left here.
    pub marks: Marks,
    /// XDP_STATISTICS of the socket, by the kernel's names (`rx_dropped`, `rx_ring_full`, ..).
    pub xdp: BTreeMap<&'static str, u64>,
    /// Frames of the UMEM by where they are (`fill`, `rx`, `tx`, `queued`), where known.
    pub frames: BTreeMap<&'static str, u64>,
}

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobSnapshot {
    /// The user's number.
    pub job: u32,
    /// Name.
    pub name: String,
    /// Whether it is switched on.
    pub enabled: bool,
    /// Whether it has been idle once, so that it may be marked.
    pub armed: bool,
    /// Least and most completed steps of its flows.
    pub min_step: u32,
    /// Most completed steps of its flows.
    pub max_step: u32,
    /// The minimum register in 1/256 steps.
    pub minimum: u32,
    /// Packets of the job that took part.
    pub packets: u64,
    /// Packets that passed the lead test.
    pub lead_tests: u64,
    /// Marks on its packets.
    pub marks: Marks,
}

/// One flow of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowSnapshot {
    /// Source address, RFC 5952 or dotted.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// Destination queue pair.
    pub qpn: u32,
    /// The user's job number.
    pub job: u32,
    /// Data packets, retransmissions included.
    pub packets: u64,
    /// Packets whose PSN is not newer than the newest seen.
    pub retransmitted: u64,
    /// With-immediate message ends, each once.
    pub messages: u64,
    /// Resynchronisations after a gap.
    pub resyncs: u64,
    /// Completed steps since the counters last restarted.
    pub step: u32,
    /// Progress in 1/256 steps.
    pub progress: u32,
    /// Whether it takes part in the job's minimum.
    pub takes_part: bool,
}

/// The whole state that a user may look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Schema version, 1.
    pub version: u32,
    /// The switch's name.
    pub name: String,
    /// Nanoseconds since it started.
    pub uptime_ns: u64,
    /// The conservation law.
    pub conservation: Conservation,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Marks of all ports.
    pub marks: Marks,
    /// Counters of the kernel side by outcome.
    pub kernel: BTreeMap<String, u64>,
    /// Ports.
    pub ports: Vec<PortSnapshot>,
    /// Jobs.
    pub jobs: Vec<JobSnapshot>,
    /// Flows of jobs.
    pub flows: Vec<FlowSnapshot>,
}
