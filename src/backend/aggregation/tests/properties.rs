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

/// What happened in some runs.
#[derive(Debug, Default)]
struct Tally {
    swaps: usize,
    refused_boundaries: u64,
    restarts: u64,
    absences: u64,
}

/// Runs seeds.
///
/// # Panics
/// At the first violation.
fn random_runs(seeds: Range<u64>, change: impl Fn(Setup) -> Setup) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let mut lab = Lab::new(change(Setup::random(seed)));
        if let Err(violation) = lab.run() {
            panic!("seed {seed}, step {}: {violation}\n{:?}", lab.steps(), lab.setup);
        }
        tally.swaps += lab.swaps();
        tally.refused_boundaries += lab.refusals();
        tally.restarts += lab.restarts;
        tally.absences += lab.absences;
    }
    println!("{tally:?}");
    tally
}

/// Workers leave or die, and come back, instead of being restarted.
fn with_absences(setup: Setup) -> Setup {
    Setup { absence_every: 300, restart_every: 0, ..setup }
}

/// The same, and others are restarted meanwhile.
fn with_absences_and_restarts(setup: Setup) -> Setup {
    Setup { restart_every: setup.restart_every, ..with_absences(setup) }
}

/// They are gone in such numbers that now and then nobody is left.
fn deserted(setup: Setup) -> Setup {
    Setup { absence_every: 100, deserted: true, ..setup }
}

#[test]
fn a_thousand_random_swaps_under_faults_break_nothing() {
    let Tally { swaps, refused_boundaries, restarts, .. } = random_runs(0..70, |setup| setup);
    assert!(swaps >= 1000 && refused_boundaries > 20 && restarts > 100);
}

#[test]
fn workers_that_leave_or_die_and_come_back_break_nothing() {
    assert!(random_runs(0..20, with_absences).absences > 50);
    assert!(random_runs(0..20, with_absences_and_restarts).restarts > 100);
    assert!(random_runs(0..20, deserted).absences > 300);
}

/// `cargo test --lib a_thousand_networks -- --ignored --nocapture`
#[test]
#[ignore = "takes 5 s, and minutes without optimisation"]
fn a_thousand_networks_break_nothing() {
    random_runs(1000..2000, |setup| setup);
}

/// `cargo test --release --lib absences_in_thousands -- --ignored --nocapture`
#[test]
#[ignore = "takes a minute, and many without optimisation"]
fn absences_in_thousands_of_networks_break_nothing() {
    for change in [with_absences, with_absences_and_restarts, deserted] {
        random_runs(1000..5000, change);
    }
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
