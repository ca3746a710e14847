//! RoCEv2 hosts: endpoints, and the lines on which they send.

use std::net::IpAddr;

use super::model::{HostModel, Sent};
use super::packet::RoceTransport;
use super::results::{JobResults, Results};
use super::setup::{Job, Paths, Setup, Transfer};
use super::topology::{MAX_ENDPOINTS, address, endpoint, serialisation_ps};
use super::{Error, error};
use crate::dataplane::{Nanos, Phv};
use crate::roce::{self, Collective, Endpoint, Outcome, SourcePort};
use crate::wire::roce::Repr;

/// Nothing acknowledged for so long: sent again. Longer than any queue that lossless fabrics build.
const RETRANSMIT_TIMEOUT_NS: Nanos = 1_000_000_000;

/// An endpoint and where it is.
struct Agent {
    endpoint: Endpoint,
    line: u32,
    /// Index of its job; `None`: one end of a transfer.
    job: Option<u32>,
    /// When it wants to be asked.
    next: Nanos,
    finished: bool,
    /// One for each queue pair, where paths change under way.
    reordering: Vec<Reordering>,
}

/// One line into the fabric: a NIC, or one rank's share of an unlimited one.
#[derive(Default)]
struct Line {
    bps: u64,
    agents: Vec<u32>,
    turn: usize,
    free_ps: u64,
    /// Times for which there is an event already, latest first.
    pending: Vec<Nanos>,
    /// The switch has asked for a pause.
    paused: bool,
}

/// A job while it runs.
struct JobState {
    ranks_left: usize,
    finish: Option<Nanos>,
    agents: std::ops::Range<usize>,
}

/// All hosts.
pub(super) struct Hosts<'a> {
    setup: &'a Setup,
    /// The setup's time 0.
    begin: Nanos,
    agents: Vec<Agent>,
    /// By host where its ranks share a NIC, else by rank.
    lines: Vec<Line>,
    jobs: Vec<JobState>,
    unfinished: usize,
    /// By host, by endpoint number.
    directory: Vec<Vec<u32>>,
    reorder: bool,
    recycled: Vec<u32>,
    /// The endpoint that the last packet was for.
    receiver: Option<u32>,
}

const NOBODY: u32 = u32::MAX;

impl<'a> Hosts<'a> {
    pub(super) fn new(setup: &'a Setup, begin: Nanos) -> Self {
        let hosts = setup.fabric.topology.hosts();
        let line = |_| Line { bps: setup.fabric.host_bps, ..Line::default() };
        Hosts {
            setup,
            begin,
            agents: Vec::new(),
            jobs: Vec::new(),
            unfinished: 0,
            lines: if setup.fabric.shared_nic { (0..hosts).map(line).collect() } else { Vec::new() },
            directory: vec![Vec::new(); hosts as usize],
            reorder: setup.fabric.paths == Paths::PerStep,
            recycled: Vec::new(),
            receiver: None,
        }
    }

