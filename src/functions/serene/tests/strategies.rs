//! Each row of the rule table.

use super::*;

const LATE_AND_GONE: Strategy = Strategy::Partial { k: Quorum::AllBut(1), late: Late::Drop };
const LATE_AND_BACK: Strategy = Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return };

#[test]
fn bsp_releases_a_round_to_all_when_all_are_in() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    assert_eq!(net.sum(), [0; LANES], "an open round is not visible");
    let out = net.release(1, 1, 5);
    let expected = sum(&[3, 5]);
    for (worker, copy) in out.iter().enumerate() {
        assert_eq!((copy.port, usize::from(copy.header.worker)), (worker as u16, worker));
        assert_eq!(copy.lanes, expected);
        assert_eq!((copy.included(), copy.header.frontier, copy.header.next_round), (0b11, 1, 2));
        assert_eq!((copy.header.norm, copy.header.rule_version), (2, 1));
        assert_eq!(copy.flags(), Flags::MCAST);
    }
    net.park(1, 2, 7);
    net.release(0, 2, 11);
    assert_eq!(net.sum(), sum(&[3, 5, 7, 11]));
    assert_eq!(net.switch.counters().drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
    let kinds = net.digests();
    let (parked, last) = (DigestKind::Arrived { parked: true }, DigestKind::Arrived { parked: false });
    let released = DigestKind::Released { included: 0b11, closed: false };
    assert_eq!(kinds[..3], [(1, 0, parked), (1, 1, last), (1, 1, released)]);
    assert_eq!(kinds[3..], [(2, 1, parked), (2, 0, last), (2, 0, released)]);
}

#[test]
fn a_contribution_that_comes_again_is_told_to_wait_or_shown_the_result_and_never_counts_twice() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    let wait = net.ask(0, 1, 3);
    assert_eq!((wait.header.kind, wait.header.round, wait.header.lane_count), (Type::Wait, 1, 0));
    assert_eq!((wait.included(), wait.header.frontier, wait.header.ts_us), (0b01, 0, 5));
    let released = net.release(1, 1, 5);
    for _ in 0..2 {
        let replay = net.ask(0, 1, 3);
        assert_eq!((replay.flags(), replay.included(), &replay.lanes), (Flags::REPLAY, 0b11, &released[0].lanes));
    }
    let counters = net.view().counters;
    assert_eq!((counters.pushes, counters.duplicates, counters.waits, counters.released), (5, 3, 1, 1));
}

#[test]
fn a_repeated_read_is_not_torn_by_the_round_that_follows() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    let first = net.release(1, 1, 5);
    net.park(1, 2, 7);
    let replay = net.ask(0, 1, 3);
    assert_eq!(
        (replay.lanes.clone(), replay.included()),
        (first[0].lanes.clone(), 0b11),
        "round 2 is open, and not in it"
    );
    net.release(0, 2, 11);
    let replay = net.ask(0, 1, 3);
    assert_eq!((replay.header.round, replay.included(), replay.header.frontier), (1, 0b11, 2));
}

#[test]
fn partial_releases_when_k_are_in_and_leaves_the_others_out() {
    for (strategy, norm, returned) in [(LATE_AND_GONE, 2, false), (LATE_AND_BACK, 3, true)] {
        let mut net = Net::joined(&job(3, 1, strategy));
        net.park(0, 1, 3);
        let out = net.release(2, 1, 5);
        let late: Vec<_> = out.iter().map(|copy| copy.has(Flags::LATE)).collect();
        assert_eq!(late, [false, true, false], "each copy says whether its worker is in");
        assert!(out.iter().all(|copy| copy.included() == 0b101 && copy.has(Flags::RETURN) == returned));
        assert_eq!(out[1].header.norm, norm);
        let answer = net.ask(1, 1, 7);
        assert_eq!(answer.flags(), Flags::LATE.with(Flags::RETURN, returned));
        assert_eq!((answer.header.round, answer.included(), answer.header.next_round), (1, 0b101, 2));
        assert_eq!(answer.lanes, sum(&[3, 5]), "not added");
        let again = net.ask(1, 1, 7);
        assert!(again.has(Flags::LATE) && again.has(Flags::REPLAY), "the same truth");
        assert_eq!((net.sum(), net.view().counters.late), (sum(&[3, 5]), 1));
    }
}

