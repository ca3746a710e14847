//! Jobs come and go; parameters; ageing.

use super::*;

fn refused(job: Job) -> String {
    let mut symphony = Symphony::new(Parameters::default(), 64, 2);
    symphony.add_job(&ring(7, 3), 0).expect("a sound job");
    let before = symphony.jobs();
    let error = symphony.add_job(&job, 0).expect_err("must be refused").to_string();
    assert_eq!(symphony.jobs(), before, "nothing has changed");
    assert!(symphony.add_job(&ring(8, 4), 0).is_ok(), "nothing is left behind");
    error
}

#[test]
fn a_job_that_makes_no_sense_is_refused_with_field_value_and_cure() {
    let good = ring(1, 3);
    let with = |change: fn(&mut Job)| {
        let mut job = good.clone();
        change(&mut job);
        refused(job)
    };
    let sentences = [
        with(|j| j.id = 7),
        with(|j| j.ring.truncate(1)),
        with(|j| j.ring.clear()),
        with(|j| j.ring[2] = j.ring[0]),
        with(|j| j.ring[1] = "fd00::1".parse().expect("an address")),
        with(|j| j.ring = vec![address(1, 0), address(7, 1), address(7, 2)]),
        with(|j| j.requests_per_step = 0),
        with(|j| (j.step_source, j.requests_per_step) = (StepSource::Imm, 3)),
        with(|j| j.path_mtu = 1500),
        with(|j| j.packets_per_step = Some(0)),
        with(|j| j.step_source = StepSource::Psn),
        with(|j| j.steps_per_collective = 0),
        with(|j| j.steps_per_collective = 65536),
        with(|j| j.idle_ns = 1000),
    ];
    insta::assert_snapshot!(sentences.join("\n"), @r#"
    job id = 7: taken by job "job7"; remove that one first or choose another id
    job 1: ring has 1 rank(s); name at least 2 addresses
    job 1: ring has 0 rank(s); name at least 2 addresses
    job 1: ring names 10.0.1.0 twice; each rank needs an address of its own
    job 1: ring mixes IPv4 and IPv6 (10.0.1.0, fd00::1); use addresses of one family
    job 1: ring edge 10.0.7.1 -> 10.0.7.2 belongs to job 7; give the ranks of different jobs addresses of their own
    job 1: requests_per_step = 0; must be at least 1
    job 1: requests_per_step = 3; must be a power of two with step_source = imm
    job 1: path_mtu = 1500; must be 256, 512, 1024, 2048 or 4096
    job 1: packets_per_step = 0; must be at least 1, or left out when not known
    job 1: packets_per_step = unknown; must be given with step_source = psn
    job 1: steps_per_collective = 0; must be 1..=65535; it is 2(n-1) for an all-reduce of n ranks
    job 1: steps_per_collective = 65536; must be 1..=65535; it is 2(n-1) for an all-reduce of n ranks
    job 1: idle_ns = 1000; must be from 1024 ns to 36 minutes; 10 steps are a good choice
    "#);
}

#[test]
fn a_full_switch_takes_no_more_jobs_and_edges() {
    let mut symphony = Symphony::new(Parameters::default(), 8, 2);
    let error = symphony.add_job(&ring(1, 9), 0).expect_err("9 edges in 8");
    assert_eq!(error, Error::EdgesFull { id: 1, ranks: 9, capacity: 8 });
    assert_eq!(symphony.add_job(&ring(1, 4), 0), Ok(0));
    assert_eq!(symphony.add_job(&ring(2, 4), 0), Ok(1));
    assert_eq!(symphony.remove_job(1), Ok(()));
    assert_eq!(symphony.add_job(&ring(3, 3), 0), Ok(0), "the lowest free slot");
    assert_eq!(symphony.add_job(&ring(4, 2), 0), Err(Error::JobsFull { id: 4, capacity: 2 }));
    assert_eq!((symphony.job_slot(2), symphony.job_slot(1)), (Some(1), None));
    assert_eq!(symphony.remove_job(1), Err(Error::UnknownJob { id: 1 }));
    assert_eq!(symphony.enable_job(1, true, 0), Err(Error::UnknownJob { id: 1 }));
}

#[test]
fn rings_of_ipv4_and_ipv6_are_mapped() {
    let job = Job { ring: vec!["fd00::1".parse().expect("v6"), "fd00::2".parse().expect("v6")], ..ring(1, 2) };
    let mut one = [0; 16];
    (one[0], one[15]) = (0xfd, 1);
    let mut two = one;
    two[15] = 2;
    assert_eq!(edges(&job).collect::<Vec<_>>(), [(one, two, 0), (two, one, 1)]);
    let v4 = edges(&ring(1, 2)).next().expect("an edge").0;
    assert_eq!(v4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 0]);
}

