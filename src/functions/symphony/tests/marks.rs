//! Which packets get an extra mark, and that a function that is off is not there.

use proptest::prelude::*;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;
use crate::dataplane::{Frames, PortConfig, Red, Switch, SwitchConfig};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

/// A packet of flow `a`, two steps ahead of `b`, behind ingress.
fn leading(parameters: Parameters) -> (Bench, Phv) {
    let mut bench = Bench::new(parameters, &[ring(1, 4)]);
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    bench.send(b.next(Opcode::WRITE_FIRST));
    a.send(&mut bench, 1);
    a.send(&mut bench, 1);
    let mut phv = a.next(Opcode::WRITE_FIRST);
    bench.ingress(&mut phv);
    assert_eq!(phv.bridged.lead, 2 * 256);
    (bench, phv)
}

/// Whether a packet with this lead is marked behind a long queue.
fn marked(parameters: Parameters, lead: i32) -> bool {
    let (mut bench, mut phv) = leading(parameters);
    phv.bridged.lead = lead;
    bench.egress(&mut phv, 100_000, 20_000, false, &mut rng())
}

#[test]
fn only_the_flow_that_is_ahead_is_marked() {
    let mut bench = Bench::of(Job { packets_per_step: Some(4), ..ring(1, 4) });
    let (mut ahead, mut behind) = (Sender::new(0, 1), Sender::new(1, 2));
    let mut marks = [0, 0];
    let mut rng = rng();
    for _ in 0..5 {
        // Both share a long queue; one sends two steps while the other sends one packet.
        for phv in ahead.message(4, 0).iter_mut().chain(&mut ahead.message(4, 0)) {
            bench.ingress(phv);
            bench.now += 200_000; // beyond the gap
            marks[0] += u32::from(bench.egress(phv, 50_000, 20_000, false, &mut rng));
        }
        let mut phv = behind.next(Opcode::WRITE_MIDDLE);
        bench.ingress(&mut phv);
        marks[1] += u32::from(bench.egress(&mut phv, 50_000, 20_000, false, &mut rng));
    }
    assert!(marks[0] >= 20, "the one ahead: {marks:?}");
    assert_eq!(marks[1], 0, "the one behind");
}

#[test]
fn a_flow_that_falls_back_is_left_alone_until_it_leads_by_more_again() {
    let (mut bench, phv) = leading(Parameters::default());
    let mut look = |at_us: u64, lead: i32| {
        bench.now += at_us * 1000;
        let mut phv = Phv { bridged: Bridged { lead, ..phv.bridged }, ..phv };
        bench.egress(&mut phv, 50_000, 20_000, false, &mut rng())
    };
    assert!(look(1, 300), "the first look knows no other");
    assert!(!look(70, 400), "within the gap nobody looks");
    assert!(look(10, 301));
    assert!(!look(80, 299), "it falls back");
    assert!(look(80, 299), "and stands");
    assert!(!look(80, 200));
    assert!(!look(80, 31), "below the threshold nobody looks");
    assert!(look(301, 100), "the last look was more than four gaps ago");
    assert!(!look(80, 40));
    assert!(look(80, 40));
}

#[test]
fn a_job_of_short_steps_is_tracked_but_not_marked() {
    let parameters = Parameters { recovery_ns: 100_000, min_step: 2.0, ..Parameters::default() };
    let marks = |step_ns: Option<u64>, parameters: Parameters| {
        let mut bench = Bench::new(parameters, &[Job { step_ns, ..ring(1, 4) }]);
        let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
        bench.send(b.next(Opcode::WRITE_FIRST));
        a.send(&mut bench, 1);
        let mut phv = a.next(Opcode::WRITE_FIRST);
        bench.ingress(&mut phv);
        assert_eq!(phv.bridged.lead, 256);
        bench.egress(&mut phv, 50_000, 20_000, false, &mut rng())
    };
    assert!(!marks(Some(199_999), parameters) && marks(Some(200_000), parameters));
    assert!(marks(None, parameters), "of unknown length");
    assert!(marks(Some(1), Parameters { min_step: 0.0, ..parameters }));
}

#[test]
fn the_lead_test_begins_at_the_threshold() {
    assert!(marked(Parameters::reference(), 128));
    assert!(!marked(Parameters::reference(), 127));
    assert!(marked(Parameters::bold(), 64));
    assert!(!marked(Parameters::bold(), 63));
}

#[test]
fn the_queue_test_begins_at_its_fraction_of_kmin() {
    let with_queue = |parameters: Parameters, depth, kmin| {
        let (mut bench, mut phv) = leading(parameters);
        bench.egress(&mut phv, depth, kmin, false, &mut rng())
    };
    let quarter = Parameters::reference();
    assert!(with_queue(quarter, 5_000, 20_000) && !with_queue(quarter, 4_999, 20_000));
    let any = Parameters::bold();
    assert!(with_queue(any, 1, 20_000) && !with_queue(any, 0, 20_000));
    assert!(with_queue(quarter, 1, 0) && !with_queue(quarter, 0, 0), "a port without ECN");
    let below = Parameters { only_below_kmin: true, ..quarter };
    assert!(with_queue(below, 20_000, 20_000) && !with_queue(below, 20_001, 20_000));
    assert!(with_queue(quarter, 20_001, 20_000));
}

