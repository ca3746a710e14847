//! The paths that data takes, asked of the switches' own forwarding.

use super::hosts::Hosts;
use super::run::{begin, forward};
use super::setup::{Model, Paths, Setup};
use super::topology::{End, Plan};
use super::{Error, error};
use crate::dataplane::{Cx, Function, L3, NoBytes, NoTrace, Phv, PortId, Verdict};
use crate::functions::symphony::mapped;
use crate::roce::{Side, queue_pair_number, source_port};
use crate::wire::{PROTOCOL_UDP, ROCE_PORT, ethernet};

/// The way of one queue pair's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the job.
    pub job: usize,
    /// Rank that sends.
    pub rank: usize,
    /// Ports of switches that it leaves by, in order.
    pub hops: Vec<Hop>,
}

/// A port of a switch that a route leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The switch.
    pub switch: u32,
    /// Its port.
    pub port: PortId,
    /// The port's rate, bit/s.
    pub bps: u64,
}

/// The route of each job, rank and channel, in this order. None where paths change from step to step.
///
/// # Errors
/// What makes no sense in the setup.
pub fn routes(setup: &Setup) -> Result<Vec<Route>, Error> {
    if setup.fabric.paths == Paths::PerStep || setup.model != Model::Roce {
        return Ok(Vec::new());
    }
    let plan = Plan::new(&setup.fabric, setup.seed)?;
    let mut switches: Vec<_> = plan.switches.iter().map(forward).collect();
    let mut hosts = Hosts::new(setup, begin(setup));
    let mut routes = Vec::new();
    for (index, job) in (0u32..).zip(&setup.jobs) {
        let ring = hosts.add_job(index, job)?;
        for (rank, &host) in job.hosts.iter().enumerate() {
            let next = (rank + 1) % ring.len();
            for channel in 0..job.channels {
                let sport = source_port(
                    queue_pair_number(index, rank as u32, channel, 0, Side::Next),
                    queue_pair_number(index, next as u32, channel, 0, Side::Prev),
                );
                let mut phv = Phv {
                    ethertype: ethernet::IPV4,
                    l3: L3::Ipv4,
                    src: mapped(ring[rank]),
                    dst: mapped(ring[next]),
                    protocol: PROTOCOL_UDP,
                    sport,
                    dport: ROCE_PORT,
                    ..Phv::default()
                };
                let mut hops = Vec::new();
                let (mut at, mut ingress_port) = plan.hosts[host as usize];
                loop {
                    phv.ingress_port = ingress_port;
                    let mut cx = Cx {
                        now: 0,
                        pass: hops.len() as u64,
                        trace: &mut NoTrace,
                        emissions: &mut Vec::new(),
                        frame: &mut NoBytes,
                    };
                    let Verdict::Forward(port) = switches[at as usize].ingress(&mut cx, &mut phv) else {
                        return Err(error("hosts", format!("no way from rank {rank} of job {index} to the next")));
                    };
                    let switch = &plan.switches[at as usize];
                    let bps = switch.config.ports[usize::from(port)].rate_bps.unwrap_or(u64::MAX);
                    hops.push(Hop { switch: at, port, bps });
                    match switch.ends[usize::from(port)] {
                        End::Switch(next, port) => (at, ingress_port) = (next, port),
                        End::Host(_) => break,
                    }
                }
                routes.push(Route { job: index as usize, rank, hops });
            }
        }
    }
    Ok(routes)
}
