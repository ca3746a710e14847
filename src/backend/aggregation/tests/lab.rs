//! A job in a bad network: real switch, real function, real workers, and an oracle that looks at every pass.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddrV4};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::oracle::Oracle;
use crate::dataplane::{HeapFrames, Nanos, NoTrace, PortConfig, PortId, Switch, SwitchConfig};
use crate::functions::serene::controller::{Command, Controller, Outcome};
use crate::functions::serene::{Guards, Job, Late, Quorum, Serene, SereneConfig, Strategy};
use crate::wire::aggregation::{Packet, Repr};
use crate::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};
use crate::worker::{Config, Event, Report, Worker};

pub const JOB: u8 = 1;
pub const LANES: usize = 8;
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const SERVICE_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];
const PAYLOAD_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Time between two steps.
const STEP_NS: Nanos = 100_000;
/// Steps that a packet may be held up.
const HELD_STEPS: u64 = 400;

/// A seeded stream.
pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(ChaCha8Rng::seed_from_u64(seed))
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end.max(1)
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// What the network does to packets, per mille.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    /// Takes up to 8 steps instead of one.
    pub reordering: u64,
    /// Is held up for as much as [`HELD_STEPS`].
    pub hold: u64,
}

/// Any strategy that this many workers may have.
fn random_strategy(dice: &mut Dice, members: u8) -> Strategy {
    let late = if dice.chance(500) { Late::Drop } else { Late::Return };
    match dice.below(5) {
        0 => Strategy::Bsp,
        1 => Strategy::Partial { k: Quorum::Exactly(members - 1 - dice.below(u64::from(members - 1)) as u8), late },
        2 => Strategy::Ssp { slack: 1 + dice.below(5) as u8 },
        3 => Strategy::Timed { deadline_ns: STEP_NS * (5 + dice.below(100)), kmin: Quorum::Exactly(1), late },
        _ => Strategy::Asp,
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub members: u8,
    pub segments: u32,
    pub start: Strategy,
    pub faults: Faults,
    /// Steps between two wishes for another strategy; 0 for none.
    pub swap_every: u64,
    /// Steps between two restarts of a worker; 0 for none.
    pub restart_every: u64,
    /// Steps between two workers that leave or die, and come back later; 0 for none.
    pub absence_every: u64,
    /// Whether several may be gone at a time, even all.
    pub deserted: bool,
    /// Steps with faults, swaps, restarts and absences.
    pub turmoil: u64,
    /// Rounds that every worker does afterwards.
    pub calm_rounds: u32,
    pub guards: Guards,
    pub by_greatest_next_round: bool,
}

impl Setup {
    /// Two to four workers with one to three segments in a network at its worst, all by the seed.
    pub fn random(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x5e7e);
        let faults = Faults {
            loss: dice.below(200),
            duplication: dice.below(100),
            reordering: dice.below(500),
            hold: dice.below(10),
        };
        let members = 2 + dice.below(3) as u8;
        Setup {
            seed,
            members,
            segments: 1 + dice.below(3) as u32,
            start: random_strategy(&mut dice, members),
            faults,
            swap_every: 100 + dice.below(300),
            restart_every: 500 + dice.below(2000),
            absence_every: 0,
            deserted: false,
            turmoil: 6000,
            calm_rounds: 10,
            guards: Guards::ALL,
            by_greatest_next_round: false,
        }
    }

    /// A calm run of one strategy.
    pub fn of(seed: u64, members: u8, segments: u32, start: Strategy, faults: Faults) -> Self {
        Setup { start, faults, members, segments, swap_every: 0, restart_every: 0, turmoil: 0, ..Setup::random(seed) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Switch(PortId),
    Worker(u8),
    Controller,
}

/// When it arrives, its number, where, what.
type Flight = (u64, u64, To, Vec<u8>);

struct Host {
    worker: Worker,
    /// It is gone, and comes back then.
    absent_until: Option<u64>,
    /// Computes until then.
    busy_until: u64,
    /// Steps that it computes at most.
    pace: u64,
    reports: Vec<Report>,
}

/// See the file's head.
pub struct Lab {
    pub setup: Setup,
    pub switch: Switch<(Serene,), Vec<u8>>,
    pub oracle: Oracle,
    pub controller: Controller,
    pub restarts: u64,
    pub absences: u64,
    /// The sum of all that workers began to push.
    pub pushed: Vec<i32>,
    hosts: Vec<Host>,
    dice: Dice,
    faults: Faults,
    step: u64,
    /// Packets by when they arrive.
    flights: BinaryHeap<Reverse<Flight>>,
    flights_ever: u64,
}

fn address(worker: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker + 1), 7001)
}