#[test]
fn a_flow_is_marked_once_a_gap_and_each_flow_has_its_own() {
    let (mut bench, phv) = leading(Parameters::reference());
    let mut mark = |after: Nanos, flow: u32| {
        let mut phv = phv;
        phv.bridged.flow = flow;
        bench.now += after;
        bench.egress(&mut phv, 100_000, 20_000, false, &mut rng())
    };
    assert!(mark(0, 0));
    assert!(!mark(50_000, 0));
    assert!(mark(0, 1), "another flow");
    assert!(!mark(46_000, 0));
    assert!(mark(5_000, 0), "101 us after the first");
    assert!(!mark(5_000, 0));
}

#[test]
fn packets_that_may_not_be_marked_are_not() {
    let mark = |change: fn(&mut Phv)| {
        let (mut bench, mut phv) = leading(Parameters::reference());
        change(&mut phv);
        bench.egress(&mut phv, 100_000, 20_000, false, &mut rng())
    };
    assert!(mark(|_| {}));
    assert!(mark(|phv| phv.ecn = Ecn::Ect1));
    assert!(!mark(|phv| phv.ecn = Ecn::NotEct));
    assert!(!mark(|phv| phv.ecn = Ecn::Ce));
    assert!(!mark(|phv| phv.bridged.armed = false));
    assert!(!mark(|phv| phv.bridged.step = Step::None));
    assert!(!mark(|phv| phv.bridged.job = 7), "a slot without a job");
    assert!(!mark(|phv| phv.bridged.job = u16::MAX), "no slot at all");
    assert!(!mark(|phv| phv.bridged.flow = u32::MAX));
}

#[test]
fn marks_are_counted_by_cause() {
    let (mut bench, phv) = leading(Parameters::reference());
    let mut mark = |after: Nanos, red: bool| {
        bench.now += after;
        bench.egress(&mut { phv }, 100_000, 20_000, red, &mut rng());
        let job = &bench.symphony.jobs()[0];
        (job.lead_tests, job.marks.red, job.marks.symphony)
    };
    assert_eq!(mark(0, false), (1, 0, 1));
    assert_eq!(mark(0, false), (2, 0, 1), "in the gap");
    assert_eq!(mark(0, true), (3, 1, 1));
    assert_eq!(mark(200_000, true), (4, 2, 1), "both: RED had it anyway");
    assert_eq!(mark(200_000, false), (5, 2, 2));
}

#[test]
fn the_null_policy_draws_where_symphony_marks_and_marks_nothing() {
    for (lead, draws) in [(128, 1), (127, 0)] {
        let (mut bench, mut phv) = leading(Parameters { policy: Policy::Null, ..Parameters::reference() });
        phv.bridged.lead = lead;
        let (mut used, mut fresh) = (rng(), rng());
        assert!(!bench.egress(&mut phv, 100_000, 20_000, false, &mut used));
        for _ in 0..draws {
            fresh.next_u32();
        }
        assert_eq!(used, fresh);
        assert_eq!(bench.symphony.jobs()[0].lead_tests, draws);
    }
}

#[test]
fn the_owner_min_policy_draws_nothing() {
    let (mut bench, mut phv) = leading(Parameters::reference());
    let mut used = rng();
    assert!(bench.egress(&mut phv, 100_000, 20_000, false, &mut used));
    assert_eq!(used, rng());
}

#[test]
fn the_blind_policy_tosses_a_coin_of_the_given_odds_for_any_flow() {
    let heads = |probability: f64| {
        let (mut bench, phv) = leading(Parameters { policy: Policy::Blind { probability }, ..Parameters::reference() });
        let mut rng = rng();
        let mut toss = |_| {
            let mut phv = phv;
            phv.bridged.lead = 0;
            bench.now += 200_000;
            u32::from(bench.egress(&mut phv, 100_000, 20_000, false, &mut rng))
        };
        (0..4000).map(&mut toss).sum::<u32>()
    };
    assert_eq!((heads(0.0), heads(1.0)), (0, 4000));
    let quarter = heads(0.25); // 1000 expected, standard deviation 27
    assert!((890..1110).contains(&quarter), "{quarter}");
}

#[test]
fn gold_leads_over_the_exact_minimum() {
    let leads = |policy| {
        let mut bench = Bench::new(Parameters { policy, ..Parameters::reference() }, &[ring(1, 4)]);
        let (mut a, mut b, mut c) = (Sender::new(0, 1), Sender::new(1, 2), Sender::new(2, 3));
        b.send(&mut bench, 1);
        c.send(&mut bench, 1);
        let both_at_0: Vec<i32> = (0..3).map(|_| a.send(&mut bench, 1)[0].lead).collect();
        b.send(&mut bench, 1); // at 1 now, c still at 0
        let c_at_0 = a.send(&mut bench, 1)[0].lead;
        for _ in 0..5 {
            c.send(&mut bench, 1); // its last step, it leaves
        }
        (both_at_0, c_at_0, a.send(&mut bench, 1)[0].lead)
    };
    assert_eq!(leads(Policy::Gold), (vec![0, 256, 512], 3 * 256, 3 * 256));
    // The register knows one laggard; c's being behind shows with its next packet only.
    assert_eq!(leads(Policy::OwnerMin), (vec![0, 256, 512], 2 * 256, 3 * 256));
}

