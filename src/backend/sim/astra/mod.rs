//! The ASTRA-sim compatible mode: hosts as ASTRA-sim with its ns-3 back end has them, on the same engine and the same
//! switch, so that results can be held against what the field uses.
//!
//! What differs from the simulator's own hosts: each step of a ring is a new queue pair that starts at line rate with a
//! source port of its own, so that ECMP draws anew; every packet is acknowledged, and the acknowledgement waits in the
//! data queues; marks are echoed unpaced; there is no retransmission timeout. A message counts as received when its
//! *sender* has the last acknowledgement.

mod hosts;
mod queue_pair;
mod rate;
mod ring;
mod switch;

use std::net::{IpAddr, Ipv4Addr};

use super::engine::Engine;
use super::node::{Node, Progress};
use super::oracle::Oracle;
use super::packet::{Transport, parsed};
use super::results::Results;
use super::run::{begin, step_ns, with_jobs};
use super::setup::{Discipline, Job, Setup};
use super::topology::Plan;
use super::{Error, error};
use crate::dataplane::{Function, HeadersOnly, IpAddress, Nanos, NoTrace, Phv, PortId, Switch};
use crate::functions::symphony::{self, mapped};
use crate::roce::Collective;
use hosts::Hosts;
use queue_pair::Packet;
use ring::Ring;
use switch::{Ecmp, WholeNanos};

/// How its hosts behave, besides the job's congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Bound on the bytes in flight of a queue pair.
    pub window: Window,
    /// A NIC that finds nothing to send looks for the next packet's time only at queue pairs that have something left to
    /// send. As shipped it does not: one that waits for its last acknowledgements hides the others until something happens.
    pub skip_drained: bool,
}

/// A bound on the bytes in flight of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// None.
    #[default]
    Unbounded,
    /// One bandwidth-delay product of its path, times its rate over line rate: as shipped.
    ByRate,
}

/// Runs a setup whose only job has one rank on each host.
pub(super) fn run(setup: &Setup, parameters: Parameters) -> Result<Results, Error> {
    let job = check(setup)?;
    let plan = Plan::new(&setup.fabric, setup.seed)?;
    let mut nodes = vec![0; job.hosts.len()];
    for (rank, &host) in (0..).zip(&job.hosts) {
        nodes[host as usize] = rank;
    }
    let switches = plan.switches.iter().zip(Ecmp::all(&plan, &nodes));
    let known: Vec<_> = job.known.then(|| symphony_job(setup, job)).into_iter().collect();
    match (setup.discipline, setup.symphony) {
        (Discipline::LeastLead, _) => {
            let nodes = switches.map(|(switch, ecmp)| Oracle::new(&switch.config, ecmp));
            Ok(with_switches(setup, job, parameters, &plan, nodes.collect()))
        }
        (_, None) => {
            let nodes = switches.map(|(switch, ecmp)| WholeNanos::new(&switch.config, (ecmp,)));
            Ok(with_switches(setup, job, parameters, &plan, nodes.collect()))
        }
        (_, Some(policy)) => {
            let symphony = || with_jobs(policy, &known);
            let nodes = switches.map(|(switch, ecmp)| WholeNanos::new(&switch.config, (symphony(), ecmp)));
            Ok(with_switches(setup, job, parameters, &plan, nodes.collect()))
        }
    }
}

fn with_switches<N: Node<HeadersOnly<Packet>>>(
    setup: &Setup,
    job: &Job,
    parameters: Parameters,
    plan: &Plan,
    nodes: Vec<N>,
) -> Results {
    let begin = begin(setup);
    let hosts = Hosts::new(setup, job, parameters, begin);
    let mut progress = Progress::default();
    for rank in 0..ring(job).ranks {
        progress.add(address(rank), ring(job).next(rank), 0, hosts::packets_per_message(job));
    }
    Engine::new(setup, plan, begin, HeadersOnly::default(), nodes, hosts, progress).run()
}

/// The job, if this mode can run it.
fn check(setup: &Setup) -> Result<&Job, Error> {
    let [job] = setup.jobs.as_slice() else {
        return Err(error("jobs", format!("the ASTRA-sim mode runs exactly one, not {}", setup.jobs.len())));
    };
    let mut hosts = job.hosts.clone();
    hosts.sort_unstable();
    if !hosts.iter().copied().eq(0..setup.fabric.topology.hosts()) || hosts.len() < 2 {
        return Err(error("job.hosts", "the ASTRA-sim mode wants one rank on each host of the fabric".into()));
    }
    if job.collective != Collective::AllReduce || job.channels != 1 || job.iterations == 0 || job.chunk_bytes == 0 {
        return Err(error("job", "the ASTRA-sim mode runs an all-reduce on one channel, in at least one chunk".into()));
    }
    if job.start_at.len() != hosts.len() || job.nic_bps.len() != hosts.len() || job.nic_bps.contains(&0) {
        return Err(error("job", "start_at and nic_bps need a value for each rank, and no rate is 0".into()));
    }
    if !setup.background.is_empty() {
        return Err(error("background", "the ASTRA-sim mode has none".into()));
    }
    Ok(job)
}

/// The job as the switches know it: a flow is an edge of the ring, and its step is in the source port.
fn symphony_job(setup: &Setup, job: &Job) -> symphony::Job {
    let ranks = job.hosts.len() as u32;
    symphony::Job {
        id: 1,
        name: job.class.clone(),
        ring: (0..ranks).map(|rank| IpAddr::V4(address_v4(rank))).collect(),
        step_source: symphony::StepSource::UdpSport,
        requests_per_step: 1,
        packets_per_step: job.step_size_known.then(|| hosts::packets_per_message(job)),
        path_mtu: 1024,
        steps_per_collective: ring(job).steps(),
        step_ns: step_ns(setup, job),
        idle_ns: job.idle_ns,
        enabled: true,
    }
}

fn ring(job: &Job) -> Ring {
    Ring { ranks: job.hosts.len() as u32, chunks: job.iterations, message_bytes: job.chunk_bytes }
}

/// Address of a node: 11.x.y.1.
fn address_v4(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0b00_0001 + ((node / 256) << 16) + ((node % 256) << 8))
}

fn address(node: u32) -> IpAddress {
    mapped(IpAddr::V4(address_v4(node)))
}

/// The node of an address that [`address`] made.
#[inline]
fn node(address: &IpAddress) -> Option<u32> {
    let bits = u32::from_be_bytes([address[12], address[13], address[14], address[15]]);
    bits.checked_sub(0x0b00_0001).map(|offset| offset >> 8)
}

/// Time that `bytes` take at a rate, to the nearest nanosecond.
#[inline]
fn line_ns(bytes: u32, bps: u64) -> Nanos {
    let (bits_ns, bps) = (u64::from(bytes) * 8_000_000_000, bps.max(1));
    (bits_ns + bps / 2) / bps
}

impl Transport for HeadersOnly<Packet> {
    #[inline]
    fn enter<F: Function>(
        &mut self,
        switch: &mut Switch<F, Packet>,
        port: PortId,
        now: Nanos,
        phv: &Phv,
        frame: Packet,
    ) {
        switch.ingress(now, parsed(phv, port, now), frame, self, &mut NoTrace);
    }
}
