//! What is trained, by whom, with which strategies, and when one of them straggles.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::{Context, Result};

use crate::backend::afxdp::Aggregation;
use crate::cli::demo::lab::Lab;
use crate::cli::train::coordinator::Limits;
use crate::cli::train::data::{Data, Source};
use crate::cli::train::order::{Order, Task};
use crate::cli::train::patterns;
use crate::control::serene::JobFile;
use crate::dataplane::{MacAddress, Nanos, PortConfig, SwitchConfig};
use crate::functions::serene::Late;
use crate::training::Stragglers;
use crate::wire::AGGREGATION_PORT;

/// Address that the switch aggregates at. No host of the lab has it.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 255, 254);
const SERVICE_MAC: MacAddress = [2, 0, 0, 0, 255, 254];
/// UDP port of the workers.
const WORKER_PORT: u16 = 7001;
/// The job's number.
const JOB: u8 = 1;
/// Values of a packet.
const LANES: usize = 256;
/// Hidden units: a network small enough for two processors.
const HIDDEN: usize = 32;
/// Samples of a worker's minibatch, and learning rate: with four workers, those of the published Serene experiments.
const BATCH: usize = 64;
const LEARNING_RATE: f32 = 0.04;
/// Rounds of the gate before any timing.
pub const GATE_ROUNDS: u32 = 100;
/// A run that has not reached its target goes on, for as long again at most.
const PATIENCE: u64 = 2;
/// How often the model is evaluated.
pub const EVALUATE_EVERY_NS: Nanos = 250_000_000;

/// How the workers keep step, and through what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Arm {
    /// All wait for all
    Bsp,
    /// Bsp, and while one straggles, nobody waits for the last
    Dynamic,
    /// Nobody waits for the last
    Partial,
    /// Nobody gets more than three rounds ahead
    Ssp,
    /// Nobody waits
    Asp,
    /// All wait for all, through a parameter server in a namespace of its own instead of the switch's pipeline
    Ps,
}

impl Arm {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Bsp => "bsp",
            Arm::Dynamic => "dynamic",
            Arm::Partial => "partial",
            Arm::Ssp => "ssp",
            Arm::Asp => "asp",
            Arm::Ps => "ps",
        }
    }
}

/// Who straggles, by name. The times follow from the length of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// Nobody
    None,
    /// Any worker, 15 % of its rounds, 0.5 to 2 times longer (Serene's)
    Transient,
    /// Worker 0, three times as long, always
    Persistent,
    /// Worker 0, four times as long, in the middle half of the run
    Phase,
    /// Worker 0 stops for 5 s after a quarter of the run
    Pause,
}

/// The scenario of all runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Workers.
    pub workers: u8,
    /// Computation of a healthy worker's iteration.
    pub padding_ns: Nanos,
    /// Length of a run.
    pub run_ns: Nanos,
    /// Who straggles.
    pub pattern: Pattern,
    /// What becomes of late contributions in the arms that have some.
    pub late: Late,
    /// What the network learns.
    pub source: Source,
    /// Packets of the network's vector; see [`Scenario::learning`].
    pub segments: u32,
}

impl Scenario {
    /// With as many segments as the network has on the source's data.
    pub fn learning(self, data: &Data) -> Self {
        let parameters = self.task(0).shape(&data.train).parameters();
        Scenario { segments: parameters.div_ceil(LANES) as u32, ..self }
    }

    /// What the workers do.
    pub fn task(&self, seed: u64) -> Task {
        Task {
            job: JOB,
            segments: self.segments,
            lanes: LANES,
            scale_log2: 24,
            workers: self.workers,
            data: self.source.clone(),
            hidden: vec![HIDDEN],
            batch: BATCH,
            learning_rate: LEARNING_RATE,
            padding_ns: self.padding_ns,
            stragglers: self.stragglers(),
            seed,
            rounds: None,
            verify: false,
        }
    }

    /// The gate: as fast as it goes, every sum compared.
    pub fn gate(&self, seed: u64) -> Task {
        Task { padding_ns: 0, stragglers: Stragglers::None, rounds: Some(GATE_ROUNDS), verify: true, ..self.task(seed) }
    }

    fn stragglers(&self) -> Stragglers {
        let quarter = self.run_ns / 4;
        match self.pattern {
            Pattern::None => Stragglers::None,
            Pattern::Transient => Stragglers::SERENE,
            Pattern::Persistent => patterns::PERSISTENT,
            Pattern::Phase => patterns::phase(quarter, 3 * quarter),
            Pattern::Pause => patterns::pause(quarter),
        }
    }