#[test]
fn gold_drops_a_flow_that_is_silent_for_its_idle_time() {
    let mut bench = Bench::new(
        Parameters { policy: Policy::Gold, ..Parameters::reference() },
        &[Job { steps_per_collective: 1000, ..ring(1, 4) }],
    );
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    b.send(&mut bench, 1);
    let mut leads = Vec::new();
    for _ in 0..50 {
        leads.push(a.send(&mut bench, 1)[0].lead / 256);
        bench.now += MS / 2 - 1000;
    }
    assert_eq!(leads[..40], (0..40).collect::<Vec<_>>(), "20 ms of 0.5 ms each");
    assert_eq!(leads[41..], [0; 9]);
}

/// Sends to the port of the destination's last byte.
struct ByAddress;

impl Function for ByAddress {
    fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        Verdict::Forward(u16::from(phv.dst[15]) % 2)
    }
}

/// Packets that travel as headers.
struct NoBytes;

impl Frames for NoBytes {
    type Handle = u32;
    fn bytes<'a>(&'a self, _: &'a u32) -> &'a [u8] {
        &[]
    }
    fn bytes_mut<'a>(&'a mut self, _: &'a mut u32) -> &'a mut [u8] {
        &mut []
    }
    fn replicate(&mut self, _: &u32) -> Option<u32> {
        None
    }
    fn emit(&mut self, _: &[u8]) -> Option<u32> {
        None
    }
    fn free(&mut self, _: u32) {}
}

/// A random mix of two ring jobs through two slow ports. What leaves: frame, time, ECN; and the marks.
fn run<F: Function>(function: F, seed: u64) -> (Vec<(u32, Nanos, Ecn)>, Marks) {
    let port = |name: &str| PortConfig {
        name: name.to_owned(),
        rate_bps: Some(1_000_000_000),
        buffer_bytes: 200_000,
        red: Some(Red { kmin_bytes: 10_000, kmax_bytes: 80_000, pmax: 0.3 }),
        pfc: None,
        fault: None,
    };
    let config = SwitchConfig { buffer_bytes: 1_000_000, seed, ports: vec![port("p0"), port("p1")] };
    let mut switch = Switch::new(&config, (function, ByAddress));
    let mut senders: Vec<Sender> =
        (1..=2u8).flat_map(|job| (0..4u8).map(move |src| Sender { job, ..Sender::new(src, (src + 1) % 4) })).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut now = 1000 * MS;
    let mut left = Vec::new();
    for frame in 0..600 {
        now += u64::from(random.next_u32() % 8000);
        for port in 0..2 {
            while let Some(departure) = switch.dequeue(port, now, &mut NoBytes, &mut NoTrace) {
                left.push((departure.frame, departure.at, departure.phv.ecn));
            }
        }
        // Low numbers are drawn more often, so that some ranks run ahead.
        let index = (random.next_u32() % 8).min(random.next_u32() % 8) as usize;
        let opcode = if random.next_u32() % 3 == 0 { Opcode::WRITE_LAST_IMM } else { Opcode::WRITE_MIDDLE };
        let phv = senders[index].next(opcode);
        switch.ingress(now, phv, frame, &mut NoBytes, &mut NoTrace);
    }
    (left, switch.counters().marks())
}

/// Symphony with two jobs that never finish a collective, so that leads grow.
fn symphony(parameters: Parameters, enabled: bool) -> Symphony {
    let mut symphony = Symphony::new(parameters, 64, 8);
    for id in 1..=2 {
        let job = Job { enabled, steps_per_collective: 1000, ..ring(id, 4) };
        symphony.add_job(&job, 0).expect("a sound job");
    }
    symphony
}

/// Nothing.
struct Absent;

impl Function for Absent {
    fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, _: &mut Phv) -> Verdict {
        Verdict::Continue
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn switched_off_it_is_bit_identical_to_a_switch_without_it(seed: u64) {
        let absent = run(Absent, seed);
        prop_assert!(absent.1.red > 0, "RED is at work");
        let off = Parameters { enabled: false, ..Parameters::bold() };
        prop_assert_eq!(&run(symphony(off, true), seed), &absent);
        prop_assert_eq!(&run(symphony(Parameters::bold(), false), seed), &absent);
        let blind = Parameters { policy: Policy::Blind { probability: 0.5 }, ..Parameters::bold() };
        prop_assert_eq!(&run(symphony(blind, false), seed), &absent);

        let on = run(symphony(Parameters::bold(), true), seed);
        prop_assert!(on.1.symphony > 0, "switched on it marks");
        let reds = |run: &(Vec<(u32, Nanos, Ecn)>, Marks)| run.1.red;
        prop_assert_eq!(reds(&on), reds(&absent), "and draws nothing: RED hits the same packets");
    }
}
