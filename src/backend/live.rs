//! What goes between the control plane and a running switch: [`Command`]s down, [`Snapshot`]s up. Applied between batches.

mod aggregation;

use std::collections::BTreeMap;

use serde::Serialize;

pub use aggregation::{AggregationSnapshot, MemberSnapshot, SampleSnapshot, SwapSnapshot};

pub use crate::dataplane::{Conservation, Marks};
use crate::functions::serene::{self, Strategy};
pub use crate::functions::symphony::{FlowView as FlowSnapshot, JobView as JobSnapshot};
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
    /// Takes an aggregation job in. Refused when its id is taken, or there is no service address.
    LoadAggregation(Box<serene::Job>),
    /// Forgets an aggregation job and its sums.
    UnloadAggregation(u8),
    /// Has an aggregation job go over to a strategy. Done when it is wanted; [`Command::Aggregation`] says when it is in force.
    Swap {
        /// The job.
        job: u8,
        /// The strategy.
        strategy: Strategy,
    },
    /// Asks for the state of aggregation jobs alone.
    Aggregation,
    /// Asks for a snapshot.
    Snapshot,
}

/// An answer to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Command::Snapshot`].
    Snapshot(Box<Snapshot>),
    /// To [`Command::Aggregation`].
    Aggregation(Vec<AggregationSnapshot>),
}

/// A command and where its answer goes.
#[derive(Debug)]
pub struct Request {
    /// What is wished.
    pub command: Command,
    /// Takes one answer: `Err` says in a sentence why not.
    pub reply: crossbeam::channel::Sender<Result<Reply, String>>,
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
    /// Of the packets out, those that left more than 1 ms after the emulated line would have sent them: the worker did not
    /// get the CPU in time, or the kernel took no packets.
    pub late_packets: u64,
    /// The most by which one was late, in nanoseconds.
    pub max_late_ns: u64,
    /// Of the packets out, those that the kernel never sent: the interface was removed, or refused them.
    pub not_sent: u64,
    /// Marks on packets that left here.
    pub marks: Marks,
    /// XDP_STATISTICS of the socket, by the kernel's names (`rx_dropped`, `rx_ring_full`, ..).
    pub xdp: BTreeMap<&'static str, u64>,
    /// Frames of the UMEM by where they are with the kernel: `fill`, `rx`, `tx`.
    pub frames: BTreeMap<&'static str, u64>,
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
    /// Aggregation jobs.
    pub aggregation: Vec<AggregationSnapshot>,
}
