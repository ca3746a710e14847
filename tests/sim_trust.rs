//! Why the simulator's numbers can be trusted: what must come out of it whatever the policy, held against sums done by hand.
//!
//! DCQCN's stages are held beside its code; here is what flows do with it. Gains are in `bench/RESULTS.md`.

use std::thread;

use symphony::backend::sim::{self, Fabric, Job, Model, Results, Setup, Topology};
use symphony::control::scenario::Scenario;
use symphony::dataplane::{Nanos, Pfc};
use symphony::functions::symphony::Parameters;
use symphony::roce::{Collective, dcqcn};

/// A step of a matrix row here: short, so that all rows run in seconds.
const SHORT_STEP: u32 = 128_000;

fn run(setup: &Setup) -> Results {
    sim::run(setup).expect("the setup is sound")
}

/// A row of the matrix with short steps, and what DCQCN it is made for.
fn row(name: &str, seed: u64) -> Setup {
    let mut scenario = Scenario::named(name).expect("it is built in");
    scenario.set(&format!("job.chunk={SHORT_STEP}B")).expect("a step may be short");
    if ["incast", "background"].contains(&name) {
        for often in ["background.mean_gap=300us", "background.until=20ms"] {
            scenario.set(often).expect("there is foreign traffic");
        }
    }
    let control = dcqcn::Parameters::named(scenario.cc()).expect("it is known");
    scenario.setup(seed, control).expect("it is sound")
}

fn with_symphony(setup: Setup) -> Setup {
    Setup { symphony: Some(Parameters::bold()), ..setup }
}

/// The same with switches that pause their neighbours, long before the buffer is full.
fn lossless(mut setup: Setup) -> Setup {
    setup.fabric.pfc = Some(Pfc::fixed(30_000, 20_000, 100_000));
    setup
}

/// Rates in Gbit/s of one-way flows in a window, from when their receivers had each step.
fn rates_gbps(results: &Results, chunk_bytes: u32, window: std::ops::Range<Nanos>) -> Vec<f64> {
    let received = |steps: &[Vec<Nanos>]| steps[1].iter().filter(|at| window.contains(at)).count() as f64;
    let bits = f64::from(chunk_bytes) * 8.0 / (window.end - window.start) as f64;
    results.jobs.iter().map(|job| received(&job.steps) * bits).collect()
}

/// Jain's index: 1 where all have the same, 1/n where one has all.
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

/// `starts.len()` flows from hosts of their own to host 0, each from its own time on.
fn into_one_port(starts: &[Nanos], steps: u32, chunk_bytes: u32) -> Setup {
    let hosts = starts.len() as u32 + 1;
    let flow = |(host, &start): (u32, &Nanos)| Job {
        start_at: vec![start; 2],
        collective: Collective::Stream { steps },
        ..Job::new(vec![host, 0], chunk_bytes)
    };
    let jobs = (1..).zip(starts).map(flow).collect();
    Setup::new(Fabric::new(Topology::Single { hosts }), jobs)
}

/// Zhu et al., SIGCOMM 2015, section 3: flows that share a bottleneck come to equal rates whenever they began, and keep it busy
/// with a short queue.
#[test]
fn flows_over_one_bottleneck_come_to_fair_shares_and_keep_it_busy() {
    const MS: Nanos = 1_000_000;
    const WINDOW: Nanos = 20 * MS;
    const CHUNK: u32 = 40_960;
    const PAYLOAD_GBPS: f64 = 10.0 * 4096.0 / (4096.0 + 58.0);
    // A late flow bursts in at line rate: beside one that has the whole link, and beside two that have halves.
    for (starts, steps) in [(&[0, 10 * MS][..], 5_000), (&[0, 0, 30 * MS], 4_000)] {
        let results = run(&into_one_port(starts, steps, CHUNK));
        let late = *starts.iter().max().expect("there are flows");
        let before = rates_gbps(&results, CHUNK, late - 8 * MS..late);
        assert!(fairness(&before) < 0.7, "one flow is not there yet: {before:?}");
        let mut total = vec![0.0; starts.len()];
        for window in 1..12 {
            let from = late + window * WINDOW;
            let rates = rates_gbps(&results, CHUNK, from..from + WINDOW);
            let used = rates.iter().sum::<f64>() / PAYLOAD_GBPS;
            assert!(fairness(&rates) > 0.97 && (0.93..1.005).contains(&used), "{window}: {rates:?}, {used}");
            total.iter_mut().zip(&rates).for_each(|(total, rate)| *total += rate);
        }
        assert!(fairness(&total) > 0.998, "nobody is ahead for long: {total:?}");
        let marked = results.marks.red > 0 && results.cnps > 0 && results.drops.is_empty();
        assert!(marked && results.max_queue_bytes < 1_000_000, "{} bytes waited", results.max_queue_bytes);
    }
}

