//! The event loop: packets from host to switch to switch to host.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::hosts::Hosts;
use super::node::{Node, Progress};
use super::oracle::Oracle;
use super::packet::{Bytes, Headers, Transport};
use super::queue::{Event, EventQueue, Key};
use super::results::{DEPTH_BUCKET_BYTES, DEPTH_BUCKETS, JobResults, LEAD_BUCKETS, Results};
use super::setup::{Discipline, Setup};
use super::topology::{End, Plan, SwitchPlan};
use super::{Error, error};
use crate::dataplane::{Nanos, Phv, PortId, PortSet, Step, Switch};
use crate::functions::forward::Forward;
use crate::functions::symphony::{self, Parameters, Symphony, mapped};
use crate::roce::{Side, queue_pair_number};

/// A link and what is on it.
struct Link<H> {
    to: End,
    delay_ns: Nanos,
    flying: VecDeque<(Key, Phv, H)>,
}

/// A job while it runs.
struct JobState {
    ranks_left: usize,
    finish: Option<Nanos>,
    agents: std::ops::Range<usize>,
}

/// Runs a setup; packets travel as headers, or as bytes.
pub(super) fn run(setup: &Setup, as_bytes: bool) -> Result<Results, Error> {
    if as_bytes { with_transport(setup, Bytes::default()) } else { with_transport(setup, Headers::default()) }
}

fn with_transport<W: Transport>(setup: &Setup, wire: W) -> Result<Results, Error> {
    let plan = Plan::new(&setup.fabric, setup.seed)?;
    match (setup.discipline, setup.symphony) {
        (Discipline::LeastLead, _) => Engine::new(setup, &plan, wire, |switch, _| Oracle::new(switch))?.run(),
        (_, None) => {
            Engine::new(setup, &plan, wire, |switch, _| Switch::new(&switch.config, (forward(switch),)))?.run()
        }
        (_, Some(parameters)) => Engine::new(setup, &plan, wire, |switch, jobs| {
            Switch::new(&switch.config, (with_jobs(parameters, jobs), forward(switch)))
        })?
        .run(),
    }
}

fn forward(switch: &SwitchPlan) -> Forward {
    Forward::new(&switch.forward, switch.ends.len(), switch.seed)
}

fn with_jobs(parameters: Parameters, jobs: &[symphony::Job]) -> Symphony {
    let flows: usize = jobs.iter().map(|job| job.ring.len() * 2 * 64.min(MAX_CHANNELS)).sum();
    let mut function = Symphony::new(parameters, flows.max(1) as u32, jobs.len().max(1) as u16);
    for job in jobs {
        // The control plane of every switch is told of every job; what does not fit was refused when the setup was read.
        let _ = function.add_job(job, 0);
    }
    function
}

/// Room for flows is made for so many channels a ring.
const MAX_CHANNELS: usize = 4;

struct Engine<'a, W: Transport, N> {
    setup: &'a Setup,
    /// Setup time 0: late enough for every job to have been idle, as before a real start.
    begin: Nanos,
    now: Nanos,
    events: EventQueue,
    wire: W,
    nodes: Vec<N>,
    /// Out of each switch's ports.
    out: Vec<Vec<u32>>,
    /// Who is at the other end of each switch's ports.
    ends: Vec<Vec<End>>,
    /// Ports of each switch for which there is an event already.
    awaited: Vec<PortSet>,
    /// Whether switches may pause their neighbours.
    pfc: bool,
    links: Vec<Link<W::Handle>>,
    hosts: Hosts,
    jobs: Vec<JobState>,
    unfinished: usize,
    progress: Progress,
    /// Whether anybody looks at `progress`.
    omniscient: bool,
    results: Results,
}

