//! How fast a job can be at best: if it had the fabric for itself and no switch ever marked.
//!
//! The larger of two lower bounds:
//!
//! * *Ring*: a rank sends its step s when it has sent step s-1 and received that of the rank before,
//!   `begin(r, s) = max(begin(r, s-1) + w(r), begin(r-1, s-1) + l(r-1))`, where w is the time that a step's frames take on
//!   the sender's NIC and l the time until the last has arrived, store and forward at every hop. From each rank's own start,
//!   late or not, and not before the next rank, which must grant. With equal links it is `2(n-1) l` for an all-reduce.
//! * *Links*: what the job sends over its busiest link, over the link's rate, on the paths that the switches choose. Where
//!   paths change from step to step, links between switches do not count.
//!
//! Both leave out acknowledgements, clear-to-send and what other jobs send. So the bound of a healthy job beside stragglers
//! is perfect alignment: the shared links are its own whenever it can use them.

use std::collections::BTreeMap;

use crate::backend::sim::{self, Fabric, Job, Model, Route, Setup};
use crate::dataplane::{Nanos, PortId};

/// Bytes of a step's frames on one channel: all alike but the last.
#[derive(Clone, Copy)]
struct Step {
    frames: u32,
    full_bytes: u32,
    last_bytes: u32,
}

impl Step {
    fn of(model: Model, job: &Job) -> Self {
        // Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4; each message RETH 16 and immediate 4. ASTRA-sim has its own.
        let (payload_bytes, header_bytes, message_bytes) = match model {
            Model::Roce => (job.path_mtu, 58, 20 * job.requests_per_step),
            Model::Astra(_) => (1000, 36, 0),
        };
        let frames = job.chunk_bytes.div_ceil(payload_bytes);
        let last_bytes = job.chunk_bytes - (frames - 1) * payload_bytes + header_bytes + message_bytes;
        Step { frames, full_bytes: payload_bytes + header_bytes, last_bytes }
    }

    fn bits(self) -> f64 {
        (f64::from(self.frames - 1) * f64::from(self.full_bytes) + f64::from(self.last_bytes)) * 8.0
    }
}

/// By class: the mean over its jobs of the time that each needs at least.
pub fn bounds_ns(setup: &Setup) -> BTreeMap<String, Nanos> {
    let mut classes: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    // A setup that has none for a reason cannot be run either, and says so there.
    let routes = sim::routes(setup).unwrap_or_default();
    for (index, job) in setup.jobs.iter().enumerate() {
        let (sum, count) = classes.entry(job.class.clone()).or_default();
        let of_job: Vec<&Route> = routes.iter().filter(|route| route.job == index).collect();
        let step = Step::of(setup.model, job);
        *sum += ring_ns(&setup.fabric, job, step, &of_job).max(links_ns(&setup.fabric, job, step, &of_job));
        *count += 1;
    }
    classes.into_iter().map(|(class, (sum, count))| (class, (sum / f64::from(count)) as Nanos)).collect()
}

/// A step's frames over links of these rates: time on the first, and until the last frame has left the last.
fn step_ns(step: Step, rates: &[f64], delay_ns: f64) -> (f64, f64) {
    let (full, last) = (f64::from(step.full_bytes) * 8e9, f64::from(step.last_bytes) * 8e9);
    // All frames but the last are alike: they follow each other at the pace of the slowest link so far.
    let (mut slowest, mut first_at, mut last_at, mut on_first) = (f64::INFINITY, 0.0, 0.0f64, 0.0);
    for (hop, &bps) in rates.iter().enumerate() {
        slowest = slowest.min(bps);
        first_at += full / bps;
        let before_last = if step.frames > 1 { first_at + f64::from(step.frames - 2) * full / slowest } else { 0.0 };
        last_at = before_last.max(last_at) + last / bps;
        if hop == 0 {
            on_first = last_at;
        }
        first_at += delay_ns;
        last_at += delay_ns;
    }
    (on_first, last_at)
}

fn ring_ns(fabric: &Fabric, job: &Job, step: Step, routes: &[&Route]) -> f64 {
    let n = job.hosts.len();
    let (on_nic, latency): (Vec<f64>, Vec<f64>) =
        (0..n).map(|rank| step_ns(step, &path_bps(fabric, job, rank, routes), fabric.delay_ns as f64)).unzip();
    let senders: Vec<usize> = (0..n).filter(|&rank| job.collective.sends(rank as u32, n as u32)).collect();
    let mut ready: Vec<f64> = job.start_at.iter().map(|&at| at as f64).collect();
    let start = ready.iter().copied().fold(f64::INFINITY, f64::min);
    let mut finish = start;
    for _ in 0..job.iterations {
        let (mut free, mut received) = (vec![0.0f64; n], ready.clone());
        for _ in 0..job.collective.steps(n as u32) {
            let before = received.clone();
            for &rank in &senders {
                let next = (rank + 1) % n;
                let due = if job.collective.depends() { before[rank] } else { ready[rank] };
                let begin = free[rank].max(due).max(ready[next]);
                free[rank] = begin + on_nic[rank];
                received[next] = begin + latency[rank];
            }
        }
        finish = received.iter().copied().fold(finish, f64::max);
        ready = received.iter().map(|at| at + job.compute_ns as f64).collect();
    }
    finish - start
}

/// Rates of the links from a rank to the next: of its first channel.
fn path_bps(fabric: &Fabric, job: &Job, rank: usize, routes: &[&Route]) -> Vec<f64> {
    let mut rates = vec![nic_bps(fabric, job, rank)];
    match routes.get(rank * job.channels as usize) {
        Some(route) => rates.extend(route.hops.iter().map(|hop| hop.bps as f64)),
        None => rates.push(fabric.host_bps as f64),
    }
    rates
}