#[test]
fn compiled_constants_are_those_of_the_specification() {
    let job = Job { packets_per_step: Some(3), idle_ns: 5 * MS, ..ring(1, 4) };
    let compiled = CompiledJob::new(&job, &Parameters::default());
    assert_eq!((compiled.epoch_shift, compiled.patience_ticks()), (20, 1 << 14), "2 ms rounded down to 2^20 ns");
    assert_eq!((compiled.path_mtu_shift, compiled.reciprocal, compiled.idle_ticks), (10, 1_431_655_766, 4882));
    let one = CompiledJob::new(&Job { packets_per_step: Some(1), ..job.clone() }, &Parameters::default());
    assert_eq!(one.reciprocal, u32::MAX);
    assert!(!CompiledJob::new(&job, &Parameters { enabled: false, ..Parameters::default() }).enabled);
}

#[test]
fn scaling_stretches_times_only() {
    let scaled = Parameters::bold().scaled(50.0);
    assert_eq!((scaled.gap_ns, scaled.epoch_ns, scaled.recovery_ns), (2_500_000, 1_000_000_000, 13_750_000));
    assert_eq!((scaled.threshold, scaled.queue_fraction, scaled.gold_idle_ns), (64, 0.0, 1_000_000_000));
}

#[test]
fn flows_age_out_and_their_slots_come_back_clean() {
    let mut symphony = Symphony::new(Parameters::default(), 4, 1);
    symphony.add_job(&ring(1, 4), 0).expect("a sound job");
    let mut bench = Bench { symphony, now: 1000 * MS, pass: 0, emissions: Vec::new() };
    let flow_of = |bench: &mut Bench, qpn| {
        let mut sender = Sender { qpn, ..Sender::new(0, 1) };
        sender.send(bench, 1)[0].flow
    };
    assert_eq!([1, 2, 3, 4].map(|qpn| flow_of(&mut bench, qpn)), [0, 1, 2, 3]);
    let bridged = Sender { qpn: 5, ..Sender::new(0, 1) }.send(&mut bench, 1)[0];
    assert_eq!((bridged.step, bench.symphony.outcomes().flows_full), (Step::None, 1));
    bench.now += 59_000 * MS;
    assert_eq!(bench.symphony.age(bench.now), 0);
    flow_of(&mut bench, 2); // seen again
    bench.now += 2_000 * MS;
    assert_eq!(bench.symphony.age(bench.now), 3);
    assert_eq!(bench.symphony.flows().len(), 1);
    // Slots 0, 2, 3 are free, in this order; the next flows find nothing of the old ones in them.
    assert_eq!([6, 7, 8].map(|qpn| flow_of(&mut bench, qpn)), [0, 2, 3]);
    let flow = bench.flow(&Sender { qpn: 6, ..Sender::new(0, 1) });
    assert_eq!((flow.packets, flow.messages, flow.retransmitted, flow.step), (1, 1, 0, 1));
}

#[test]
fn a_flow_that_is_forgotten_is_not_the_minimum() {
    let mut bench = Bench::of(Job { idle_ns: 1 << 41, ..ring(1, 4) });
    bench.now = 1 << 42;
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    a.send(&mut bench, 1);
    b.send(&mut bench, 1);
    a.send(&mut bench, 1);
    let minimum = |bench: &Bench| bench.symphony.job_state(0).minimum;
    assert_ne!(minimum(&bench).owner, 0);
    bench.now += 61_000 * MS;
    assert_eq!(bench.symphony.age(bench.now), 2);
    assert_eq!(minimum(&bench).owner, 0);
}

#[test]
fn a_job_switched_off_and_on_starts_without_a_past() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 1);
    bench.symphony.enable_job(1, false, bench.now).expect("it is there");
    let untracked = Bridged { tracked: true, ..Bridged::default() };
    assert_eq!(a.send(&mut bench, 1), [untracked]);
    assert!(!bench.symphony.jobs()[0].enabled);
    bench.symphony.enable_job(1, true, bench.now).expect("it is there");
    let again = a.send(&mut bench, 1)[0];
    assert_eq!((again.step, again.armed, again.steps_done), (Step::Data, false, 0));
    assert_eq!((bench.flow(&a).resyncs, bench.step(&a)), (0, 1), "what was missed is no gap");
}

#[test]
fn the_function_switched_off_and_on_starts_without_a_past() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 1);
    bench.symphony.set_parameters(Parameters { enabled: false, ..Parameters::default() }, bench.now);
    assert_eq!(a.send(&mut bench, 1), [Bridged::default()]);
    bench.rest();
    bench.symphony.set_parameters(Parameters::bold(), bench.now);
    assert!(!a.send(&mut bench, 1)[0].armed);
    bench.symphony.set_parameters(Parameters::default(), bench.now);
    assert_eq!(bench.step(&a), 1, "a change of numbers restarts nothing");
}

#[test]
fn a_removed_job_leaves_nothing() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 1);
    bench.symphony.remove_job(1).expect("it is there");
    assert_eq!((bench.symphony.jobs().len(), bench.symphony.flows().len()), (0, 0));
    assert_eq!(a.send(&mut bench, 1)[0].step, Step::None);
    bench.symphony.add_job(&ring(1, 4), bench.now).expect("its edges are free again");
    assert_eq!(a.send(&mut bench, 1)[0].steps_done, 0);
}
