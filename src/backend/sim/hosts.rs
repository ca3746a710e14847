//! Hosts: endpoints, and the lines on which they send.

use super::packet::Transport;
use super::setup::{Job, Paths, Setup, Transfer};
use super::topology::{MAX_ENDPOINTS, address, endpoint, serialisation_ps};
use super::{Error, error};
use crate::dataplane::{Nanos, Phv};
use crate::roce::{self, Collective, Endpoint, Outcome, SourcePort};
use crate::wire::roce::Repr;

/// Nothing acknowledged for so long: sent again. Longer than any queue that lossless fabrics build.
const RETRANSMIT_TIMEOUT_NS: Nanos = 1_000_000_000;

/// An endpoint and where it is.
pub(super) struct Agent {
    pub(super) endpoint: Endpoint,
    line: u32,
    /// Index of its job; `None`: one end of a transfer.
    pub(super) job: Option<u32>,
    /// When it wants to be asked.
    next: Nanos,
    finished: bool,
    /// Early packets that wait for those before them, where paths change under way.
    early: Vec<(Repr, bool)>,
    /// PSN that must come next on the data queue pair, where packets are put back in order.
    expected_psn: u32,
}

/// One line into the fabric: a NIC, or one rank's share of an unlimited one.
#[derive(Default)]
pub(super) struct Line {
    pub(super) bps: u64,
    /// The link that it feeds.
    pub(super) link: u32,
    agents: Vec<u32>,
    turn: usize,
    free_ps: u64,
    /// Times for which there is an event already, latest first.
    pending: Vec<Nanos>,
    /// The switch has asked for a pause.
    pub(super) paused: bool,
}

/// All hosts.
pub(super) struct Hosts {
    pub(super) agents: Vec<Agent>,
    pub(super) lines: Vec<Line>,
    /// By host, by endpoint number.
    directory: Vec<Vec<u32>>,
    /// Line of each host whose ranks share one.
    shared: Option<Vec<u32>>,
    reorder: bool,
    recycled: Vec<u32>,
}

/// A packet leaves a host.
pub(super) struct Sent<H> {
    pub(super) phv: Phv,
    pub(super) frame: H,
    /// When its last bit has left.
    pub(super) ends_at: Nanos,
}

const NOBODY: u32 = u32::MAX;

impl Hosts {
    pub(super) fn new(setup: &Setup) -> Self {
        let hosts = setup.fabric.topology.hosts();
        let line = |_| Line { bps: setup.fabric.host_bps, ..Line::default() };
        Hosts {
            agents: Vec::new(),
            lines: if setup.fabric.shared_nic { (0..hosts).map(line).collect() } else { Vec::new() },
            directory: vec![Vec::new(); hosts as usize],
            shared: setup.fabric.shared_nic.then(|| (0..hosts).collect()),
            reorder: setup.fabric.paths == Paths::PerStep,
            recycled: Vec::new(),
        }
    }

