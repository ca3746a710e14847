//! The event loop: packets from host to switch to switch to host.

use std::collections::VecDeque;

use super::model::HostModel;
use super::node::{Node, Progress};
use super::packet::Transport;
use super::queue::{Event, EventQueue, Key};
use super::results::{DEPTH_BUCKET_BYTES, DEPTH_BUCKETS, LEAD_BUCKETS, Results};
use super::setup::{Discipline, Setup};
use super::topology::{End, Plan};
use crate::dataplane::{Nanos, Phv, PortId, PortSet, Step};

/// A link and what is on it.
struct Link<H> {
    /// The switch port that feeds it; of no meaning where a host does.
    from: (u32, PortId),
    to: End,
    delay_ns: Nanos,
    flying: VecDeque<(Key, Phv, H)>,
}

/// A run.
pub(super) struct Engine<'a, W: Transport, N, M> {
    setup: &'a Setup,
    begin: Nanos,
    now: Nanos,
    events: EventQueue,
    wire: W,
    nodes: Vec<N>,
    /// Out of each switch's ports.
    out: Vec<Vec<u32>>,
    /// Ports of each switch for which there is an event already.
    awaited: Vec<PortSet>,
    /// Whether switches may pause their neighbours.
    pfc: bool,
    /// Out of each line of the hosts.
    uplinks: Vec<u32>,
    links: Vec<Link<W::Handle>>,
    hosts: M,
    /// Lines to look at; empty between events.
    lines: Vec<u32>,
    progress: Progress,
    /// Whether anybody looks at `progress`.
    omniscient: bool,
    results: Results,
}

impl<'a, W: Transport, N: Node<W>, M: HostModel<W>> Engine<'a, W, N, M> {
    /// `begin` is the setup's time 0.
    pub(super) fn new(
        setup: &'a Setup,
        plan: &Plan,
        begin: Nanos,
        wire: W,
        nodes: Vec<N>,
        hosts: M,
        progress: Progress,
    ) -> Self {
        let mut engine = Engine {
            setup,
            begin,
            now: 0,
            events: EventQueue::default(),
            wire,
            nodes,
            out: Vec::new(),
            awaited: vec![PortSet::default(); plan.switches.len()],
            pfc: setup.fabric.pfc.is_some(),
            uplinks: Vec::new(),
            links: Vec::new(),
            hosts,
            lines: Vec::new(),
            progress,
            omniscient: setup.discipline == Discipline::LeastLead,
            results: Results {
                queue_depths: vec![0; DEPTH_BUCKETS],
                leads: vec![0; LEAD_BUCKETS],
                ..Results::default()
            },
        };
        for (number, switch) in (0u32..).zip(&plan.switches) {
            let links = (0..).zip(&switch.ends).map(|(port, &end)| engine.add_link((number, port), end)).collect();
            engine.out.push(links);
        }
        for line in 0..engine.hosts.lines() {
            let (switch, port) = plan.hosts[engine.hosts.host(line) as usize];
            let link = engine.add_link((u32::MAX, 0), End::Switch(switch, port));
            engine.uplinks.push(link);
            engine.wake(line);
        }
        for (index, transfer) in (0u32..).zip(&setup.background) {
            engine.events.push(begin + transfer.start_at, Event::Transfer(index));
        }
        engine
    }

    fn add_link(&mut self, from: (u32, PortId), to: End) -> u32 {
        self.links.push(Link { from, to, delay_ns: self.setup.fabric.delay_ns, flying: VecDeque::new() });
        (self.links.len() - 1) as u32
    }

    /// Runs to the end of all jobs, or to the setup's limit.
    pub(super) fn run(mut self) -> Results {
        let limit = self.begin.saturating_add(self.setup.limit_ns);
        while !self.hosts.is_done() {
            let links = &self.links;
            let next = self.events.pop(|event| match event {
                Event::Arrival(link) => links[link as usize].flying.get(1).map(|(key, ..)| *key),
                _ => None,
            });
            let Some((now, event)) = next.filter(|(now, _)| *now <= limit) else {
                self.now = limit; // nothing more happens until then
                break;
            };
            self.now = now;
            match event {
                Event::Arrival(link) => self.arrival(link),
                Event::Departure(link) => {
                    let (switch, port) = self.links[link as usize].from;
                    let awaited = &mut self.awaited[switch as usize];
                    *awaited = awaited.without(port);
                    self.departure(switch, port);
                }
                Event::Pause(link) => self.pause(link, true),
                Event::Resume(link) => self.pause(link, false),
                Event::Line(line) => {
                    self.hosts.woken(line);
                    self.results.events += 1;
                    self.send(line);
                }
                Event::Transfer(index) => self.transfer(index),
            }
        }
        self.finish()
    }

    /// The first packet of a link is where the link ends.
    #[inline]
    fn arrival(&mut self, link: u32) {
        self.results.events += 1;
        let own = &mut self.links[link as usize];
        let Some((_, phv, frame)) = own.flying.pop_front() else { return };
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
        let link = self.out[switch as usize][usize::from(port)];
        self.events.push(at, Event::Departure(link));
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
            let link = self.out[switch as usize][usize::from(port)];
            let event = if paused { Event::Pause(link) } else { Event::Resume(link) };
            self.events.push(self.now + self.setup.fabric.delay_ns, event);
            self.results.pfc_pauses += u64::from(paused);
        }
    }

    /// The neighbour at the end of a link must not send data, or may again.
    fn pause(&mut self, link: u32, paused: bool) {
        match self.links[link as usize].to {
            End::Switch(switch, port) => {
                self.nodes[switch as usize].pause(port, self.now, paused);
                self.depart(switch);
            }
            End::Host(host) => {
                self.hosts.pause(host, paused, &mut self.lines);
                self.look();
            }
        }
    }

    /// Puts a packet on a link; its last bit leaves at `ends_at`.
    #[inline]
    fn launch(&mut self, link: u32, ends_at: Nanos, phv: Phv, frame: W::Handle) {
        let own = &mut self.links[link as usize];
        let key = self.events.key(ends_at + own.delay_ns);
        if own.flying.is_empty() {
            self.events.push_keyed(key, Event::Arrival(link));
        }
        own.flying.push_back((key, phv, frame));
    }

    #[inline]
    fn deliver(&mut self, phv: &Phv, frame: W::Handle) {
        if self.omniscient {
            self.progress.deliver(phv);
        }
        self.hosts.receive(self.now, phv, frame, &mut self.wire, &mut self.lines);
        self.look();
    }

    fn transfer(&mut self, index: u32) {
        self.hosts.transfer(self.now, index, &mut self.lines);
        self.look();
    }

    /// Looks at the lines that may have something to send.
    #[inline]
    fn look(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        for line in lines.drain(..) {
            self.send(line);
        }
        self.lines = lines;
    }

    /// Sends on a line what leaves now.
    #[inline]
    fn send(&mut self, line: u32) {
        while let Some(sent) = self.hosts.send(line, self.now, &mut self.wire) {
            let link = self.uplinks[line as usize];
            self.launch(link, sent.ends_at, sent.phv, sent.frame);
        }
        self.wake(line);
    }

    #[inline]
    fn wake(&mut self, line: u32) {
        while let Some(at) = self.hosts.wake(line) {
            self.events.push(at, Event::Line(line));
        }
    }

    fn finish(mut self) -> Results {
        for node in &self.nodes {
            node.report(&mut self.results);
        }
        self.results.end_ns = self.now.saturating_sub(self.begin);
        self.hosts.report(&mut self.results);
        self.results
    }
}