/// Where bytes of a job pass.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Nic(usize),
    Port(u32, PortId),
}

fn links_ns(fabric: &Fabric, job: &Job, step: Step, routes: &[&Route]) -> f64 {
    let n = job.hosts.len() as u32;
    let steps = f64::from(job.collective.steps(n)) * f64::from(job.iterations);
    let bits = steps * step.bits(); // of a rank on one channel
    let mut busy_ns: BTreeMap<Link, f64> = BTreeMap::new();
    let mut pass = |link: Link, bits: f64, bps: f64| *busy_ns.entry(link).or_default() += bits / bps * 1e9;
    let sends = |rank: usize| job.collective.sends(rank as u32, n);
    for rank in (0..job.hosts.len()).filter(|&rank| sends(rank)) {
        let nic = if fabric.shared_nic { job.hosts[rank] as usize } else { rank };
        pass(Link::Nic(nic), bits * f64::from(job.channels), nic_bps(fabric, job, rank));
    }
    for route in routes.iter().filter(|route| sends(route.rank)) {
        for hop in &route.hops {
            pass(Link::Port(hop.switch, hop.port), bits, hop.bps as f64);
        }
    }
    busy_ns.into_values().fold(0.0, f64::max)
}

fn nic_bps(fabric: &Fabric, job: &Job, rank: usize) -> f64 {
    job.nic_bps[rank].min(fabric.host_bps) as f64
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;
    use crate::roce::dcqcn;

    fn setup(name: &str, changes: &[&str]) -> Setup {
        let mut scenario = Scenario::named(name).unwrap_or_else(|error| panic!("{error}"));
        for change in changes {
            scenario.set(change).unwrap_or_else(|error| panic!("{error}"));
        }
        scenario.setup(1, dcqcn::Parameters::DC55).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    fn close(ns: Nanos, expected: f64) {
        assert!((ns as f64 / expected - 1.0).abs() < 1e-4, "{ns} ns is not {expected:.0}");
    }

    /// 1 MB in frames of 4096 + 58 bytes, the last with 20 more, at 10 Gbit/s.
    const MEGABYTE_NS: f64 = (1e6 + 245.0 * 58.0 + 20.0) * 0.8;
    const FRAME_NS: f64 = 4154.0 * 0.8;

    #[test]
    fn a_ring_takes_its_steps_with_a_frame_and_a_delay_at_each_hop() {
        // The slowest edges cross the spine, 4 links; but a chunk goes round, and 12 of 16 edges have 2 links. Going round
        // once and 14/16 of another time passes 4 + 3 or 4 + 4 of the long ones.
        let bounds = bounds_ns(&setup("clean", &[]));
        let (long, short) = (MEGABYTE_NS + 3.0 * FRAME_NS + 4_000.0, MEGABYTE_NS + FRAME_NS + 2_000.0);
        close(bounds["all"], 8.0 * long + 22.0 * short);
        close(bounds_ns(&setup("rr", &[]))["all"], 30.0 * long);
    }

    #[test]
    fn a_slow_nic_sets_the_pace_of_its_job_alone() {
        let bounds = bounds_ns(&setup("straggler-3", &[]));
        let step_ns = (2e6 + 489.0 * 58.0 + 20.0) * 0.8;
        close(bounds["healthy"], 14.0 * (step_ns + 3.0 * FRAME_NS + 4_000.0));
        assert!(bounds["straggler"] as f64 > 14.0 * step_ns * 20.0, "{bounds:?}");
        assert!((bounds["straggler"] as f64) < 14.1 * step_ns * 20.0, "{bounds:?}");
    }

    #[test]
    fn a_job_that_collides_with_itself_has_the_bound_of_the_link() {
        let bounds = bounds_ns(&setup("rr", &["fabric.spines=1"]));
        close(bounds["all"], 30.0 * 4.0 * MEGABYTE_NS);
        let bounds = bounds_ns(&setup("rr", &["job.channels=2"]));
        close(bounds["all"], 30.0 * 2.0 * MEGABYTE_NS);
    }

    #[test]
    fn jobs_without_contention_reach_the_bound_and_none_is_faster() {
        for (name, changes, above) in [
            ("clean", &["job.chunk=400KB"][..], 0.005),
            ("rr", &["job.chunk=400KB", "job.jitter=1ms"], 0.005),
            ("rr", &["job.chunk=400KB", "fabric.paths=per-flow"], 0.3),
            ("rr", &["job.chunk=400KB", "job.straggler.nic_percent=5", "job.straggler.ranks=[5]"], 0.005),
            ("rr", &["job.chunk=400KB", "job.iterations=3", "job.compute=1ms"], 0.005),
            ("straggler-3", &["job.chunk=40KB"], 10.0),
            ("astra-single-8", &["job.chunk=200KB"], 0.3), // acknowledges each packet, and waits for it
        ] {
            let setup = setup(name, changes);
            let results = sim::run(&setup).expect("it runs");
            let bounds = bounds_ns(&setup);
            for (class, bound) in bounds {
                let jcts: Vec<f64> = results
                    .jobs
                    .iter()
                    .filter(|job| job.class == class)
                    .map(|job| job.jct_ns().expect("it ends") as f64)
                    .collect();
                let ratio = jcts.iter().sum::<f64>() / jcts.len() as f64 / bound as f64;
                assert!((1.0..=1.0 + above).contains(&ratio), "{name} {changes:?} {class}: {ratio}");
            }
        }
    }
}