/// What a ring takes that meets nobody: a clear-to-send, then each step's frames on the NIC, and the way of a step's last packet
/// along as many edges as there are steps, begun where that is longest.
fn closed_form_ns(setup: &Setup) -> f64 {
    let [job] = &setup.jobs[..] else { panic!("one job") };
    let ns = |bytes: f64| bytes * 8e9 / setup.fabric.host_bps as f64;
    // Ethernet, IPv4, UDP, BTH, ICRC in each packet; RETH and immediate once a message. For each message that a rank sends it
    // also acknowledges one, clears one to be sent, and acknowledges that its own was cleared.
    let (headers, clear_to_send, acknowledgement) = (58.0, 64.0 + 58.0 + 16.0, 58.0 + 4.0);
    let of_message = 20.0 + clear_to_send + 2.0 * acknowledgement;
    let messages = f64::from(job.channels * job.requests_per_step);
    let packets = messages * f64::from((job.chunk_bytes / job.requests_per_step).div_ceil(job.path_mtu));
    let step = ns(f64::from(job.chunk_bytes * job.channels) + packets * headers + messages * of_message);
    // Each switch takes a packet whole; one that is shorter waits for those before it.
    let way = |hops: usize, bytes: f64| hops as f64 * ns(bytes) + (hops + 1) as f64 * setup.fabric.delay_ns as f64;
    let routes = sim::routes(setup).expect("the setup is sound");
    let hops: Vec<usize> = routes.iter().step_by(job.channels as usize).map(|route| route.hops.len()).collect();
    let steps = job.collective.steps(hops.len() as u32) as usize;
    let along = |first: usize| -> f64 {
        let edges = (first..first + steps).map(|edge| hops[edge % hops.len()]);
        ns(clear_to_send) + way(hops[first], clear_to_send) + edges.map(|hops| way(hops, 4096.0 + headers)).sum::<f64>()
    };
    steps as f64 * step + (0..hops.len()).map(along).fold(0.0, f64::max)
}

#[test]
fn rings_that_meet_nobody_take_their_closed_form() {
    let stride = |leaves: u32| (0..leaves * 4).map(move |rank| rank % leaves * 4 + rank / leaves).collect();
    let places: [(Topology, Vec<u32>); 6] = [
        (Topology::Single { hosts: 2 }, vec![0, 1]),
        (Topology::Single { hosts: 5 }, (0..5).collect()),
        (Topology::LeafSpine { leaves: 2, hosts_per_leaf: 4, spines: 4 }, (0..8).collect()),
        (Topology::LeafSpine { leaves: 4, hosts_per_leaf: 4, spines: 4 }, stride(4)),
        (Topology::FatTree { k: 4 }, (0..16).collect()),
        (Topology::FatTree { k: 4 }, vec![0, 4, 8, 12]),
    ];
    let collectives = [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter];
    let sizes = [(262_144, 1, 1), (1_000_000, 1, 1), (300_000, 2, 1), (1_000_000, 1, 2), (200_000, 4, 8)];
    for (topology, hosts) in places {
        for (collective, (chunk_bytes, channels, requests_per_step)) in
            collectives.iter().flat_map(|&collective| sizes.map(|size| (collective, size)))
        {
            let ring = Job { collective, channels, requests_per_step, ..Job::new(hosts.clone(), chunk_bytes) };
            let setup = Setup::new(Fabric::new(topology), vec![ring]);
            let results = run(&setup);
            let ns = results.jobs[0].jct_ns().expect("it ends") as f64;
            let closed = closed_form_ns(&setup);
            let what = format!("{topology:?} {collective:?} {chunk_bytes} x {channels} in {requests_per_step}");
            assert!((ns / closed - 1.0).abs() < 0.005, "{what}: {ns} ns, closed form {closed} ns");
            assert_eq!(results.marks.red, 0, "{what}: it meets nobody");
        }
    }
}

