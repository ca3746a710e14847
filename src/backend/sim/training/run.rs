//! The event loop: workers compute, push, wait; packets go between them and the switch over lines of a rate and a delay.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Flow, Learner, Results, Setup, WorkerResults, error};
use crate::backend::controllers::Controllers;
use crate::backend::sim::Error;
use crate::dataplane::{HeapFrames, Nanos, NoTrace, PortConfig, PortId, Switch, SwitchConfig};
use crate::functions::forward::{Forward, ForwardConfig};
use crate::functions::serene::controller::Controller;
use crate::functions::serene::{Serene, SereneConfig};
use crate::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};
use crate::worker::{self, Event as Happened, Worker};

/// The switch's functions.
type Functions = (Serene, Forward);

/// Ethernet, IPv4 and UDP before the payload.
const HEADERS_LEN: usize = 14 + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// The switch's own MAC.
const SWITCH_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// What happens at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A frame comes to the switch by the port of a worker.
    ToSwitch(usize, Vec<u8>),
    /// A frame comes to a worker.
    ToWorker(usize, Vec<u8>),
    /// A worker has its contribution.
    Computed(usize),
    /// A worker's timer.
    Timer(usize),
    /// The switch has something to send, or the control plane something to do.
    Switch,
}

/// A worker and its line to the switch.
struct Host<L> {
    worker: Worker,
    learner: L,
    step: Vec<f32>,
    line_free_at: Nanos,
    timer_at: Option<Nanos>,
    is_done: bool,
    results: WorkerResults,
}

pub(super) struct Run<'a, L> {
    setup: &'a Setup,
    now: Nanos,
    sequence: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    switch: Switch<Functions, Vec<u8>>,
    frames: HeapFrames,
    controllers: Controllers,
    switch_at: Option<Nanos>,
    hosts: Vec<Host<L>>,
    processed: u64,
    is_over: bool,
}

impl<'a, L: Learner> Run<'a, L> {
    pub(super) fn new(setup: &'a Setup, learners: Vec<L>) -> Result<Self, Error> {
        let members = setup.job.members.len();
        if learners.len() != members {
            return Err(error("learners", format!("{} of them for {members} members", learners.len())));
        }
        setup.job.check().map_err(|wrong| error("job", wrong.to_string()))?;
        let front = PortConfig {
            name: String::new(),
            rate_bps: Some(setup.line_bps),
            buffer_bytes: setup.buffer_bytes,
            red: None,
            pfc: None,
            fault: setup.fault,
        };
        let cpu = PortConfig { rate_bps: None, fault: setup.control_fault, ..front.clone() };
        let mut ports = vec![front; members];
        ports.push(cpu);
        let cpu_port = members as PortId;
        let config = SwitchConfig { buffer_bytes: u64::MAX, seed: setup.seed, ports };
        let serene = Serene::new(SereneConfig {
            address: setup.address,
            mac: SWITCH_MAC,
            cpu_port: Some(cpu_port),
            incarnation: 1,
        });
        let forward = Forward::new(&ForwardConfig::Learning, members, setup.seed);
        let mut switch = Switch::new(&config, (serene, forward));
        let mut controllers = Controllers::new(Some(cpu_port));
        controllers.load(&setup.job, &mut switch).map_err(|wrong| error("job", wrong.to_string()))?;
        let hosts = (0u8..).zip(learners).map(|(number, learner)| Host::new(setup, number, learner));
        Ok(Run {
            setup,
            now: 0,
            sequence: 0,
            events: BinaryHeap::new(),
            switch,
            frames: HeapFrames,
            controllers,
            switch_at: None,
            hosts: hosts.collect::<Result<_, _>>()?,
            processed: 0,
            is_over: false,
        })
    }