impl<'a, W: Transport, N: Node<W>> Engine<'a, W, N> {
    fn new(
        setup: &'a Setup,
        plan: &Plan,
        wire: W,
        node: impl Fn(&SwitchPlan, &[symphony::Job]) -> N,
    ) -> Result<Self, Error> {
        let begin = setup.jobs.iter().map(|job| job.idle_ns).max().unwrap_or(0) + 1_000_000;
        let mut hosts = Hosts::new(setup);
        let (mut jobs, mut known, mut progress) = (Vec::new(), Vec::new(), Progress::default());
        for (index, job) in (0u32..).zip(&setup.jobs) {
            let first = hosts.agents.len();
            let ring = hosts.add_job(setup, index, job, begin)?;
            for (rank, src) in ring.iter().enumerate() {
                let next = (rank + 1) % ring.len();
                for channel in 0..job.channels {
                    let qpn = queue_pair_number(index, next as u32, channel, 0, Side::Prev);
                    progress.add(mapped(*src), qpn, index, hosts.agents[first].endpoint.config().packets_per_step());
                }
            }
            if job.known {
                known.push(symphony_job(setup, index, job, ring));
            }
            jobs.push(JobState { ranks_left: job.hosts.len(), finish: None, agents: first..hosts.agents.len() });
        }
        let mut engine = Engine {
            setup,
            begin,
            now: 0,
            events: EventQueue::default(),
            wire,
            nodes: plan.switches.iter().map(|switch| node(switch, &known)).collect(),
            out: Vec::new(),
            ends: plan.switches.iter().map(|switch| switch.ends.clone()).collect(),
            awaited: vec![PortSet::default(); plan.switches.len()],
            pfc: setup.fabric.pfc.is_some(),
            links: Vec::new(),
            hosts,
            unfinished: jobs.len(),
            jobs,
            progress,
            omniscient: setup.discipline == Discipline::LeastLead,
            results: Results {
                queue_depths: vec![0; DEPTH_BUCKETS],
                leads: vec![0; LEAD_BUCKETS],
                ..Results::default()
            },
        };
        for switch in &plan.switches {
            let links = switch.ends.iter().map(|&end| engine.add_link(end)).collect();
            engine.out.push(links);
        }
        for line in 0..engine.hosts.lines.len() as u32 {
            engine.plug(line, plan);
        }
        for (index, transfer) in (0u32..).zip(&setup.background) {
            let key = engine.events.key(begin + transfer.start_at);
            engine.events.push(key, Event::Transfer { index });
        }
        Ok(engine)
    }

    fn add_link(&mut self, to: End) -> u32 {
        self.links.push(Link { to, delay_ns: self.setup.fabric.delay_ns, flying: VecDeque::new() });
        (self.links.len() - 1) as u32
    }

    /// Gives a host's line its link, and looks when it has something to send.
    fn plug(&mut self, line: u32, plan: &Plan) {
        let host = if self.setup.fabric.shared_nic { line } else { self.hosts.host_of_line(line) };
        let (switch, port) = plan.hosts[host as usize];
        self.hosts.lines[line as usize].link = self.add_link(End::Switch(switch, port));
        self.wake(line);
    }

    fn run(mut self) -> Result<Results, Error> {
        let limit = self.begin.saturating_add(self.setup.limit_ns);
        while self.unfinished > 0 {
            let Some((now, event)) = self.events.pop() else { break };
            if now > limit {
                break;
            }
            self.now = now;
            match event {
                Event::Arrival { link } => self.arrival(link),
                Event::Departure { switch, port } => {
                    let awaited = &mut self.awaited[switch as usize];
                    *awaited = awaited.without(port);
                    self.departure(switch, port);
                }
                Event::Pause { end, paused } => self.pause(end, paused),
                Event::Line { line } => {
                    self.hosts.woken(line);
                    self.results.events += 1;
                    self.send(line);
                }
                Event::Transfer { index } => self.transfer(index),
            }
        }
        Ok(self.finish())
    }