    /// Puts the ranks of a job on their hosts; returns their addresses in ring order.
    pub(super) fn add_job(&mut self, index: u32, job: &Job) -> Result<Vec<IpAddr>, Error> {
        let first = self.agents.len();
        let ring = job.hosts.iter().map(|&host| self.free_address(host)).collect::<Result<Vec<_>, _>>()?;
        for (rank, &host) in (0u32..).zip(&job.hosts) {
            let of = |list: &[u64], name: &'static str| {
                list.get(rank as usize).copied().ok_or_else(|| error(name, format!("none for rank {rank}")))
            };
            let mut config = roce::Config::new(index, &ring, rank).map_err(|wrong| error("job", wrong.to_string()))?;
            config.collective = job.collective;
            config.iterations = job.iterations;
            config.compute_ns = job.compute_ns;
            config.chunk_bytes = job.chunk_bytes;
            config.channels = job.channels;
            config.requests_per_step = job.requests_per_step;
            config.path_mtu = job.path_mtu;
            config.line_rate_bps = of(&job.nic_bps, "nic_bps")?;
            config.start_at = self.begin + of(&job.start_at, "start_at")?;
            config.congestion_control = job.congestion_control;
            if self.setup.fabric.paths == Paths::PerStep {
                config.source_port = SourcePort::StepTag;
            }
            self.add(host, &ring[rank as usize], Some(index), simulated(config))?;
        }
        self.jobs.push(JobState { ranks_left: ring.len(), finish: None, agents: first..self.agents.len() });
        self.unfinished += 1;
        Ok(ring)
    }

    /// Packets of a job's step on one channel.
    pub(super) fn packets_per_step(&self, job: u32) -> u32 {
        self.agents[self.jobs[job as usize].agents.start].endpoint.config().packets_per_step()
    }

    /// Both ends of a transfer, which begins now.
    fn add_transfer(&mut self, transfer: &Transfer, number: u32, now: Nanos, path_mtu: u32, bps: u64) {
        let Ok(from) = self.free_address(transfer.from) else { return };
        let Ok(to) = self.free_address(transfer.to) else { return };
        for (rank, host) in [(0, transfer.from), (1, transfer.to)] {
            let Ok(config) = roce::Config::new(0, &[from, to], rank) else { return };
            let config = roce::Config {
                run: number,
                collective: Collective::Stream { steps: 1 },
                chunk_bytes: transfer.bytes.next_multiple_of(4),
                requests_per_step: 1,
                path_mtu,
                line_rate_bps: bps,
                congestion_control: transfer.congestion_control,
                start_at: now,
                ..simulated(config)
            };
            // Sizes were checked when the setup was.
            let _ = self.add(host, &[from, to][rank as usize], None, config);
        }
    }

    fn host_of_line(&self, line: u32) -> u32 {
        if self.setup.fabric.shared_nic {
            return line;
        }
        let agent = self.lines[line as usize].agents.first();
        let addr = agent.map(|&agent| self.agents[agent as usize].endpoint.config().addr);
        addr.and_then(endpoint).map_or(0, |(host, _)| host)
    }

    fn free_address(&mut self, host: u32) -> Result<IpAddr, Error> {
        let Some(directory) = self.directory.get_mut(host as usize) else {
            return Err(error("host", format!("there is no host {host}")));
        };
        let place = match directory.iter().position(|&agent| agent == NOBODY) {
            Some(place) => place,
            None => {
                directory.push(NOBODY);
                directory.len() - 1
            }
        };
        if place as u32 >= MAX_ENDPOINTS {
            return Err(error("host", format!("host {host} has more than {MAX_ENDPOINTS} endpoints at a time")));
        }
        directory[place] = NOBODY - 1; // taken
        Ok(address(host, place as u32))
    }

    fn add(&mut self, host: u32, own: &IpAddr, job: Option<u32>, config: roce::Config) -> Result<u32, Error> {
        let bps = config.line_rate_bps;
        let next = config.start_at;
        let endpoint_ = Endpoint::new(config).map_err(|wrong| error("job", wrong.to_string()))?;
        let line = if self.setup.fabric.shared_nic {
            host
        } else {
            self.lines.push(Line { bps, ..Line::default() });
            (self.lines.len() - 1) as u32
        };
        let agent = Agent { endpoint: endpoint_, line, job, next, finished: false, reordering: Vec::new() };
        let index = match self.recycled.pop() {
            Some(index) => {
                self.agents[index as usize] = agent;
                index
            }
            None => {
                self.agents.push(agent);
                (self.agents.len() - 1) as u32
            }
        };
        self.lines[line as usize].agents.push(index);
        if let Some((host, place)) = endpoint(*own) {
            self.directory[host as usize][place as usize] = index;
        }
        Ok(index)
    }

    /// Hands a packet to its endpoint. Returns which, unless nobody has that address.
    fn hand_over(&mut self, now: Nanos, repr: &Repr, ce: bool) -> Option<u32> {
        let (host, place) = endpoint(repr.dst)?;
        let index = *self.directory.get(host as usize)?.get(place as usize)?;
        let reorder = self.reorder;
        let agent = self.agents.get_mut(index as usize)?;
        if reorder && repr.opcode.is_request_data() {
            agent.in_order(now, repr, ce);
        } else {
            agent.endpoint.on_packet(now, repr, &[], ce);
        }
        agent.next = agent.endpoint.next_timeout().unwrap_or(Nanos::MAX);
        Some(index)
    }

    /// Counts an endpoint that has just finished.
    fn count_finish(&mut self, now: Nanos, agent: u32) {
        let agent = &mut self.agents[agent as usize];
        if agent.finished || !matches!(agent.endpoint.outcome(), Outcome::Finished { .. }) {
            return;
        }
        agent.finished = true;
        let Some(job) = agent.job else { return };
        let job = &mut self.jobs[job as usize];
        job.ranks_left -= 1;
        if job.ranks_left == 0 {
            job.finish = Some(now);
            self.unfinished -= 1;
        }
    }

    /// Forgets an endpoint of a transfer that has nothing more to say.
    fn retire(&mut self, agent: u32) {
        let own = &self.agents[agent as usize];
        if own.job.is_some() || !own.finished || !own.endpoint.is_idle() {
            return;
        }
        let (line, addr) = (own.line, own.endpoint.config().addr);
        self.lines[line as usize].agents.retain(|&other| other != agent);
        if let Some((host, place)) = endpoint(addr) {
            self.directory[host as usize][place as usize] = NOBODY;
        }
        self.recycled.push(agent);
    }
}

