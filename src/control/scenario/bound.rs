//! How fast a job can be at best: if it had the fabric for itself and no switch ever marked.
//!
//! The larger of two lower bounds:
//!
//! * *Ring*: a rank sends its step s when it has sent step s-1 and received that of the rank before,
//!   `begin(r, s) = max(begin(r, s-1) + w(r), begin(r-1, s-1) + l(r-1))`, where w is the time that a step's frames take on
//!   the sender's NIC and l the time until the last has arrived, store and forward at every hop. From each rank's own start,
//!   late or not, and not before the next rank, which must grant. With equal links it is `2(n-1) l` for an all-reduce. Of equal-cost paths the fastest counts.
//! * *Links*: what the job sends over its busiest link, over the link's rate. Where ECMP picks uplinks by a hash, all uplinks
//!   of a leaf count as one.
//!
//! Both leave out acknowledgements, clear-to-send and what other jobs send. So the bound of a healthy job beside stragglers
//! is perfect alignment: the shared links are its own whenever it can use them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::backend::sim::{Fabric, Job, Paths, Setup, Topology};
use crate::dataplane::Nanos;

/// Headers and ICRC of a data frame: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
const OVERHEAD_BYTES: u32 = 58;
/// What frames of a message have besides: RETH 16, immediate 4.
const MESSAGE_BYTES: u32 = 20;

/// By class: the mean over its jobs of the time that each needs at least.
pub fn bounds_ns(setup: &Setup) -> BTreeMap<String, Nanos> {
    let mut classes: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for job in &setup.jobs {
        let (sum, count) = classes.entry(job.class.clone()).or_default();
        *sum += ring_ns(&setup.fabric, job).max(links_ns(&setup.fabric, job));
        *count += 1;
    }
    classes.into_iter().map(|(class, (sum, count))| (class, (sum / f64::from(count)) as Nanos)).collect()
}

/// A step's frames over links of these rates: time on the first, and until the last frame has left the last.
fn step_ns(job: &Job, rates: &[f64], delay_ns: f64) -> (f64, f64) {
    let frames = job.chunk_bytes.div_ceil(job.path_mtu);
    let full = f64::from(job.path_mtu + OVERHEAD_BYTES) * 8e9;
    let last = f64::from(
        job.chunk_bytes - (frames - 1) * job.path_mtu + OVERHEAD_BYTES + MESSAGE_BYTES * job.requests_per_step,
    ) * 8e9;
    // All frames but the last are alike: they follow each other at the pace of the slowest link so far.
    let (mut slowest, mut first_at, mut last_at, mut on_first) = (f64::INFINITY, 0.0, 0.0f64, 0.0);
    for (hop, &bps) in rates.iter().enumerate() {
        slowest = slowest.min(bps);
        first_at += full / bps;
        let before_last = if frames > 1 { first_at + f64::from(frames - 2) * full / slowest } else { 0.0 };
        last_at = before_last.max(last_at) + last / bps;
        if hop == 0 {
            on_first = last_at;
        }
        first_at += delay_ns;
        last_at += delay_ns;
    }
    (on_first, last_at)
}

fn ring_ns(fabric: &Fabric, job: &Job) -> f64 {
    let n = job.hosts.len();
    let (on_nic, latency): (Vec<f64>, Vec<f64>) =
        (0..n).map(|rank| step_ns(job, &path_bps(fabric, job, rank), fabric.delay_ns as f64)).unzip();
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

/// Rates of the links from a rank to the next; where there is a choice, of the best.
fn path_bps(fabric: &Fabric, job: &Job, rank: usize) -> Vec<f64> {
    let (from, to) = edge(job, rank);
    let mut rates = vec![nic_bps(fabric, job, rank)];
    let (leaf, to_leaf) = (fabric.topology.leaf(from), fabric.topology.leaf(to));
    if leaf != to_leaf {
        let pair = |uplink: u32| [uplink_bps(fabric, leaf, uplink), uplink_bps(fabric, to_leaf, uplink)];
        let least = |pair: &[f64; 2]| pair[0].min(pair[1]);
        let pairs = uplinks(fabric, to).map(pair);
        rates.extend(pairs.max_by(|a, b| least(a).total_cmp(&least(b))).into_iter().flatten());
    }
    rates.push(fabric.host_bps as f64);
    rates
}

/// Where bytes of a job pass.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Nic(usize),
    /// Leaf, and which uplinks.
    Up(u32, u32, u32),
    Down(u32, u32, u32),
    Port(u32),
}