#[test]
fn a_straggler_is_told_to_go_on_from_the_open_round_however_far_behind_it_is() {
    let mut net = Net::joined(&job(3, 1, LATE_AND_GONE));
    for round in 1..=20 {
        net.park(0, round, 1);
        net.release(1, round, 2);
    }
    let first = net.ask(2, 1, 9);
    assert!(first.has(Flags::LATE) && !first.has(Flags::OLD), "never seen before, so surely not in");
    assert_eq!((first.included(), first.header.next_round, first.header.frontier), (0, 21, 20));
    let again = net.ask(2, 1, 9);
    assert!(again.has(Flags::OLD) && !again.has(Flags::LATE), "its slot was taken over: nobody knows");
    let kept = net.ask(0, 6, 1);
    assert!(kept.has(Flags::REPLAY) && kept.included() == 0b11, "15 rounds back are remembered");
    assert!(net.ask(0, 4, 1).has(Flags::OLD));
    assert_eq!(net.sum(), sum(&[[1, 2]; 20].concat()));
    net.park(2, 21, 5);
    net.release(0, 21, 6);
}

#[test]
fn ssp_adds_at_once_and_parks_who_is_too_far_ahead() {
    let mut net = Net::joined(&job(2, 1, Strategy::Ssp { slack: 1 }));
    let first = net.ask(0, 1, 3);
    assert_eq!((first.lanes.clone(), first.included(), first.flags()), (sum(&[3]), 0b01, Flags::default()));
    assert_eq!((first.header.frontier, first.header.next_round), (0, 2));
    net.park(0, 2, 4);
    assert_eq!(net.sum(), sum(&[3, 4]), "it waits, but its contribution is visible");
    assert_eq!(net.ask(0, 2, 4).header.kind, Type::Wait);
    let out = net.release(1, 1, 5);
    assert_eq!((out[0].lanes.clone(), out[0].included(), out[0].header.frontier), (sum(&[3, 4, 5]), 0b11, 1));
    let released = net.ask(0, 2, 4);
    assert_eq!((released.header.kind, released.flags(), released.included()), (Type::Result, Flags::REPLAY, 0b01));
    net.release(1, 2, 6);
    assert_eq!(net.sum(), sum(&[3, 4, 5, 6]));
}

#[test]
fn a_full_slack_does_not_alias_with_the_open_round() {
    let mut net = Net::joined(&job(2, 1, Strategy::Ssp { slack: MAX_SLACK }));
    for round in 1..=15 {
        net.ask(0, round, 1);
    }
    net.park(0, 16, 1);
    assert_eq!(net.push(0, 0, 17, 1), [], "beyond what its base allows");
    assert_eq!(net.drops(DropReason::Premature), 1);
    for round in 1..=16 {
        let out = net.release(1, round, 2);
        assert_eq!((out[0].included(), out[0].header.frontier), (0b11, round));
    }
    assert_eq!(net.sum(), sum(&[[1, 2]; 16].concat()));
}

#[test]
fn asp_never_waits_and_counts_each_contribution_once_whatever_its_age() {
    let mut net = Net::joined(&job(2, 1, Strategy::Asp));
    for round in 1..=40 {
        let answer = net.ask(0, round, 1);
        assert_eq!((answer.header.kind, answer.flags()), (Type::Result, Flags::default()));
    }
    for round in 1..=3 {
        assert_eq!(net.ask(1, round, 2).header.next_round, round + 1);
        assert!(net.ask(1, round, 2).has(Flags::REPLAY));
    }
    assert_eq!(net.sum(), sum(&[vec![1; 40], vec![2; 3]].concat()));
    assert_eq!(net.view().counters.late, 0);
}

#[test]
fn a_close_releases_a_round_with_enough_contributions_and_only_once() {
    let timed = Strategy::Timed { deadline_ns: 1, kmin: Quorum::Exactly(2), late: Late::Drop };
    let mut net = Net::joined(&job(3, 1, timed));
    net.park(0, 1, 3);
    let early = net.close(0, 1, 0, 2);
    assert_eq!((early.len(), early[0].port, early[0].header.kind), (1, CPU, Type::Status));
    assert_eq!((early[0].header.frontier, early[0].included()), (0, 0), "one is not enough");
    net.park(1, 1, 5);
    let out = net.close(0, 1, 0, 2);
    assert_eq!(out.len(), 3);
    let late: Vec<_> = out.iter().map(|copy| copy.has(Flags::LATE)).collect();
    assert_eq!((late, out[0].lanes.clone(), out[0].included()), (vec![false, false, true], sum(&[3, 5]), 0b11));
    assert!(out.iter().all(|copy| copy.has(Flags::CLOSED) && copy.has(Flags::MCAST) && copy.header.round == 1));
    let again = net.close(0, 1, 0, 2);
    assert_eq!((again.len(), again[0].header.kind, again[0].header.frontier), (1, Type::Status, 1));
    let late = net.ask(2, 1, 7);
    assert!(late.has(Flags::LATE) && late.has(Flags::CLOSED));
    assert_eq!((net.sum(), net.view().counters.closed), (sum(&[3, 5]), 1));
    let released = DigestKind::Released { included: 0b11, closed: true };
    assert!(net.digests().contains(&(1, 0, released)));
    net.base = [1; 4];
    net.park(0, 2, 1);
    net.park(1, 2, 2);
    net.release(2, 2, 3);
}