    /// Puts the ranks of a job on their hosts; returns their addresses in ring order.
    pub(super) fn add_job(
        &mut self,
        setup: &Setup,
        index: u32,
        job: &Job,
        begin: Nanos,
    ) -> Result<Vec<std::net::IpAddr>, Error> {
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
            config.start_at = begin + of(&job.start_at, "start_at")?;
            config.congestion_control = job.congestion_control;
            if setup.fabric.paths == Paths::PerStep {
                config.source_port = SourcePort::StepTag;
            }
            self.add(host, &ring[rank as usize], Some(index), simulated(config))?;
        }
        Ok(ring)
    }

    /// Both ends of a transfer, which begins now.
    pub(super) fn add_transfer(&mut self, transfer: &Transfer, number: u32, now: Nanos, path_mtu: u32, bps: u64) {
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

    /// The host of a line that one endpoint has for itself.
    pub(super) fn host_of_line(&self, line: u32) -> u32 {
        let agent = self.lines[line as usize].agents.first();
        let addr = agent.map(|&agent| self.agents[agent as usize].endpoint.config().addr);
        addr.and_then(endpoint).map_or(0, |(host, _)| host)
    }

    /// The lines of a host.
    pub(super) fn lines_of(&self, host: u32) -> Vec<u32> {
        match &self.shared {
            Some(lines) => lines.get(host as usize).copied().into_iter().collect(),
            None => (0..self.lines.len() as u32).filter(|&line| self.host_of_line(line) == host).collect(),
        }
    }

    /// The line on which an endpoint sends.
    pub(super) fn line_of(&self, agent: u32) -> u32 {
        self.agents[agent as usize].line
    }

    fn free_address(&mut self, host: u32) -> Result<std::net::IpAddr, Error> {
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

    fn add(&mut self, host: u32, own: &std::net::IpAddr, job: Option<u32>, config: roce::Config) -> Result<u32, Error> {
        let bps = config.line_rate_bps;
        let next = config.start_at;
        let endpoint_ = Endpoint::new(config).map_err(|wrong| error("job", wrong.to_string()))?;
        let line = match &self.shared {
            Some(lines) => lines[host as usize],
            None => {
                self.lines.push(Line { bps, ..Line::default() });
                (self.lines.len() - 1) as u32
            }
        };
        let agent = Agent { endpoint: endpoint_, line, job, next, finished: false, early: Vec::new(), expected_psn: 0 };
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
    pub(super) fn receive(&mut self, now: Nanos, repr: &Repr, ce: bool) -> Option<u32> {
        let (host, place) = endpoint(repr.dst)?;
        let index = *self.directory.get(host as usize)?.get(place as usize)?;
        let reorder = self.reorder;
        let agent = self.agents.get_mut(index as usize)?;
        if reorder && repr.opcode.is_request_data() && agent.job.is_some() && !is_clear_to_send(repr) {
            agent.in_order(now, repr, ce);
        } else {
            agent.endpoint.on_packet(now, repr, &[], ce);
        }
        agent.next = agent.endpoint.next_timeout().unwrap_or(Nanos::MAX);
        Some(index)
    }

    /// Whether the endpoint has just finished.
    pub(super) fn finishes(&mut self, agent: u32) -> bool {
        let agent = &mut self.agents[agent as usize];
        let now = !agent.finished && matches!(agent.endpoint.outcome(), Outcome::Finished { .. });
        agent.finished |= now;
        now
    }

    /// Forgets an endpoint of a transfer that has nothing more to say.
    pub(super) fn retire(&mut self, agent: u32) {
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

    /// The packet that leaves on a line now, if it is free and there is one.
    pub(super) fn send<W: Transport>(&mut self, line: u32, now: Nanos, wire: &mut W) -> Option<Sent<W::Handle>> {
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

    /// When to look at a line again; `None` when an event for it is on its way, or nothing is to come.
    pub(super) fn wake(&mut self, line: u32) -> Option<Nanos> {
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

    /// An event for a line has come.
    pub(super) fn woken(&mut self, line: u32) {
        self.lines[line as usize].pending.pop();
    }
}

impl Agent {
    /// As a NIC that allows adaptive routing: packets reach the queue pair in order, whatever way they took.
    fn in_order(&mut self, now: Nanos, repr: &Repr, ce: bool) {
        if repr.psn != self.expected_psn {
            self.early.push((*repr, ce));
            return;
        }
        self.endpoint.on_packet(now, repr, &[], ce);
        self.expected_psn = (self.expected_psn + 1) & roce::psn::MASK;
        while let Some(next) = self.early.iter().position(|(early, _)| early.psn == self.expected_psn) {
            let (early, ce) = self.early.swap_remove(next);
            self.endpoint.on_packet(now, &early, &[], ce);
            self.expected_psn = (self.expected_psn + 1) & roce::psn::MASK;
        }
    }
}

fn is_clear_to_send(repr: &Repr) -> bool {
    repr.opcode.is_only() && repr.immediate.is_none()
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