fn links_ns(fabric: &Fabric, job: &Job) -> f64 {
    let n = job.hosts.len() as u32;
    let frames = job.chunk_bytes.div_ceil(job.path_mtu);
    let step_bytes = job.chunk_bytes + frames * OVERHEAD_BYTES + MESSAGE_BYTES * job.requests_per_step;
    let steps = f64::from(job.collective.steps(n)) * f64::from(job.iterations) * f64::from(job.channels);
    let edge_bits = steps * f64::from(step_bytes) * 8.0;
    let mut busy_ns: BTreeMap<Link, f64> = BTreeMap::new();
    for rank in (0..job.hosts.len()).filter(|&rank| job.collective.sends(rank as u32, n)) {
        let (from, to) = edge(job, rank);
        let nic = if fabric.shared_nic { from as usize } else { rank };
        let mut links = vec![(Link::Nic(nic), nic_bps(fabric, job, rank)), (Link::Port(to), fabric.host_bps as f64)];
        let (leaf, to_leaf) = (fabric.topology.leaf(from), fabric.topology.leaf(to));
        if leaf != to_leaf {
            let range = uplinks(fabric, to);
            let bps = |leaf: u32| range.clone().map(|uplink| uplink_bps(fabric, leaf, uplink)).sum();
            links.push((Link::Up(leaf, range.start, range.end), bps(leaf)));
            links.push((Link::Down(to_leaf, range.start, range.end), bps(to_leaf)));
        }
        for (link, bps) in links {
            *busy_ns.entry(link).or_default() += edge_bits / bps * 1e9;
        }
    }
    busy_ns.into_values().fold(0.0, f64::max)
}

/// Hosts of a rank and the next.
fn edge(job: &Job, rank: usize) -> (u32, u32) {
    (job.hosts[rank], job.hosts[(rank + 1) % job.hosts.len()])
}

fn nic_bps(fabric: &Fabric, job: &Job, rank: usize) -> f64 {
    job.nic_bps[rank].min(fabric.host_bps) as f64
}

/// The uplinks that a packet to a host on another leaf may take.
fn uplinks(fabric: &Fabric, to: u32) -> Range<u32> {
    let all = match fabric.topology {
        Topology::Single { .. } => 0,
        Topology::LeafSpine { spines, .. } => spines,
        Topology::FatTree { k } => k / 2,
    };
    match fabric.paths {
        Paths::CollisionFree if all > 0 => to % all..to % all + 1,
        _ => 0..all,
    }
}

fn uplink_bps(fabric: &Fabric, leaf: u32, uplink: u32) -> f64 {
    let slow = fabric.slow_links.iter().find(|slow| (slow.leaf, slow.uplink) == (leaf, uplink));
    slow.map_or(fabric.fabric_bps, |slow| slow.bps) as f64
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;
    use crate::backend::sim;
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
            ("rr", &["job.chunk=400KB", "fabric.paths=per-flow"], 10.0),
            ("rr", &["job.chunk=400KB", "job.straggler.nic_percent=5", "job.straggler.ranks=[5]"], 0.005),
            ("rr", &["job.chunk=400KB", "job.iterations=3", "job.compute=1ms"], 0.005),
            ("straggler-3", &["job.chunk=400KB"], 10.0),
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