    /// See [`super::run`].
    pub(super) fn run(mut self) -> (Results, Vec<L>) {
        for host in 0..self.hosts.len() {
            self.look(host);
        }
        while !self.is_over && !self.hosts.iter().all(|host| host.is_done) {
            let Some(Reverse((at, _, event))) = self.events.pop().filter(|event| event.0.0 <= self.setup.limit_ns)
            else {
                break;
            };
            self.now = at;
            self.processed += 1;
            match event {
                Event::ToSwitch(host, frame) => {
                    self.send_due();
                    self.switch.receive(host as PortId, at, frame, &mut self.frames, &mut NoTrace);
                    self.drive();
                }
                Event::Switch => {
                    self.switch_at = None;
                    self.switch.release(at, &mut self.frames, &mut NoTrace);
                    self.drive();
                }
                Event::ToWorker(host, frame) => {
                    if let Some(payload) = frame.get(HEADERS_LEN..) {
                        self.hosts[host].worker.handle(at, payload);
                    }
                    self.look(host);
                }
                Event::Computed(number) => {
                    let host = &mut self.hosts[number];
                    match host.worker.begin(at, &host.step) {
                        Ok(()) => self.look(number),
                        Err(refused) => self.hosts[number].end(Some(refused.to_string())),
                    }
                }
                Event::Timer(host) => {
                    self.hosts[host].timer_at = None;
                    self.look(host);
                }
            }
        }
        let results = Results {
            workers: self.hosts.iter().map(|host| host.results.clone()).collect(),
            swaps: self.controllers.jobs().iter().flat_map(Controller::swaps).collect(),
            conservation: self.switch.counters().conservation,
            drops: self.switch.counters().drops.iter().filter(|(_, n)| *n > 0).map(|(r, n)| (r.label(), n)).collect(),
            end_ns: self.now,
            events: self.processed,
        };
        (results, self.hosts.into_iter().map(|host| host.learner).collect())
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Lets the control plane work, sends what is due, and comes back for the rest.
    fn drive(&mut self) {
        let wish = self.controllers.drive(self.now, &mut self.switch, &mut self.frames, &mut NoTrace);
        self.send_due();
        let next = [self.switch.next_departure_any(), self.switch.next_release(), wish].into_iter().flatten().min();
        if let Some(at) = next.map(|at| at.max(self.now))
            && self.switch_at.is_none_or(|awaited| at < awaited)
        {
            self.switch_at = Some(at);
            self.push(at, Event::Switch);
        }
    }

    fn send_due(&mut self) {
        for port in 0..self.hosts.len() {
            while let Some(departure) = self.switch.dequeue(port as PortId, self.now, &mut self.frames, &mut NoTrace) {
                self.push(departure.ends_at + self.setup.delay_ns, Event::ToWorker(port, departure.frame));
            }
        }
    }

    /// Sends what a worker has, sees what became of it, and comes back when it wants.
    fn look(&mut self, number: usize) {
        let (now, setup) = (self.now, self.setup);
        let mut payload = [0; MAX_PAYLOAD];
        while let Some(len) = self.hosts[number].worker.poll_transmit(now, &mut payload) {
            let frame = frame(setup, number, payload.get(..len).unwrap_or(&[]));
            let host = &mut self.hosts[number];
            let bits = frame.len() as u64 * 8;
            host.line_free_at = host.line_free_at.max(now) + bits * 1_000_000_000 / setup.line_bps.max(1);
            let at = host.line_free_at + setup.delay_ns;
            self.push(at, Event::ToSwitch(number, frame));
        }
        while let Some(event) = self.hosts[number].worker.poll_event() {
            let host = &mut self.hosts[number];
            match event {
                Happened::Joined { .. } | Happened::JobUnknown => {}
                Happened::Round(report) => {
                    host.results.count(&report);
                    match host.learner.after(now, &host.worker, &report) {
                        Flow::Continue => {}
                        Flow::Stop => host.end(None),
                        Flow::End => self.is_over = true,
                    }
                }
                Happened::Left => host.end(None),
                Happened::Failed(failure) => host.end(Some(failure.to_string())),
            }
            if !self.hosts[number].is_done {
                let computed = self.hosts[number].compute(now);
                self.push(computed, Event::Computed(number));
            }
        }
        let host = &mut self.hosts[number];
        if let Some(at) = host.worker.next_timeout().filter(|at| host.timer_at.is_none_or(|awaited| *at < awaited)) {
            host.timer_at = Some(at);
            self.push(at.max(now), Event::Timer(number));
        }
    }
}

/// The longest payload: the header and [`crate::wire::aggregation::MAX_LANES`].
const MAX_PAYLOAD: usize = crate::wire::aggregation::HEADER_LEN + 4 * crate::wire::aggregation::MAX_LANES;

impl<L: Learner> Host<L> {
    fn new(setup: &Setup, number: u8, learner: L) -> Result<Self, Error> {
        let job = &setup.job;
        let mut config =
            worker::Config::new(job.id, number, job.segments, usize::from(job.lanes), u32::from(number) + 1);
        config.scale_log2 = job.scale_log2.into();
        let values = job.segments as usize * usize::from(job.lanes);
        Ok(Host {
            worker: Worker::new(config, 0).map_err(|wrong| error("job", wrong.to_string()))?,
            learner,
            step: vec![0.0; values],
            line_free_at: 0,
            timer_at: None,
            is_done: false,
            results: WorkerResults::default(),
        })
    }

    /// Computes the next contribution; returns when it is ready.
    fn compute(&mut self, now: Nanos) -> Nanos {
        now + self.learner.step(now, &self.worker, &mut self.step)
    }

    fn end(&mut self, failure: Option<String>) {
        self.is_done = true;
        self.results.failure = failure;
    }
}

/// A datagram of a worker in its frame.
fn frame(setup: &Setup, number: usize, payload: &[u8]) -> Vec<u8> {
    let source = setup.job.members[number];
    let mut frame = vec![0; HEADERS_LEN];
    let udp_len = udp::HEADER_LEN + payload.len();
    // The buffers have room for the headers, and a payload of a datagram its length: nothing here can fail.
    let _ = ethernet::Repr { dst: SWITCH_MAC, src: mac(number), tags: [None; 2], ethertype: ethernet::IPV4 }
        .emit(&mut frame);
    let _ = ipv4::Repr::udp(*source.ip(), setup.address, 0, 64, udp_len).emit(&mut frame[14..]);
    let _ = udp::Repr { src_port: source.port(), dst_port: AGGREGATION_PORT, payload_len: payload.len() }
        .emit(&mut frame[14 + ipv4::HEADER_LEN..]);
    frame.extend_from_slice(payload);
    frame
}

fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, number as u8]
}
