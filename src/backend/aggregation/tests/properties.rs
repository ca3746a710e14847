//! The protocol as a whole, under faults; and that each guard is needed.

use std::ops::Range;

use super::lab::{Faults, Lab, Setup};
use crate::functions::serene::{Late, Quorum, Strategy};

const BAD: Faults = Faults { loss: 50, duplication: 50, reordering: 300, hold: 5 };

#[test]
fn bsp_gives_every_worker_the_sum_of_all_bit_for_bit_over_100_rounds() {
    for faults in [Faults::default(), BAD] {
        let mut lab = Lab::new(Setup { calm_rounds: 101, ..Setup::of(3, 4, 3, Strategy::Bsp, faults) });
        lab.run().expect("nothing is violated");
        assert_eq!(lab.oracle.counted.len(), 100 * 4 * 3);
        for worker in lab.workers() {
            assert_eq!(worker.sum(), lab.pushed);
        }
    }
}

#[test]
fn partial_sums_what_answers_say_is_included() {
    for (seed, late) in [(1, Late::Drop), (2, Late::Return)] {
        let start = Strategy::Partial { k: Quorum::AllBut(1), late };
        let mut lab = Lab::new(Setup { calm_rounds: 100, ..Setup::of(seed, 4, 3, start, BAD) });
        lab.run().expect("nothing is violated");
        let (mut included, mut left_out) = (0, 0);
        for worker in 0..4 {
            let reports = lab.reports(worker);
            included += reports.iter().map(|report| report.included).sum::<u32>();
            left_out += reports.iter().map(|report| report.late).sum::<u32>();
            assert_eq!(reports.iter().map(|report| report.forgotten).sum::<u32>(), 0);
            let returned = reports.iter().map(|report| report.returned).sum::<u32>();
            let late_ones = reports.iter().map(|report| report.late).sum::<u32>();
            assert_eq!(returned, if late == Late::Return { late_ones } else { 0 });
        }
        assert_eq!(included as usize, lab.oracle.counted.len());
        assert!(left_out > 0, "somebody was late");
    }
}

/// Runs seeds and says how many swaps, refused boundaries and restarts there were.
///
/// # Panics
/// At the first violation.
fn random_runs(seeds: Range<u64>) -> (usize, u64, u64) {
    let (mut swaps, mut refusals, mut restarts) = (0, 0, 0);
    for seed in seeds {
        let mut lab = Lab::new(Setup::random(seed));
        if let Err(violation) = lab.run() {
            panic!("seed {seed}, step {}: {violation}\n{:?}", lab.steps(), lab.setup);
        }
        swaps += lab.swaps();
        refusals += lab.refusals();
        restarts += lab.restarts;
    }
    println!("{swaps} swaps, {refusals} refused boundaries, {restarts} restarts");
    (swaps, refusals, restarts)
}

#[test]
fn a_thousand_random_swaps_under_faults_break_nothing() {
    let (swaps, refusals, restarts) = random_runs(0..70);
    assert!(swaps >= 1000 && refusals > 20 && restarts > 100, "{swaps} {refusals} {restarts}");
}

#[test]
fn workers_that_leave_or_die_and_come_back_break_nothing() {
    let mut absences = 0;
    for seed in 0..20 {
        let mut lab = Lab::new(Setup { absence_every: 300, restart_every: 0, ..Setup::random(seed) });
        if let Err(violation) = lab.run() {
            panic!("seed {seed}, step {}: {violation}\n{:?}", lab.steps(), lab.setup);
        }
        absences += lab.absences;
    }
    assert!(absences > 50, "{absences}");
}

/// `cargo test --lib thousand_networks -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn random_swaps_in_a_thousand_networks_break_nothing() {
    random_runs(1000..2000);
}

/// Runs seeds with something left out until one of `invariants` is violated, and says how. With nothing left out none is.
///
/// # Panics
/// When none is.
fn expect_violation(invariants: &[&str], mutate: impl Fn(&mut Setup)) {
    for seed in 0..50 {
        let mut setup = Setup { segments: 3, ..Setup::random(seed) };
        assert_eq!(Lab::new(setup.clone()).run(), Ok(()), "seed {seed} as it should be");
        mutate(&mut setup);
        if let Err(violation) = Lab::new(setup).run()
            && invariants.iter().any(|invariant| violation.starts_with(invariant))
        {
            return println!("seed {seed}: {violation}");
        }
    }
    panic!("{invariants:?} hold without");
}

#[test]
fn without_the_guard_of_boundaries_a_round_is_counted_under_two_rules() {
    expect_violation(&["I2"], |setup| setup.guards.boundary = false);
}

#[test]
fn without_the_check_for_duplicates_a_contribution_counts_twice() {
    expect_violation(&["I1"], |setup| setup.guards.duplicate = false);
}

#[test]
fn without_the_least_next_round_and_the_base_guard_a_round_begins_in_an_open_one() {
    expect_violation(&["I3"], |setup| {
        setup.guards.base = false;
        setup.by_greatest_next_round = true;
    });
}
