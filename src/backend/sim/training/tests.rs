use std::net::SocketAddrV4;

use super::*;
use crate::functions::serene::Strategy;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const MS: Nanos = 1_000_000;

/// Contributes its number to every value; takes `compute_ns`, and `slow_by` times as long if it is the first.
struct Constant {
    number: u8,
    compute_ns: Nanos,
    rounds_left: u32,
    delta: Vec<f32>,
}

impl Learner for Constant {
    fn step(&mut self, _: Nanos, _: u32, _: u8, delta: &[f32], step: &mut [f32]) -> Nanos {
        self.delta = delta.to_vec();
        step.fill(f32::from(self.number));
        self.compute_ns
    }

    fn after(&mut self, _: Nanos, _: &Report) -> bool {
        self.rounds_left -= 1;
        self.rounds_left > 0
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
        limit_ns: 100_000 * MS,
    }
}

fn learners(workers: u8, rounds: u32, slow: Nanos) -> Vec<Constant> {
    let learner = |number| Constant {
        number,
        compute_ns: if number == 0 { slow } else { 20 * MS },
        rounds_left: rounds,
        delta: Vec::new(),
    };
    (0..workers).map(learner).collect()
}

#[test]
fn thirty_two_workers_get_the_mean_of_what_they_contribute() {
    let (results, learners) = run(&setup(32, Strategy::Bsp), learners(32, 11, 20 * MS)).expect("sound");
    assert!(results.workers.iter().all(|w| w.rounds == 11 && w.failure.is_none() && w.late == 0), "{results:?}");
    assert!(results.conservation.holds());
    // What the last contribution was computed at: ten rounds of the mean of 0 to 31.
    for learner in learners {
        assert!(learner.delta.iter().all(|value| *value == 155.0), "{:?}", &learner.delta[..4]);
    }
}

#[test]
fn bsp_waits_for_a_straggler_and_asp_does_not() {
    let wait = |strategy| {
        let (results, _) = run(&setup(4, strategy), learners(4, 10, 60 * MS)).expect("sound");
        assert!(results.workers.iter().all(|w| w.rounds == 10 && w.failure.is_none()), "{results:?}");
        results.workers[1].wait_ns
    };
    assert!(wait(Strategy::Bsp).abs_diff(10 * 40 * MS) < 5 * MS, "{}", wait(Strategy::Bsp));
    assert!(wait(Strategy::Asp) < MS);
}