/// Bytes that all ranks of all jobs must have received in order: their chunks and, for each message of theirs, a
/// clear-to-send.
fn payload_bytes(setup: &Setup) -> u64 {
    let of_job = |job: &Job| {
        let ranks = job.hosts.len() as u32;
        let receivers = (0..ranks).filter(|&rank| job.collective.receives(rank)).count() as u64;
        let steps = u64::from(job.collective.steps(ranks)) * u64::from(job.iterations) * u64::from(job.channels);
        let clear_to_send = if setup.model == Model::Roce { 64 * job.requests_per_step } else { 0 };
        receivers * steps * u64::from(job.chunk_bytes + clear_to_send)
    };
    setup.jobs.iter().map(of_job).sum()
}

#[test]
fn every_row_of_the_matrix_delivers_its_bytes_and_loses_no_packet() {
    let mut pauses = 0;
    for name in Scenario::matrix() {
        for setup in [row(name, 1), with_symphony(row(name, 1)), lossless(row(name, 2))] {
            let results = run(&setup);
            pauses += results.pfc_pauses;
            assert!(results.jobs.iter().all(|job| job.finish_ns.is_some()), "{name}");
            assert_eq!(results.delivered_bytes, payload_bytes(&setup), "{name}");
            let packets = results.conservation;
            assert!(packets.holds() && packets.rx > 0, "{name}: {packets:?}");
            assert_eq!((packets.dropped, packets.emitted, packets.replicas, packets.consumed), (0, 0, 0, 0), "{name}");
            assert_eq!(results.retransmissions, 0, "{name}");
            if setup.background.is_empty() {
                assert_eq!(packets.queued, 0, "{name}: the jobs are done, and nobody else sends");
            }
            for (job, of) in results.jobs.iter().zip(&setup.jobs) {
                let steps = of.collective.steps(of.hosts.len() as u32) * of.iterations;
                for (rank, times) in (0..).zip(&job.steps).filter(|(rank, _)| of.collective.receives(*rank)) {
                    assert_eq!(times.len(), steps as usize, "{name}: rank {rank}");
                    assert!(times.is_sorted(), "{name}: rank {rank}: a step never ends before the one before");
                }
            }
        }
    }
    assert!(pauses > 100, "the lossless ones had to pause: {pauses}");
}

#[test]
fn what_a_full_buffer_drops_is_sent_again_and_accounted_for() {
    let mut setup = row("straggler-3", 1);
    setup.fabric.buffer_bytes = 100_000;
    let results = run(&setup);
    let dropped: u64 = results.drops.values().sum();
    assert!(dropped > 0 && results.retransmissions >= dropped, "{dropped} {}", results.retransmissions);
    assert!(results.conservation.holds() && results.conservation.dropped == dropped, "{:?}", results.conservation);
    assert_eq!(results.delivered_bytes, payload_bytes(&setup), "each byte once");
}

#[test]
fn a_seed_says_the_same_byte_for_byte_whatever_else_runs_and_another_seed_something_else() {
    let rows = ["random", "multi-skew", "straggler-3", "background", "rehash"];
    let say = |name: &str, seed| format!("{:?}", run(&with_symphony(row(name, seed))));
    let alone: Vec<String> = rows.iter().map(|name| say(name, 1)).collect();
    thread::scope(|scope| {
        let together: Vec<_> = rows.iter().map(|name| scope.spawn(move || say(name, 1))).collect();
        for ((name, alone), together) in rows.iter().zip(&alone).zip(together) {
            assert!(*alone == together.join().expect("it runs"), "{name}");
        }
    });
    for (name, alone) in rows.iter().zip(&alone) {
        assert!(*alone != say(name, 2), "{name}");
    }
}

#[test]
fn real_frames_through_parser_and_deparser_give_the_results_of_headers() {
    let (mut red, mut extra, mut pauses) = (0, 0, 0);
    for name in Scenario::matrix().filter(|name| row(name, 1).model == Model::Roce) {
        let short = |mut setup: Setup| {
            setup.jobs.iter_mut().for_each(|job| job.chunk_bytes /= 4);
            setup
        };
        let base = short(row(name, 1));
        let defaults = Setup { symphony: Some(Parameters::default()), ..base.clone() };
        for setup in [with_symphony(base.clone()), lossless(defaults), short(row(name, 3))] {
            let results = run(&setup);
            assert_eq!(results, sim::run_as_bytes(&setup).expect("it is sound"), "{name}");
            red += results.marks.red;
            extra += results.marks.symphony;
            pauses += results.pfc_pauses;
        }
    }
    assert!(red > 100 && extra > 100 && pauses > 100, "each took part: {red} {extra} {pauses}");
}