impl<W: RoceTransport> HostModel<W> for Hosts<'_> {
    fn lines(&self) -> u32 {
        self.lines.len() as u32
    }

    fn host(&self, line: u32) -> u32 {
        self.host_of_line(line)
    }

    #[inline]
    fn receive(&mut self, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, lines: &mut Vec<u32>) {
        let Some((repr, ce)) = wire.arrive(phv, frame) else { return };
        let Some(agent) = self.hand_over(now, &repr, ce) else { return };
        self.count_finish(now, agent);
        lines.push(self.agents[agent as usize].line);
        self.receiver = Some(agent);
    }

    fn send(&mut self, line: u32, now: Nanos, wire: &mut W) -> Option<Sent<W::Handle>> {
        let own = &mut self.lines[line as usize];
        if own.free_ps.div_ceil(1000) > now {
            return None;
        }
        let count = own.agents.len();
        for i in 0..count {
            let turn = (own.turn + i) % count;
            let agent = &mut self.agents[own.agents[turn] as usize];
            if agent.next > now || own.paused && agent.next > 0 {
                continue;
            }
            let transmit =
                if own.paused { agent.endpoint.poll_control(now) } else { agent.endpoint.poll_transmit(now) };
            agent.next = agent.endpoint.next_timeout().unwrap_or(Nanos::MAX);
            let Some(transmit) = transmit else { continue };
            own.turn = turn + 1;
            let (phv, frame) = wire.send(&transmit.repr);
            own.free_ps = own.free_ps.max(now * 1000) + serialisation_ps(phv.frame_bytes, own.bps);
            return Some(Sent { phv, frame, ends_at: own.free_ps.div_ceil(1000) });
        }
        None
    }

    fn wake(&mut self, line: u32) -> Option<Nanos> {
        if let Some(agent) = self.receiver.take() {
            self.retire(agent);
        }
        let own = &mut self.lines[line as usize];
        let next = own.agents.iter().map(|&agent| self.agents[agent as usize].next).min()?;
        // Paused, only acknowledgements and CNPs are awaited, and those are due at once.
        if next == Nanos::MAX || own.paused && next > 0 {
            return None;
        }
        let at = next.max(own.free_ps.div_ceil(1000));
        if own.pending.last().is_some_and(|&pending| pending <= at) {
            return None;
        }
        own.pending.push(at);
        Some(at)
    }

    fn woken(&mut self, line: u32) {
        self.lines[line as usize].pending.pop();
    }

    fn pause(&mut self, host: u32, paused: bool, lines: &mut Vec<u32>) {
        let first = lines.len();
        lines.extend((0..self.lines.len() as u32).filter(|&line| self.host_of_line(line) == host));
        for &line in &lines[first..] {
            self.lines[line as usize].paused = paused;
        }
    }

    fn transfer(&mut self, now: Nanos, index: u32, lines: &mut Vec<u32>) {
        let setup = self.setup;
        let Some(transfer) = setup.background.get(index as usize) else { return };
        let path_mtu = setup.jobs.first().map_or(4096, |job| job.path_mtu);
        self.add_transfer(transfer, index, now, path_mtu, setup.fabric.host_bps);
        lines.extend([transfer.from, transfer.to]);
    }

    fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    fn report(&self, results: &mut Results) {
        for (job, state) in self.setup.jobs.iter().zip(&self.jobs) {
            let agents = &self.agents[state.agents.clone()];
            let of = |agent: &Agent| agent.endpoint.progress().iter().map(|at| at - self.begin).collect();
            results.jobs.push(JobResults {
                class: job.class.clone(),
                start_ns: job.start_at.iter().copied().min().unwrap_or(0),
                finish_ns: state.finish.map(|at| at - self.begin),
                steps: agents.iter().map(of).collect(),
            });
        }
        for agent in self.agents.iter().filter(|agent| agent.job.is_some()) {
            let counters = agent.endpoint.counters();
            results.cnps += counters.cnps_sent;
            results.retransmissions += counters.retransmitted_packets;
            results.delivered_bytes += counters.data_bytes_received;
        }
    }
}

