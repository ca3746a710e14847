use super::*;
use crate::dataplane::Pfc;
use crate::functions::symphony::Parameters;

const GBIT: u64 = 1_000_000_000;

/// A healthy job and `k` jobs with one slow NIC; each uplink carries one flow of each.
fn straggler(k: u32) -> Setup {
    let topology = Topology::LeafSpine { leaves: 2, hosts_per_leaf: 4 * (k + 1), spines: 4 };
    let per_leaf = 4 * (k + 1);
    let jobs = (0..=k).map(|j| {
        let hosts = (0..8).map(|rank| (rank % 2) * per_leaf + j * 4 + rank / 2).collect();
        let class = if j == 0 { "healthy" } else { "straggler" };
        let mut job = Job { class: class.into(), ..Job::new(hosts, 2_000_000) };
        if j > 0 {
            job.nic_bps[3] = GBIT / 2;
        }
        job.start_at = vec![u64::from(j) * 37_123; 8];
        job
    });
    Setup::new(Fabric::new(topology), jobs.collect())
}

fn jct_ms(results: &Results, class: &str) -> f64 {
    let of: Vec<f64> = results
        .jobs
        .iter()
        .filter(|job| job.class == class)
        .map(|job| job.jct_ns().map_or(f64::NAN, |ns| ns as f64 / 1e6))
        .collect();
    of.iter().sum::<f64>() / of.len() as f64
}

#[test]
fn a_ring_alone_takes_its_closed_form() {
    let results =
        run(&Setup::new(Fabric::new(Topology::Single { hosts: 4 }), vec![Job::new(vec![0, 1, 2, 3], 1_000_000)]))
            .unwrap();
    let ms = jct_ms(&results, "all");
    // 6 steps of 1 MB in 4158-byte frames at 10 Gbit/s, each 2 hops: one more packet and 2 us on the way.
    let step = (1_000_000.0 + 245.0 * 62.0) * 8.0 / 10e9 * 1e3;
    let closed = 6.0 * (step + 0.0033 + 0.002);
    assert!((ms / closed - 1.0).abs() < 0.005, "{ms} {closed}");
    assert!(results.conservation.holds() && results.drops.is_empty(), "{results:?}");
}

/// A short run of the same.
fn short_straggler() -> Setup {
    let mut setup = straggler(1);
    setup.jobs.iter_mut().for_each(|job| job.chunk_bytes = 200_000);
    setup
}

#[test]
fn headers_and_bytes_give_the_same_results() {
    let mut setup = short_straggler();
    setup.symphony = Some(Parameters::bold());
    let results = run(&setup).unwrap();
    assert!(results.marks.red > 0 && results.marks.symphony > 0, "{:?}", results.marks);
    assert_eq!(results, run_as_bytes(&setup).unwrap());
    assert_eq!(results, run(&setup).unwrap(), "and a seed the same again");
}

#[test]
fn disabled_is_bit_identical_to_no_function() {
    let base = straggler(1);
    let disabled = Setup { symphony: Some(Parameters { enabled: false, ..Parameters::default() }), ..base.clone() };
    assert_eq!(run(&base).unwrap(), run(&disabled).unwrap());
    let mut unknown = Setup { symphony: Some(Parameters::default()), ..base.clone() };
    unknown.jobs.iter_mut().for_each(|job| job.known = false);
    assert_eq!(run(&base).unwrap(), run(&unknown).unwrap());
}

#[test]
fn a_healthy_job_beside_stragglers_gains_and_the_stragglers_lose_nothing() {
    let base = straggler(1);
    let (alone, aligned) = (run(&base).unwrap(), run(&Setup { symphony: Some(Parameters::bold()), ..base }).unwrap());
    assert!(jct_ms(&aligned, "healthy") < 0.8 * jct_ms(&alone, "healthy"));
    assert!((jct_ms(&aligned, "straggler") / jct_ms(&alone, "straggler") - 1.0).abs() < 0.01);
    for results in [alone, aligned] {
        assert!(results.conservation.holds() && results.drops.is_empty());
        let sent: u64 =
            results.jobs.iter().map(|job| 2_000_000 * job.steps.iter().map(|s| s.len() as u64).sum::<u64>()).sum();
        let clear_to_send: u64 =
            results.jobs.iter().map(|job| 64 * job.steps.iter().map(|s| s.len() as u64).sum::<u64>()).sum();
        assert_eq!(results.delivered_bytes, sent + clear_to_send);
    }
}

#[test]
fn pauses_keep_a_small_buffer_from_dropping() {
    let mut setup = short_straggler();
    setup.jobs.iter_mut().for_each(|job| job.congestion_control = None);
    setup.fabric.buffer_bytes = 400_000;
    let lossy = run(&setup).unwrap();
    assert!(lossy.drops.values().sum::<u64>() > 0 && lossy.retransmissions > 0, "{:?}", lossy.drops);
    setup.fabric.pfc = Some(Pfc::fixed(20_000, 15_000, 20_000));
    let lossless = run(&setup).unwrap();
    assert!(lossless.pfc_pauses > 0 && lossless.drops.is_empty() && lossless.retransmissions == 0, "{lossless:?}");
    assert!(lossless.jobs.iter().all(|job| job.finish_ns.is_some()));
    assert_eq!(lossless, run_as_bytes(&setup).unwrap());
}

#[test]
fn a_run_that_is_given_up_has_taken_its_limit_however_early_the_last_event_was() {
    let mut setup = Setup::new(Fabric::new(Topology::Single { hosts: 2 }), vec![Job::new(vec![0, 1], 1_000_000)]);
    setup.limit_ns = 1_000_000; // a step alone takes 0.8 ms
    let results = run(&setup).expect("it runs");
    assert_eq!((results.jobs[0].finish_ns, results.end_ns), (None, 1_000_000));
    setup.limit_ns = 10_000_000;
    let results = run(&setup).expect("it runs");
    assert_eq!(results.jobs[0].finish_ns, Some(results.end_ns), "one that ends has taken what it took");
    setup.fabric.buffer_bytes = 1; // everything is dropped
    assert_eq!(run(&setup).expect("it runs").end_ns, 10_000_000);
}