    /// The first packet of a link is where the link ends.
    #[inline]
    fn arrival(&mut self, link: u32) {
        self.results.events += 1;
        let own = &mut self.links[link as usize];
        let Some((_, phv, frame)) = own.flying.pop_front() else { return };
        if let Some((key, ..)) = own.flying.front() {
            self.events.push(*key, Event::Arrival { link });
        }
        match own.to {
            End::Switch(switch, port) => {
                let node = &mut self.nodes[switch as usize];
                node.arrive(port, self.now, &phv, frame, &mut self.wire, &self.progress);
                if self.pfc {
                    self.tell_neighbours(switch);
                }
                self.depart(switch);
            }
            End::Host(_) => self.deliver(&phv, frame),
        }
    }

    /// Sends what departs now of ports for which there is no event, and comes back for the rest.
    #[inline]
    fn depart(&mut self, switch: u32) {
        let waiting = self.nodes[switch as usize].backlog().0 & !self.awaited[switch as usize].0;
        for port in PortSet(waiting).iter() {
            match self.nodes[switch as usize].next_departure(port) {
                Some(at) if at <= self.now => self.departure(switch, port),
                Some(at) => self.await_departure(switch, port, at),
                None => {}
            }
        }
    }

    #[inline]
    fn await_departure(&mut self, switch: u32, port: PortId, at: Nanos) {
        let key = self.events.key(at);
        self.events.push(key, Event::Departure { switch, port });
        let awaited = &mut self.awaited[switch as usize];
        *awaited = awaited.with(port);
    }

    #[inline]
    fn departure(&mut self, switch: u32, port: PortId) {
        let node = &mut self.nodes[switch as usize];
        if let Some(departure) = node.dequeue(port, self.now, &mut self.wire, &self.progress) {
            if !departure.phv.is_priority() {
                let bucket = (departure.depth_bytes / DEPTH_BUCKET_BYTES) as usize;
                self.results.queue_depths[bucket.min(DEPTH_BUCKETS - 1)] += 1;
                if departure.phv.bridged.step == Step::Data {
                    let bucket = (departure.phv.bridged.lead.max(0) / 64) as usize;
                    self.results.leads[bucket.min(LEAD_BUCKETS - 1)] += 1;
                }
            }
            let link = self.out[switch as usize][usize::from(port)];
            self.launch(link, departure.ends_at, departure.phv, departure.frame);
            if self.pfc {
                self.tell_neighbours(switch);
            }
        }
        if let Some(at) = self.nodes[switch as usize].next_departure(port) {
            self.await_departure(switch, port, at);
        }
    }

    /// Sends the pauses and resumes that a switch wants sent. They overtake everything, and their own length is nothing.
    fn tell_neighbours(&mut self, switch: u32) {
        for (port, paused) in self.nodes[switch as usize].take_pauses() {
            let end = self.ends[switch as usize][usize::from(port)];
            let key = self.events.key(self.now + self.setup.fabric.delay_ns);
            self.events.push(key, Event::Pause { end, paused });
            self.results.pfc_pauses += u64::from(paused);
        }
    }

    /// A neighbour must not send data, or may again.
    fn pause(&mut self, end: End, paused: bool) {
        match end {
            End::Switch(switch, port) => {
                self.nodes[switch as usize].pause(port, self.now, paused);
                self.depart(switch);
            }
            End::Host(host) => {
                for line in self.hosts.lines_of(host) {
                    self.hosts.lines[line as usize].paused = paused;
                    self.send(line);
                }
            }
        }
    }

    /// Puts a packet on a link; its last bit leaves at `ends_at`.
    #[inline]
    fn launch(&mut self, link: u32, ends_at: Nanos, phv: Phv, frame: W::Handle) {
        let own = &mut self.links[link as usize];
        let key = self.events.key(ends_at + own.delay_ns);
        if own.flying.is_empty() {
            self.events.push(key, Event::Arrival { link });
        }
        own.flying.push_back((key, phv, frame));
    }