impl Agent {
    /// As a NIC that allows adaptive routing: packets reach the queue pair in order, whatever way they took.
    fn in_order(&mut self, now: Nanos, repr: &Repr, ce: bool) {
        let index = match self.reordering.iter().position(|of| of.qpn == repr.dest_qpn) {
            Some(index) => index,
            None => {
                let first = self.endpoint.config().first_psn;
                self.reordering.push(Reordering { qpn: repr.dest_qpn, expected_psn: first, early: Vec::new() });
                self.reordering.len() - 1
            }
        };
        let own = &mut self.reordering[index];
        let ahead = repr.psn.wrapping_sub(own.expected_psn) & roce::psn::MASK;
        if ahead != 0 && ahead < 1 << 23 {
            own.early.push((*repr, ce));
            return;
        }
        // What has come before is the queue pair's own business.
        self.endpoint.on_packet(now, repr, &[], ce);
        if ahead != 0 {
            return;
        }
        own.advance();
        while let Some(next) = own.early.iter().position(|(early, _)| early.psn == own.expected_psn) {
            let (early, ce) = own.early.swap_remove(next);
            self.endpoint.on_packet(now, &early, &[], ce);
            own.advance();
        }
    }
}

/// Packets of a queue pair that wait for those before them.
struct Reordering {
    qpn: u32,
    expected_psn: u32,
    early: Vec<(Repr, bool)>,
}

impl Reordering {
    fn advance(&mut self) {
        self.expected_psn = (self.expected_psn + 1) & roce::psn::MASK;
    }
}

/// What all simulated endpoints have in common.
fn simulated(config: roce::Config) -> roce::Config {
    roce::Config {
        data: false,
        burst_packets: 0,
        retransmit_timeout_ns: RETRANSMIT_TIMEOUT_NS,
        connect_timeout_ns: Nanos::MAX,
        ..config
    }
}
