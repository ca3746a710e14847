//! What each check is for: what happens without it.

use super::*;

fn without(job: &Job, off: impl FnOnce(&mut Guards)) -> Net {
    let mut net = Net::joined(job);
    let mut guards = Guards::ALL;
    off(&mut guards);
    net.serene().set_guards(JOB, guards);
    net
}

#[test]
fn without_the_duplicate_check_a_repeated_contribution_counts_twice() {
    let mut net = without(&job(2, 1, Strategy::Bsp), |guards| guards.duplicate = false);
    net.park(0, 1, 3);
    net.release(0, 1, 3);
    assert_eq!(net.sum(), sum(&[3, 3]));
}

#[test]
fn without_the_boundary_check_a_round_goes_by_two_rules() {
    let mut net = without(&job(2, 1, Strategy::Bsp), |guards| guards.boundary = false);
    net.park(0, 1, 3);
    assert_eq!(net.arm(1, 1, Strategy::Asp).0, Code::Done);
    let answer = net.ask(1, 1, 5);
    assert_eq!((answer.lanes, answer.header.frontier), (sum(&[5]), 1), "3 stays behind in the accumulator");
    assert_eq!(net.serene().segment(JOB, 0).expect("it is there").open, sum(&[3]));
}

#[test]
fn without_the_base_check_a_contribution_lands_in_the_round_before_its_own() {
    let mut net = without(&job(2, 1, Strategy::Bsp), |guards| guards.base = false);
    net.park(0, 1, 3);
    net.park(0, 2, 7);
    net.release(1, 1, 5);
    assert_eq!(net.sum(), sum(&[3, 7, 5]), "round 1 has one of round 2 in it");
}

#[test]
fn without_the_check_for_old_rounds_a_packet_that_was_held_up_counts_after_its_rule_is_gone() {
    let swapped = |guard: bool| {
        let mut net = without(&job(2, 1, Strategy::Asp), |guards| guards.old = guard);
        net.ask(0, 1, 1);
        net.ask(1, 1, 2);
        assert_eq!(net.arm(1, 3, Strategy::Ssp { slack: 3 }).0, Code::Done);
        net.ask(0, 3, 1);
        assert_eq!(net.ask_switch(Type::Complete, 1, 0).0, Code::Done);
        // Round 2 of worker 1, which was sent before it went on to round 3.
        let held_up = net.ask(1, 2, 9);
        (net.sum(), held_up.has(Flags::OLD))
    };
    assert_eq!(swapped(true), (sum(&[1, 2, 1]), true));
    assert_eq!(swapped(false), (sum(&[1, 2, 1, 9]), false));
}