#[test]
fn a_close_that_requires_somebody_waits_for_them() {
    let mut net = Net::joined(&job(3, 1, Strategy::Bsp));
    net.park(0, 1, 3);
    net.park(2, 1, 5);
    assert_eq!(net.close(0, 1, 0b011, 1)[0].header.kind, Type::Status, "worker 1 is not in");
    assert_eq!(net.close(0, 1, 0b101, 1).len(), 3);
    assert_eq!(net.sum(), sum(&[3, 5]));
    assert_eq!(net.close(0, 2, 0, 1)[0].header.kind, Type::Status, "a round that nobody is in stays open");
    assert_eq!(net.view().frontier, 1);
    let out = net.close(0, 2, 0, 0);
    assert_eq!((out[0].header.frontier, out[0].lanes.clone()), (2, sum(&[3, 5])), "unless that is asked for");
}

#[test]
fn closing_under_ssp_frees_who_waits_for_a_worker_that_is_gone() {
    let mut net = Net::joined(&job(3, 1, Strategy::Ssp { slack: 1 }));
    for worker in [0, 1] {
        net.ask(worker, 1, 1);
        net.park(worker, 2, 1);
    }
    let out = net.close(0, 1, 0b011, 1);
    assert_eq!((out.len(), out[0].header.frontier, out[0].lanes.clone()), (3, 1, sum(&[1; 4])));
    assert_eq!(net.ask(0, 2, 1).header.kind, Type::Result);
    assert!(!net.ask(2, 1, 9).has(Flags::LATE), "nothing is late where all is visible at once");
    assert_eq!(net.sum(), sum(&[1, 1, 1, 1, 9]));
}

#[test]
fn sums_wrap() {
    let mut net = Net::joined(&job(2, 1, Strategy::Bsp));
    let huge = |net: &Net, worker| (net.push_header(worker, 0, 1), [i32::MAX; LANES]);
    let (header, lanes) = huge(&net, 0);
    assert_eq!(net.by_worker(0, header, &lanes), []);
    let (header, lanes) = huge(&net, 1);
    assert_eq!(net.by_worker(1, header, &lanes)[0].lanes, [-2; LANES]);
}

#[test]
fn segments_and_jobs_do_not_touch_each_other() {
    let mut net = Net::joined(&job(2, 3, Strategy::Bsp));
    let other = Job { id: 2, ..job(2, 1, Strategy::Asp) };
    net.serene().add_job(&other).expect("another id");
    assert_eq!(net.serene().add_job(&other), Err(JobError::Exists(2)));
    assert_eq!(net.push(0, 2, 1, 3), []);
    assert_eq!(net.push(1, 1, 1, 5), []);
    let out = net.push(1, 2, 1, 7);
    assert_eq!((out.len(), out[0].lanes.clone(), out[0].header.segment), (2, sum(&[3, 7]), 2));
    let last = net.digests().iter().filter(|(round, ..)| *round > 0).count();
    assert_eq!(last, 3, "digests are of the last segment");
    for header in [Repr::new(Type::Join, 2), net.push_header(0, 0, 1)] {
        let header = Repr { job: 2, incarnation_or_included: 100, ..header };
        let lanes = lanes(9);
        net.by_worker(0, header, if header.kind == Type::Push { &lanes } else { &[] });
    }
    let sum_of = |net: &Net, job, segment| net.switch.functions().0.segment(job, segment).expect("it is there").sum;
    assert_eq!((sum_of(&net, 2, 0), sum_of(&net, 1, 0)), (sum(&[9]), vec![0; LANES]));
    assert!(net.serene().remove_job(2) && !net.serene().remove_job(2));
    assert_eq!(sum_of(&net, 1, 2), sum(&[3, 7]));
}
