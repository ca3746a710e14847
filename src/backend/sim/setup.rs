//! What one run of the simulator is told: fabric, hosts, jobs, foreign traffic, and the policy under test. Everything is
//! drawn already: a setup and its seed give the same results, byte for byte.

use super::astra;
use crate::dataplane::{Nanos, Pfc, Red};
use crate::functions::symphony;
use crate::roce::{Collective, dcqcn};

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Of RED's streams and of the ECMP hashes.
    pub seed: u64,
    /// What the hosts are.
    pub model: Model,
    /// Switches and links.
    pub fabric: Fabric,
    /// Ring jobs. Their packets are what Symphony sees.
    pub jobs: Vec<Job>,
    /// Traffic of nobody's job.
    pub background: Vec<Transfer>,
    /// Symphony in every switch; `None`: switches without the function.
    pub symphony: Option<symphony::Parameters>,
    /// How egress ports choose their next packet.
    pub discipline: Discipline,
    /// The run is given up after so long.
    pub limit_ns: Nanos,
}

/// What the hosts are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Model {
    /// The endpoints of [`crate::roce`].
    #[default]
    Roce,
    /// Hosts as ASTRA-sim with its ns-3 back end has them, and its ECMP and rounding. What a job says of path MTU
    /// and computing does not count there.
    Astra(astra::Parameters),
}

impl Setup {
    /// These jobs on this fabric, seed 1, no foreign traffic, switches without Symphony, 100 s at most.
    pub fn new(fabric: Fabric, jobs: Vec<Job>) -> Self {
        Setup {
            seed: 1,
            fabric,
            jobs,
            model: Model::default(),
            background: Vec::new(),
            symphony: None,
            discipline: Discipline::default(),
            limit_ns: 100_000_000_000,
        }
    }
}

impl Fabric {
    /// Links of 10 Gbit/s and 1 us, RED from 40 to 160 KB, 64 MiB a switch, no PFC, paths that do not collide.
    pub fn new(topology: Topology) -> Self {
        Fabric {
            topology,
            host_bps: NOMINAL_BPS,
            fabric_bps: NOMINAL_BPS,
            slow_links: Vec::new(),
            shared_nic: true,
            delay_ns: 1000,
            red: Some(Red { kmin_bytes: 40_000, kmax_bytes: 160_000, pmax: 0.2 }),
            buffer_bytes: 64 << 20,
            pfc: None,
            paths: Paths::CollisionFree,
        }
    }
}

impl Job {
    /// One all-reduce of these hosts at 10 Gbit/s with dc55, on one channel, all at once, in packets of 4096 bytes, as the
    /// only class; Symphony knows it and its step size, and takes it for restarted after 100 ms.
    pub fn new(hosts: Vec<u32>, chunk_bytes: u32) -> Self {
        let ranks = hosts.len();
        Job {
            class: "all".into(),
            hosts,
            collective: Collective::AllReduce,
            iterations: 1,
            compute_ns: 0,
            chunk_bytes,
            channels: 1,
            requests_per_step: 1,
            path_mtu: 4096,
            nic_bps: vec![NOMINAL_BPS; ranks],
            start_at: vec![0; ranks],
            congestion_control: Some(dcqcn::Parameters::DC55),
            step_size_known: true,
            known: true,
            idle_ns: 100_000_000,
        }
    }
}

/// How an egress port orders its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out: what switches do.
    #[default]
    Fifo,
    /// The packet with the least lead over its own job's true minimum first: an oracle, no switch can know that.
    LeastLead,
}

/// Switches and links. All links are full duplex.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Who is connected to whom.
    pub topology: Topology,
    /// Rate of the links between hosts and switches, and of a host's NIC, bit/s.
    pub host_bps: u64,
    /// Rate of the links between switches, bit/s.
    pub fabric_bps: u64,
    /// Links between switches with a rate of their own.
    pub slow_links: Vec<SlowLink>,
    /// Whether a host's NIC is one line of `host_bps` that its ranks share. If not, each rank has a line of its own up to
    /// the switch, as ranks in namespaces do.
    pub shared_nic: bool,
    /// Propagation delay of each link.
    pub delay_ns: Nanos,
    /// ECN thresholds at 10 Gbit/s; each port scales them with its rate.
    pub red: Option<Red>,
    /// Buffer of each switch, shared by its ports.
    pub buffer_bytes: u64,
    /// Lossless: switches pause their neighbours; the same limits at every port. `None`: full buffers drop.
    pub pfc: Option<Pfc>,
    /// How packets are spread over equal-cost paths.
    pub paths: Paths,
}

/// The rate for which [`Fabric::red`] is written.
pub const NOMINAL_BPS: u64 = 10_000_000_000;

/// Who is connected to whom. Hosts count from 0, leaf by leaf (edge switch by edge switch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One switch.
    Single {
        /// Hosts on it, at most 64.
        hosts: u32,
    },
    /// Two tiers: each leaf has one link to each spine.
    LeafSpine {
        /// Leaf switches, at most 64.
        leaves: u32,
        /// Hosts on each.
        hosts_per_leaf: u32,
        /// Spine switches; with the hosts of a leaf at most 64.
        spines: u32,
    },
    /// Three tiers (Al-Fares et al., SIGCOMM 2008): k pods of k/2 edge and k/2 aggregation switches, k^2/4 cores, k^3/4
    /// hosts.
    FatTree {
        /// Ports of each switch: even, at most 64.
        k: u32,
    },
}

/// An uplink of a leaf (or edge switch) that has a rate of its own; the way down keeps the fabric's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// The leaf.
    pub leaf: u32,
    /// Its uplink, from 0.
    pub uplink: u32,
    /// Rate, bit/s.
    pub bps: u64,
}

/// How packets are spread over equal-cost paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paths {
    /// ECMP: each flow hashes to a path and keeps it.
    #[default]
    PerFlow,
    /// The step is part of what is hashed: each flow takes a new path each step. Receivers put packets back in order, as
    /// NICs do that allow adaptive routing.
    PerStep,
    /// By the destination's number (D-mod-k): permutations between leaves in host order do not collide.
    CollisionFree,
}

/// A ring job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Class of jobs that it is reported with.
    pub class: String,
    /// Host of each rank, in ring order. A host may have ranks of several jobs, and several of one.
    pub hosts: Vec<u32>,
    /// What the ranks do.
    pub collective: Collective,
    /// How many times.
    pub iterations: u32,
    /// Time between two collectives, as computing takes it.
    pub compute_ns: Nanos,
    /// Bytes of one ring step on each channel.
    pub chunk_bytes: u32,
    /// Independent rings with queue pairs of their own.
    pub channels: u32,
    /// Messages a step.
    pub requests_per_step: u32,
    /// Payload bytes of a packet: 256 to 4096.
    pub path_mtu: u32,
    /// Rate of each rank's NIC in bit/s.
    pub nic_bps: Vec<u64>,
    /// When each rank begins.
    pub start_at: Vec<Nanos>,
    /// `None`: at line rate, whatever comes.
    pub congestion_control: Option<dcqcn::Parameters>,
    /// Whether the switches know how many packets a step has.
    pub step_size_known: bool,
    /// Whether Symphony knows the job.
    pub known: bool,
    /// Silent for so long, the job has restarted, as far as Symphony can tell.
    pub idle_ns: Nanos,
}

/// A single message from one host to another on a queue pair of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// How much.
    pub bytes: u32,
    /// When.
    pub start_at: Nanos,
    /// `None`: at line rate.
    pub congestion_control: Option<dcqcn::Parameters>,
}