    /// Rounds that workers without a straggler, and without a network, do in half of the run: past the onset of any pattern.
    /// What accuracy a single process has by then is the target of all arms.
    pub fn target_rounds(&self) -> u32 {
        (self.run_ns / 2 / self.padding_ns.max(1)) as u32
    }

    /// The job file of an arm.
    pub fn job_file(&self, arm: Arm) -> String {
        let members: Vec<String> = (0..self.workers).map(|worker| format!("\"{}\"", member(worker))).collect();
        let job = format!(
            "[job]\nid = {JOB}\nmembers = [{}]\nsegments = {}\nlanes = {LANES}\nstart = \"{}\"\n",
            members.join(", "),
            self.segments,
            self.start(arm)
        );
        match arm {
            Arm::Dynamic => format!("{job}{}", self.policies()),
            _ => job,
        }
    }

    /// The strategy that an arm's job starts with, as a job file has it.
    fn start(&self, arm: Arm) -> String {
        match arm {
            Arm::Bsp | Arm::Dynamic | Arm::Ps => "bsp".into(),
            Arm::Partial => self.partial(),
            Arm::Ssp => "ssp(3)".into(),
            Arm::Asp => "asp".into(),
        }
    }

    fn partial(&self) -> String {
        format!("partial(k = n-1, late = {})", self.late)
    }

    /// A straggler is who keeps the others for longer than a healthy computation takes, three rounds in a row; it is none any
    /// more when it has kept step for twenty. Who says nothing at all is gone, until it joins again.
    fn policies(&self) -> String {
        let (padding_ms, partial) = (self.padding_ns as f64 / 1e6, self.partial());
        format!(
            r#"
[[policy]]
in = "bsp"
when = "span > {padding_ms}ms for 3 rounds"
then = "{partial}"
cooldown = "20 rounds"

[[policy]]
in = "partial"
when = "lag_max <= 1 for 20 rounds"
then = "bsp"
cooldown = "20 rounds"

[[policy]]
when = "silent(worker) > 2s"
then = "drop_member(worker)"
"#
        )
    }

    /// The switch's aggregation service with the arm's job; none where a parameter server does the work.
    ///
    /// # Errors
    /// If the control language refuses the job file.
    pub fn aggregation(&self, arm: Arm) -> Result<Option<Aggregation>> {
        if arm == Arm::Ps {
            return Ok(None);
        }
        let name = format!("job file of {}", arm.name());
        let job = JobFile::parse(&self.job_file(arm), &name).context("the demo's own job file is refused")?.job;
        Ok(Some(Aggregation { address: SERVICE, mac: SERVICE_MAC, control_fault: None, jobs: vec![job] }))
    }

    /// When a run ends: without a target when its rounds are over; with one at its length, and later if the target is not
    /// reached yet.
    pub fn limits(&self, target: Option<f64>) -> Limits {
        match target {
            None => Limits::default(),
            Some(_) => Limits { at_least_ns: self.run_ns, at_most_ns: Some(PATIENCE * self.run_ns), accuracy: target },
        }
    }

    /// The switch: a port for each worker and one for the parameter server.
    pub fn switch(&self, seed: u64) -> SwitchConfig {
        let port = |host: u8| PortConfig {
            name: format!("p{host}"),
            rate_bps: None,
            buffer_bytes: 8 << 20,
            red: None,
            pfc: None,
            fault: None,
        };
        SwitchConfig { buffer_bytes: 32 << 20, seed, ports: (1..=self.hosts()).map(port).collect() }
    }

    /// Hosts of the lab.
    pub fn hosts(&self) -> u8 {
        self.workers + 1
    }

    /// Where the parameter server listens: the last host.
    pub fn parameter_server(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, self.hosts()), AGGREGATION_PORT)
    }

    /// One order a worker. The last one evaluates: no pattern but `transient` makes it slow.
    pub fn orders(&self, lab: &Lab, task: &Task, arm: Arm) -> Vec<Order> {
        let switch = match arm {
            Arm::Ps => self.parameter_server(),
            _ => SocketAddrV4::new(SERVICE, AGGREGATION_PORT),
        };
        let order = |worker: u8| Order {
            task: task.clone(),
            worker,
            netns: Some(lab.server_netns(worker + 1)),
            local: member(worker),
            switch,
            evaluate_every_ns: (worker + 1 == self.workers && !task.verify).then_some(EVALUATE_EVERY_NS),
        };
        (0..self.workers).map(order).collect()
    }
}

/// A worker's address: host `worker + 1` of the lab.
fn member(worker: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker + 1), WORKER_PORT)
}
