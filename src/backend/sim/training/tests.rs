use std::net::SocketAddrV4;
use std::ops::Range;

use super::*;
use crate::functions::serene::controller::{Action, Cause, Comparison, Condition, Metric, Outcome, Policy, Relation};
use crate::functions::serene::{Late, Quorum, Strategy};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const MS: Nanos = 1_000_000;

/// Contributes its number to every value; takes 20 ms, but the first worker longer during its slow rounds.
struct Constant {
    number: u8,
    slow_ns: Nanos,
    slow_rounds: Range<u32>,
    rounds_left: u32,
    delta: Vec<f32>,
}

impl Learner for Constant {
    fn step(&mut self, _: Nanos, worker: &Worker, step: &mut [f32]) -> Nanos {
        let round = worker.round();
        step.fill(f32::from(self.number));
        if self.number == 0 && self.slow_rounds.contains(&round) { self.slow_ns } else { 20 * MS }
    }

    fn after(&mut self, _: Nanos, worker: &Worker, _: &Report) -> Flow {
        self.delta.resize(worker.sum().len(), 0.0);
        worker.read_delta(&mut self.delta);
        self.rounds_left -= 1;
        if self.rounds_left > 0 { Flow::Continue } else { Flow::Stop }
    }
}

fn setup(workers: u8, start: Strategy) -> Setup {
    let member = |number: u8| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, number + 1), 7001);
    Setup {
        seed: 1,
        job: Job {
            id: 1,
            members: (0..workers).map(member).collect(),
            segments: 10,
            lanes: 64,
            scale_log2: 16,
            start,
            policies: Vec::new(),
        },
        address: ADDRESS,
        line_bps: 1_000_000_000,
        delay_ns: 1000,
        buffer_bytes: 10_000_000,
        fault: None,
        control_fault: None,
        limit_ns: 100_000 * MS,
    }
}

fn learners(workers: u8, rounds: u32, slow_ns: Nanos, slow_rounds: Range<u32>) -> Vec<Constant> {
    let learner =
        |number| Constant { number, slow_ns, slow_rounds: slow_rounds.clone(), rounds_left: rounds, delta: Vec::new() };
    (0..workers).map(learner).collect()
}

#[test]
fn thirty_two_workers_get_the_mean_of_what_they_contribute() {
    let (results, learners) = run(&setup(32, Strategy::Bsp), learners(32, 11, 0, 0..0)).expect("sound");
    assert!(results.workers.iter().all(|w| w.rounds == 11 && w.failure.is_none() && w.late == 0), "{results:?}");
    assert!(results.conservation.holds());
    // Eleven rounds of the mean of 0 to 31.
    for learner in learners {
        assert!(learner.delta.iter().all(|value| *value == 170.5), "{:?}", &learner.delta[..4]);
    }
}

#[test]
fn bsp_waits_for_a_straggler_and_asp_does_not() {
    let wait = |strategy| {
        let (results, _) = run(&setup(4, strategy), learners(4, 10, 60 * MS, 0..100)).expect("sound");
        assert!(results.workers.iter().all(|w| w.rounds == 10 && w.failure.is_none()), "{results:?}");
        results.workers[1].wait_ns
    };
    assert!(wait(Strategy::Bsp).abs_diff(10 * 40 * MS) < 5 * MS, "{}", wait(Strategy::Bsp));
    assert!(wait(Strategy::Asp) < MS);
}

fn policy(metric: Metric, relation: Relation, value: f64, rounds: u32, then: Strategy) -> Policy {
    Policy {
        within: None,
        when: Condition::Compare(Comparison { metric, relation, value, rounds }),
        then: Action::Swap(then),
        cooldown_rounds: 0,
    }
}

#[test]
fn a_policy_goes_over_to_partial_while_a_worker_is_slow_and_back() {
    let partial = Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return };
    let waited = |policies| {
        let mut setup = setup(4, Strategy::Bsp);
        setup.job.policies = policies;
        let (results, _) = run(&setup, learners(4, 200, 80 * MS, 50..150)).expect("sound");
        assert!(results.workers[1..].iter().all(|w| w.failure.is_none()), "{results:?}");
        assert!(results.conservation.holds());
        (results.workers[1].wait_ns, results.swaps)
    };
    let (bsp, _) = waited(Vec::new());
    let (dynamic, swaps) = waited(vec![
        policy(Metric::Span, Relation::Greater, 30e6, 3, partial),
        policy(Metric::LagMax, Relation::AtMost, 1.0, 10, Strategy::Bsp),
    ]);
    let told: Vec<_> = swaps.iter().map(|swap| (swap.to.strategy, swap.cause, swap.outcome)).collect();
    let stable = |strategy, policy| (strategy, Cause::Policy(policy), Outcome::Stable);
    assert_eq!(told, [stable(partial, 0), stable(Strategy::Bsp, 1)], "{swaps:?}");
    assert!(bsp > 100 * 55 * MS, "{bsp}");
    assert!(dynamic < bsp / 5, "{dynamic} against {bsp}");
}

#[test]
fn swaps_complete_and_every_round_counts_once_on_bad_links_and_a_bad_control_channel() {
    let fault = Fault {
        loss: 0.05,
        duplicate: 0.05,
        delay_ns: 200_000,
        delay_jitter_ns: 200_000,
        reorder: 0.05,
        corrupt: 0.0, // it would be counted, not noticed: UDP's checksum is off
        ..Fault::default()
    };
    let mut setup = setup(4, Strategy::Bsp);
    (setup.fault, setup.control_fault) = (Some(fault), Some(Fault { loss: 0.3, ..fault }));
    // Back and forth, as fast as it goes.
    setup.job.policies = vec![
        Policy { within: Some("bsp"), ..policy(Metric::Span, Relation::AtLeast, 0.0, 1, Strategy::Ssp { slack: 3 }) },
        Policy { within: Some("ssp"), ..policy(Metric::Span, Relation::AtLeast, 0.0, 1, Strategy::Bsp) },
    ];
    let (results, learners) = run(&setup, learners(4, 300, 0, 0..0)).expect("sound");
    assert!(results.workers.iter().all(|w| w.rounds > 100 && w.failure.is_none()), "{results:?}");
    let done = results.swaps.iter().filter(|swap| swap.outcome == Outcome::Stable).count();
    assert!(done > 20, "{done} swaps");
    assert!(results.conservation.holds());
    // No jumps here but over boundaries: every contribution of every worker is in, once.
    let expected: f64 =
        results.workers.iter().enumerate().map(|(number, w)| number as f64 * w.rounds as f64 / 4.0).sum();
    let most = learners.iter().map(|learner| f64::from(learner.delta[0])).fold(0.0, f64::max);
    assert!(most <= expected && most > expected - 3.0 * 16.0, "{most} of {expected}");
}