fn frame(src_mac: [u8; 6], source: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; PAYLOAD_AT];
    let ethernet = ethernet::Repr { dst: SERVICE_MAC, src: src_mac, tags: [None; 2], ethertype: ethernet::IPV4 };
    ethernet.emit(&mut bytes).expect("it fits");
    let ip = ipv4::Repr::udp(*source.ip(), SERVICE, 0, 64, udp::HEADER_LEN + payload.len());
    ip.emit(&mut bytes[ethernet::HEADER_LEN..]).expect("it fits");
    udp::Repr { src_port: source.port(), dst_port: AGGREGATION_PORT, payload_len: payload.len() }
        .emit(&mut bytes[PAYLOAD_AT - udp::HEADER_LEN..])
        .expect("it fits");
    bytes.extend(payload);
    bytes
}

impl Lab {
    pub fn new(setup: Setup) -> Self {
        let mut dice = Dice::new(setup.seed);
        let cpu = PortId::from(setup.members);
        let config = SereneConfig { address: SERVICE, mac: SERVICE_MAC, cpu_port: Some(cpu), incarnation: 77 };
        let mut serene = Serene::new(config);
        let members = (0..setup.members).map(address).collect();
        let job = Job {
            id: JOB,
            members,
            segments: setup.segments,
            lanes: LANES as u16,
            scale_log2: 24,
            start: setup.start,
            policies: Vec::new(),
        };
        serene.add_job(&job).expect("a sound job");
        serene.set_guards(JOB, setup.guards);
        let port =
            PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault: None };
        let ports = vec![port; usize::from(cpu) + 1];
        let switch = SwitchConfig { buffer_bytes: 1 << 22, seed: 1, ports };
        let mut lab = Lab {
            switch: Switch::new(&switch, (serene,)),
            oracle: Oracle::default(),
            controller: Controller::new(&config, &job),
            restarts: 0,
            absences: 0,
            pushed: vec![0; setup.segments as usize * LANES],
            hosts: Vec::new(),
            faults: setup.faults,
            step: 10_000,
            flights: BinaryHeap::new(),
            flights_ever: 0,
            setup,
            dice: Dice::new(0),
        };
        for worker in 0..lab.setup.members {
            let worker = lab.process(worker, &mut dice);
            lab.hosts.push(Host {
                worker,
                absent_until: None,
                busy_until: 0,
                pace: 1 + dice.below(60),
                reports: Vec::new(),
            });
        }
        lab.dice = dice;
        lab
    }

    /// A new process for a rank.
    fn process(&self, worker: u8, dice: &mut Dice) -> Worker {
        let mut config = Config::new(JOB, worker, self.setup.segments, LANES, dice.below(u64::from(u32::MAX)) as u32);
        config.by_greatest_next_round = self.setup.by_greatest_next_round;
        Worker::new(config, self.now()).expect("a sound configuration")
    }

    fn now(&self) -> Nanos {
        self.step * STEP_NS
    }

    pub fn serene(&self) -> &Serene {
        &self.switch.functions().0
    }

    /// Swaps that were completed.
    pub fn swaps(&self) -> usize {
        self.controller.swaps().filter(|swap| swap.outcome == Outcome::Stable).count()
    }

    /// Times that a boundary was refused.
    pub fn refusals(&self) -> u64 {
        self.controller.swaps().map(|swap| u64::from(swap.naks)).sum()
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.step - 10_000
    }

    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.hosts.iter().map(|host| &host.worker)
    }

    pub fn reports(&self, worker: usize) -> &[Report] {
        &self.hosts[worker].reports
    }

    /// Runs the turmoil, then lets every worker do its calm rounds without faults.
    ///
    /// # Errors
    /// The first violation that the oracle sees, or that somebody is stuck.
    pub fn run(&mut self) -> Result<(), String> {
        while self.steps() < self.setup.turmoil {
            self.take_step(u32::MAX)?;
            if self.setup.swap_every > 0 && self.steps().is_multiple_of(self.setup.swap_every) {
                let strategy = random_strategy(&mut self.dice, self.setup.members);
                self.controller.swap(self.now(), strategy);
            }
            if self.setup.restart_every > 0 && self.steps().is_multiple_of(self.setup.restart_every) {
                let rank = self.dice.below(self.hosts.len() as u64) as u8;
                self.restart(rank);
            }
            if self.setup.absence_every > 0 && self.steps().is_multiple_of(self.setup.absence_every) {
                self.absent();
            }
        }
        if self.setup.turmoil > 0 {
            self.faults = Faults::default();
        }
        let last = self.workers().map(Worker::round).max().unwrap_or(0) + self.setup.calm_rounds;
        let limit = self.step + 20_000 + 2000 * u64::from(self.setup.calm_rounds);
        while self.workers().any(|worker| worker.round() < last) {
            // Nobody stops before all have begun: who joins at the boundary of a swap needs the others to get there.
            let all_have_begun = self.workers().all(|worker| worker.round() > 0);
            self.take_step(if all_have_begun { last } else { u32::MAX })?;
            if self.step > limit {
                let rounds: Vec<u32> = self.workers().map(Worker::round).collect();
                let (job, workers) = (self.serene().job(JOB), self.workers().collect::<Vec<_>>());
                return Err(format!("I5: stuck at rounds {rounds:?} of {last}: {job:?}\n{workers:#?}"));
            }
        }
        Ok(())
    }

    fn restart(&mut self, rank: u8) {
        let mut dice = Dice::new(self.dice.below(u64::MAX));
        let worker = self.process(rank, &mut dice);
        let host = &mut self.hosts[usize::from(rank)];
        (host.worker, host.absent_until) = (worker, None);
        self.restarts += 1;
    }

    /// One leaves or dies, unless another is gone or not yet let in again.
    fn absent(&mut self) {
        let status = self.controller.status();
        let complete =
            status.workers.iter().all(|worker| worker.live) && status.in_force.members == status.wanted.members;
        let away = |host: &Host| host.absent_until.is_some() || host.worker.round() == 0;
        if !self.setup.deserted && (!complete || self.hosts.iter().any(away)) {
            return;
        }
        let (rank, now) = (self.dice.below(self.hosts.len() as u64) as u8, self.now());
        let host = &mut self.hosts[usize::from(rank)];
        if host.absent_until.is_some() {
            return;
        }
        if self.dice.chance(500) {
            host.worker.leave(now);
        } else {
            host.absent_until = Some(self.step + 100 + self.dice.below(1000));
            self.controller.drop_member(now, rank);
        }
        self.absences += 1;
    }

    fn come_back(&mut self) {
        let back = |host: &Host| host.absent_until.is_some_and(|until| until <= self.step);
        if let Some(rank) = self.hosts.iter().position(back) {
            self.restart(rank as u8);
        }
    }

    fn take_step(&mut self, last: u32) -> Result<(), String> {
        self.step += 1;
        while self.flights.peek().is_some_and(|flight| flight.0.0 <= self.step) {
            let Some(Reverse((_, _, to, bytes))) = self.flights.pop() else { break };
            match to {
                To::Switch(port) => self.enter_switch(port, bytes)?,
                To::Worker(worker) => {
                    let now = self.now();
                    self.hosts[usize::from(worker)].worker.handle(now, &bytes[PAYLOAD_AT..]);
                }
                To::Controller => self.controller.handle_packet(self.step * STEP_NS, &bytes),
            }
        }
        self.control();
        self.come_back();
        self.work(last)
    }

    fn control(&mut self) {
        let now = self.now();
        while let Some(digest) = self.switch.functions_mut().0.pop_digest() {
            self.controller.handle_digest(now, &digest);
        }
        let mut commands = Vec::new();
        self.controller.poll(now, &mut commands);
        for command in commands {
            match command {
                Command::Rule { job, bank, rule } => self.switch.functions_mut().0.set_rule(job, bank, rule),
                Command::Regroup { job } => {
                    let replicas = self.serene().replicas(job);
                    self.switch.set_group(job.into(), &replicas);
                }
                Command::Inject(frame) => self.fly(To::Switch(self.setup.members.into()), frame),
            }
        }
    }

    fn work(&mut self, last: u32) -> Result<(), String> {
        let now = self.now();
        for rank in 0..self.hosts.len() {
            let mut dice = Dice::new(self.dice.below(u64::MAX));
            let Host { worker, absent_until, busy_until, pace, reports } = &mut self.hosts[rank];
            if absent_until.is_some() {
                continue;
            }
            match worker.poll_event() {
                Some(Event::Failed(failure)) => return Err(format!("worker {rank}: {failure}")),
                Some(Event::Round(report)) => {
                    reports.push(report);
                    *busy_until = self.step + dice.below(*pace);
                }
                Some(Event::Left) => *absent_until = Some(self.step + 100 + dice.below(1000)),
                _ => {}
            }
            if worker.is_ready() && self.step >= *busy_until && worker.round() < last {
                // Never 0, so that it shows whether it was counted.
                let value = |_| 1 + dice.below(1 << 20) as i32;
                let values: Vec<i32> = (0..worker.config().capacity()).map(value).collect();
                worker.begin_quantised(now, &values).map_err(|error| error.to_string())?;
                self.pushed.iter_mut().zip(&values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
            }
            let mut buffer = [0; 32 + 4 * LANES];
            while let Some(len) = self.hosts[rank].worker.poll_transmit(now, &mut buffer) {
                let mac = [0x02, 0, 0, 0, 0, rank as u8 + 1];
                let bytes = frame(mac, address(rank as u8), &buffer[..len]);
                self.fly(To::Switch(rank as PortId), bytes);
            }
        }
        Ok(())
    }

    /// Puts a packet into the network.
    fn fly(&mut self, to: To, bytes: Vec<u8>) {
        let copies = 1 + u64::from(self.dice.chance(self.faults.duplication));
        for _ in 0..copies {
            if self.dice.chance(self.faults.loss) {
                continue;
            }
            let steps = match () {
                () if self.dice.chance(self.faults.hold) => self.dice.below(HELD_STEPS),
                () if self.dice.chance(self.faults.reordering) => self.dice.below(8),
                () => 0,
            };
            self.flights_ever += 1;
            self.flights.push(Reverse((self.step + 1 + steps, self.flights_ever, to, bytes.clone())));
        }
    }

    fn enter_switch(&mut self, port: PortId, bytes: Vec<u8>) -> Result<(), String> {
        let now = self.now();
        let packet = Packet::new_checked(&bytes[PAYLOAD_AT..]).map_err(|error| error.to_string())?;
        let (request, lanes) = (Repr::parse(&packet), packet.lanes().collect::<Vec<_>>());
        let before = self.oracle.look(self.serene(), &request);
        self.switch.receive(port, now, bytes, &mut HeapFrames, &mut NoTrace);
        let mut answers = Vec::new();
        for port in 0..=PortId::from(self.setup.members) {
            while let Some(departure) = self.switch.dequeue(port, now, &mut HeapFrames, &mut NoTrace) {
                answers.push((port, departure.frame));
            }
        }
        if !self.switch.counters().conservation.holds() {
            return Err("a packet was not accounted for".into());
        }
        let seen: Vec<Repr> = answers
            .iter()
            .map(|(_, bytes)| Packet::new_checked(&bytes[PAYLOAD_AT..]).map(|packet| Repr::parse(&packet)))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        self.oracle.judge(&self.switch.functions().0, &request, &lanes, before, &seen)?;
        for (port, bytes) in answers {
            let to = if port == PortId::from(self.setup.members) { To::Controller } else { To::Worker(port as u8) };
            self.fly(to, bytes);
        }
        Ok(())
    }
}