    #[inline]
    fn deliver(&mut self, phv: &Phv, frame: W::Handle) {
        let Some((repr, ce)) = self.wire.arrive(phv, frame) else { return };
        if self.omniscient {
            self.progress.deliver(phv);
        }
        let Some(agent) = self.hosts.receive(self.now, &repr, ce) else { return };
        if self.hosts.finishes(agent) {
            self.finished(agent);
        }
        let line = self.hosts.line_of(agent);
        self.send(line);
        self.hosts.retire(agent);
    }

    fn finished(&mut self, agent: u32) {
        let Some(job) = self.hosts.agents[agent as usize].job else { return };
        let job = &mut self.jobs[job as usize];
        job.ranks_left -= 1;
        if job.ranks_left == 0 {
            job.finish = Some(self.now);
            self.unfinished -= 1;
        }
    }

    /// Sends on a line what leaves now.
    #[inline]
    fn send(&mut self, line: u32) {
        while let Some(sent) = self.hosts.send(line, self.now, &mut self.wire) {
            let link = self.hosts.lines[line as usize].link;
            self.launch(link, sent.ends_at, sent.phv, sent.frame);
        }
        self.wake(line);
    }

    #[inline]
    fn wake(&mut self, line: u32) {
        if let Some(at) = self.hosts.wake(line) {
            let key = self.events.key(at);
            self.events.push(key, Event::Line { line });
        }
    }

    fn transfer(&mut self, index: u32) {
        let Some(transfer) = self.setup.background.get(index as usize) else { return };
        let path_mtu = self.setup.jobs.first().map_or(4096, |job| job.path_mtu);
        self.hosts.add_transfer(transfer, index, self.now, path_mtu, self.setup.fabric.host_bps);
        for host in [transfer.from, transfer.to] {
            self.send(host);
        }
    }

    fn finish(mut self) -> Results {
        for node in &self.nodes {
            node.report(&mut self.results);
        }
        let begin = self.begin;
        self.results.end_ns = self.now.saturating_sub(begin);
        for (job, state) in self.setup.jobs.iter().zip(&self.jobs) {
            let agents = &self.hosts.agents[state.agents.clone()];
            self.results.jobs.push(JobResults {
                class: job.class.clone(),
                start_ns: job.start_at.iter().copied().min().unwrap_or(0),
                finish_ns: state.finish.map(|at| at - begin),
                steps: agents.iter().map(|a| a.endpoint.progress().iter().map(|at| at - begin).collect()).collect(),
            });
        }
        for agent in self.hosts.agents.iter().filter(|agent| agent.job.is_some()) {
            let counters = agent.endpoint.counters();
            self.results.cnps += counters.cnps_sent;
            self.results.retransmissions += counters.retransmitted_packets;
            self.results.delivered_bytes += counters.data_bytes_received;
        }
        self.results
    }
}

/// The job as the switches know it.
fn symphony_job(setup: &Setup, index: u32, job: &super::Job, ring: Vec<IpAddr>) -> symphony::Job {
    let packets = job.chunk_bytes.div_ceil(job.path_mtu);
    let steps = job.collective.steps(ring.len() as u32);
    symphony::Job {
        id: index + 1,
        name: format!("{}-{index}", job.class),
        ring,
        step_source: match setup.fabric.paths {
            super::Paths::PerStep => symphony::StepSource::UdpSport,
            _ => symphony::StepSource::Message,
        },
        requests_per_step: job.requests_per_step as u16,
        packets_per_step: job.step_size_known.then_some(packets),
        path_mtu: job.path_mtu,
        steps_per_collective: steps,
        idle_ns: job.idle_ns,
        enabled: true,
    }
}

/// Checks what the parts do not.
pub(super) fn check(setup: &Setup) -> Result<(), Error> {
    if setup.jobs.is_empty() {
        return Err(error("jobs", "there is none: a run ends with its last job".into()));
    }
    if !setup.fabric.shared_nic && !setup.background.is_empty() {
        return Err(error("background", "needs hosts with a NIC that their ranks share (shared_nic)".into()));
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
