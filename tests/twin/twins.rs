//! The two of them side by side.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use symphony::backend::xdp::{Bench, Kernel, LoadError, Metadata};
use symphony::dataplane::{Bridged, Cx, Function, L3, Nanos, NoBytes, NoTrace, Phv, parse};
use symphony::functions::symphony::{FlowView, Job, Outcomes, Parameters, StepSource, Symphony, edges};
use symphony::wire::Opcode;

/// XDP verdicts.
pub const DROP: u32 = 1;
pub const REDIRECT: u32 = 4;

/// Longer than a test takes.
pub const IDLE_NEVER_NS: Nanos = 1 << 41;

const MAX_FLOWS: u32 = 16384;
const MAX_JOBS: u16 = 1024;

/// Two ranks on 10.1.0.1 and 10.1.0.2, all-reduce, one request a step, never idle.
pub fn job(id: u32) -> Job {
    Job {
        id,
        name: format!("job {id}"),
        ring: vec![IpAddr::from([10, 1, 0, 1]), IpAddr::from([10, 1, 0, 2])],
        step_source: StepSource::Message,
        requests_per_step: 1,
        packets_per_step: None,
        path_mtu: 1024,
        steps_per_collective: 2,
        step_ns: None,
        idle_ns: IDLE_NEVER_NS,
        enabled: true,
    }
}

