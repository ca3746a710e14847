//! From a setup to a run: switches and hosts for the engine.

use std::net::IpAddr;

use super::engine::Engine;
use super::hosts::Hosts;
use super::node::{Node, Progress};
use super::oracle::Oracle;
use super::packet::{Bytes, Headers, RoceTransport};
use super::queue::MAX_INDEX;
use super::results::Results;
use super::setup::{Discipline, Paths, Setup};
use super::topology::{Plan, SwitchPlan};
use super::{Error, error};
use crate::dataplane::{Nanos, Switch};
use crate::functions::forward::Forward;
use crate::functions::symphony::{self, Parameters, Symphony, mapped};
use crate::roce::{Side, queue_pair_number};

/// Runs a setup; packets travel as headers, or as bytes.
pub(super) fn run(setup: &Setup, as_bytes: bool) -> Result<Results, Error> {
    if as_bytes { with_transport(setup, Bytes::default()) } else { with_transport(setup, Headers::default()) }
}

fn with_transport<W: RoceTransport>(setup: &Setup, wire: W) -> Result<Results, Error> {
    match (setup.discipline, setup.symphony) {
        (Discipline::LeastLead, _) => {
            with_switches(setup, wire, |switch, _| Oracle::new(&switch.config, forward(switch)))
        }
        (_, None) => with_switches(setup, wire, |switch, _| Switch::new(&switch.config, (forward(switch),))),
        (_, Some(parameters)) => with_switches(setup, wire, |switch, jobs| {
            Switch::new(&switch.config, (with_jobs(parameters, jobs), forward(switch)))
        }),
    }
}

fn with_switches<W: RoceTransport, N: Node<W>>(
    setup: &Setup,
    wire: W,
    node: impl Fn(&SwitchPlan, &[symphony::Job]) -> N,
) -> Result<Results, Error> {
    let plan = Plan::new(&setup.fabric, setup.seed)?;
    let begin = begin(setup);
    let mut hosts = Hosts::new(setup, begin);
    let (mut known, mut progress) = (Vec::new(), Progress::default());
    for (index, job) in (0u32..).zip(&setup.jobs) {
        let ring = hosts.add_job(index, job)?;
        for (rank, src) in ring.iter().enumerate() {
            let next = (rank + 1) % ring.len();
            for channel in 0..job.channels {
                let qpn = queue_pair_number(index, next as u32, channel, 0, Side::Prev);
                progress.add(mapped(*src), qpn, index, hosts.packets_per_step(index));
            }
        }
        if job.known {
            known.push(symphony_job(setup, index, job, ring, hosts.packets_per_step(index)));
        }
    }
    let nodes = plan.switches.iter().map(|switch| node(switch, &known)).collect();
    Ok(Engine::new(setup, &plan, begin, wire, nodes, hosts, progress).run())
}

/// Setup time 0: late enough for every job to have been idle, as before a real start.
pub(super) fn begin(setup: &Setup) -> Nanos {
    setup.jobs.iter().map(|job| job.idle_ns).max().unwrap_or(0) + 1_000_000
}

pub(super) fn forward(switch: &SwitchPlan) -> Forward {
    Forward::new(&switch.forward, switch.ends.len(), switch.seed)
}

/// Symphony that knows `jobs`.
pub(super) fn with_jobs(parameters: Parameters, jobs: &[symphony::Job]) -> Symphony {
    let flows: usize = jobs.iter().map(|job| job.ring.len() * FLOWS_PER_EDGE).sum();
    let mut function = Symphony::new(parameters, flows.max(1) as u32, jobs.len().max(1) as u16);
    for job in jobs {
        // The control plane of every switch is told of every job; what does not fit was refused when the setup was read.
        let _ = function.add_job(job, 0);
    }
    function
}

/// Room for flows: four channels, and in a ring of two their clear-to-sends.
const FLOWS_PER_EDGE: usize = 8;

/// The job as the switches know it.
fn symphony_job(
    setup: &Setup,
    index: u32,
    job: &super::Job,
    ring: Vec<IpAddr>,
    packets_per_step: u32,
) -> symphony::Job {
    let steps = job.collective.steps(ring.len() as u32);
    symphony::Job {
        id: index + 1,
        name: format!("{}-{index}", job.class),
        ring,
        step_source: match setup.fabric.paths {
            Paths::PerStep => symphony::StepSource::UdpSport,
            _ => symphony::StepSource::Message,
        },
        requests_per_step: job.requests_per_step as u16,
        packets_per_step: job.step_size_known.then_some(packets_per_step),
        path_mtu: job.path_mtu,
        steps_per_collective: steps,
        step_ns: step_ns(setup, job),
        idle_ns: job.idle_ns,
        enabled: true,
    }
}

/// How long a step takes with nothing in its way, where its size is known.
pub(super) fn step_ns(setup: &Setup, job: &super::Job) -> Option<Nanos> {
    job.step_size_known.then(|| u64::from(job.chunk_bytes) * 8_000_000_000 / setup.fabric.host_bps.max(1))
}

/// Checks what the parts do not.
pub(super) fn check(setup: &Setup) -> Result<(), Error> {
    if setup.jobs.is_empty() {
        return Err(error("jobs", "there is none: a run ends with its last job".into()));
    }
    if !setup.fabric.shared_nic && !setup.background.is_empty() {
        return Err(error("background", "needs hosts with a NIC that their ranks share (shared_nic)".into()));
    }
    let lines: usize = setup.jobs.iter().map(|job| job.hosts.len()).sum();
    if setup.background.len().max(lines) >= MAX_INDEX / 2 {
        return Err(error("setup", format!("more than {} ranks or transfers", MAX_INDEX / 2)));
    }
    let hosts = setup.fabric.topology.hosts();
    for transfer in &setup.background {
        if transfer.from >= hosts || transfer.to >= hosts || transfer.from == transfer.to || transfer.bytes == 0 {
            return Err(error(
                "background",
                format!(
                    "a transfer of {} bytes from host {} to {}: the fabric has hosts 0 to {}",
                    transfer.bytes,
                    transfer.from,
                    transfer.to,
                    hosts - 1
                ),
            ));
        }
    }
    Ok(())
}