/// The program on the bench; `None`, and a word on why, without the right to load it.
pub fn bench() -> Option<Bench> {
    match Kernel::load() {
        Ok(kernel) => Some(Bench::new(kernel).expect("AF_XDP is there where XDP is")),
        Err(error @ LoadError::Permission) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub struct Twins {
    pub bench: Bench,
    pub symphony: Symphony,
    /// When the last packet came in.
    pub now: Nanos,
    pass: u64,
    /// Frames that the switch drops before Symphony sees them; the program hands them on.
    runts: u64,
    fed: u64,
}

impl Twins {
    pub fn new() -> Option<Self> {
        // Epochs short enough that tests see some.
        let parameters = Parameters { epoch_ns: 1 << 16, ..Parameters::default() };
        let symphony = Symphony::new(parameters, MAX_FLOWS, MAX_JOBS);
        let mut twins = Twins { bench: bench()?, symphony, now: 0, pass: 0, runts: 0, fed: 0 };
        twins.feed(&[0; 60]); // reads the clock
        Some(twins)
    }

    /// Both get the frame; what they make of it must be the same and is returned.
    #[track_caller]
    pub fn feed(&mut self, frame: &[u8]) -> Metadata {
        let run = self.bench.run(&[], frame).expect("the kernel takes the frame");
        assert_eq!(run.verdict, REDIRECT, "every frame goes to the pipeline");
        assert_eq!(run.frame, frame, "nothing is rewritten");
        let kernel = run.metadata.expect("a redirected frame has metadata");
        self.fed += 1;
        self.now = kernel.received_at;

        let untracked = Bridged { tracked: true, ..Bridged::default() };
        let rust = match parse(frame, 0, self.now) {
            Ok(mut phv) => {
                self.ingress(&mut phv);
                let roce = phv.roce.unwrap_or_default();
                assert!(phv.roce.is_none() || phv.l3 != L3::Other);
                Metadata { received_at: self.now, opcode: roce.opcode, psn: roce.psn, bridged: phv.bridged }
            }
            Err(_) => {
                self.runts += 1;
                Metadata { received_at: self.now, opcode: Opcode(0), psn: 0, bridged: untracked }
            }
        };
        assert_eq!(kernel, rust, "left the program, right the Rust stages, on {frame:02x?}");
        let Bridged { job, flow, .. } = kernel.bridged;
        self.check(job, flow);
        kernel
    }

    fn ingress(&mut self, phv: &mut Phv) {
        self.pass += 1;
        let mut emissions = Vec::new();
        let mut cx =
            Cx { now: self.now, pass: self.pass, trace: &mut NoTrace, emissions: &mut emissions, frame: &mut NoBytes };
        self.symphony.ingress(&mut cx, phv);
    }

    /// The registers of one job and one flow are the same.
    #[track_caller]
    fn check(&self, job: u16, flow: u32) {
        let kernel = &self.bench.kernel;
        assert_eq!(kernel.job_state(job), Some(self.symphony.job_state(job)), "registers of job slot {job}");
        assert_eq!(kernel.flow_state(flow), Some(self.symphony.flow_state(flow)), "registers of flow slot {flow}");
    }

    /// All tables, registers and counters are the same.
    #[track_caller]
    pub fn check_everything(&self) {
        let kernel = &self.bench.kernel;
        for job in 0..MAX_JOBS.min(32) {
            assert_eq!(kernel.job_state(job), Some(self.symphony.job_state(job)), "registers of job slot {job}");
        }
        let flows = kernel.flows();
        let views: Vec<FlowView> = flows.iter().filter_map(|flow| self.view(flow)).collect();
        assert_eq!(views, self.symphony.flows(), "flows by slot");
        for flow in &flows {
            self.check(flow.job, flow.slot);
        }
        let stats = kernel.stats().expect("counters are readable");
        let outcomes = Outcomes { not_roce: stats.outcomes.not_roce - self.runts, ..stats.outcomes };
        assert_eq!(outcomes, self.symphony.outcomes());
        assert_eq!((stats.redirected, stats.cas_lost), (self.fed, 0));
        assert_eq!(stats.drops, []);
    }

    fn view(&self, flow: &symphony::backend::xdp::Flow) -> Option<FlowView> {
        let (job, compiled) = self.symphony.job(flow.job)?;
        let activity = self.bench.kernel.job_state(flow.job)?.activity;
        Some(FlowView::new((&flow.src, &flow.dst, flow.dest_qpn), job.id, &flow.state, compiled, activity))
    }

    pub fn add_job(&mut self, job: &Job) -> u16 {
        let slot = self.symphony.add_job(job, self.now).expect("a good job");
        let (_, compiled) = self.symphony.job(slot).expect("just added");
        self.bench.kernel.install_job(slot, compiled, edges(job), self.now).expect("the maps take it");
        slot
    }

    pub fn remove_job(&mut self, id: u32) {
        let slot = self.symphony.job_slot(id).expect("it was added");
        self.symphony.remove_job(id).expect("it was added");
        self.bench.kernel.remove_job(slot).expect("the maps take it");
    }

    pub fn enable_job(&mut self, id: u32, enabled: bool) {
        self.symphony.enable_job(id, enabled, self.now).expect("it was added");
        let slot = self.symphony.job_slot(id).expect("it was added");
        let (_, compiled) = self.symphony.job(slot).expect("it was added");
        self.bench.kernel.configure_job(slot, compiled, self.now).expect("the maps take it");
    }

    /// Waits until about `ns` after the last packet.
    pub fn pause(&self, ns: Nanos) {
        let start = Instant::now(); // a microsecond or two after that packet
        while start.elapsed().as_nanos() < ns.into() {
            std::hint::spin_loop();
        }
    }

    /// Only between jobs.
    pub fn set_epoch(&mut self, epoch_ns: Nanos) {
        self.symphony.set_parameters(Parameters { epoch_ns, ..Parameters::default() }, self.now);
    }

    /// Forgets flows as if it were so much later.
    pub fn age(&mut self, later: Duration) -> usize {
        let now = self.now + later.as_nanos() as Nanos;
        let aged = self.symphony.age(now);
        assert_eq!(self.bench.kernel.age(now).expect("the maps take it"), aged);
        aged
    }

    /// Makes each pair of addresses in `frames` a ring of two and returns the jobs' numbers.
    pub fn jobs_of(&mut self, frames: &[Vec<u8>], step_source: StepSource, first_id: u32) -> Vec<u32> {
        let address = |bytes| IpAddr::from(bytes).to_canonical();
        let pairs: BTreeSet<[IpAddr; 2]> = frames
            .iter()
            .filter_map(|frame| parse(frame, 0, 0).ok().filter(|phv| phv.roce.is_some()))
            .map(|phv| {
                let mut ends = [address(phv.src), address(phv.dst)];
                ends.sort_unstable();
                ends
            })
            .collect();
        let mut ids = Vec::new();
        for (id, ring) in (first_id..).zip(pairs) {
            let packets_per_step = Some(5);
            self.add_job(&Job { ring: ring.to_vec(), step_source, packets_per_step, idle_ns: 1 << 14, ..job(id) });
            ids.push(id);
        }
        ids
    }
}
