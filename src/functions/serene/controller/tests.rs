//! The controller against answers written by hand.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::silence::SILENCE_NS;
use super::*;
use crate::functions::serene::request::control_frame;
use crate::functions::serene::{Late, Quorum};
use crate::wire::aggregation::Code;

const MS: Nanos = 1_000_000;

const SERVICE: SereneConfig =
    SereneConfig { address: Ipv4Addr::new(10, 0, 0, 254), mac: [2; 6], cpu_port: Some(4), incarnation: 7 };

fn job(policies: Vec<Policy>) -> Job {
    let member = |worker| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker), 7001);
    let members = (1..=3).map(member).collect();
    Job { id: 1, members, segments: 2, lanes: 8, scale_log2: 24, start: Strategy::Bsp, policies }
}

/// A controller and what it said last.
struct Bench {
    controller: Controller,
    now: Nanos,
}

impl Bench {
    fn new(policies: Vec<Policy>) -> Self {
        let mut bench = Bench { controller: Controller::new(&SERVICE, &job(policies)), now: 1000 * MS };
        for worker in 0..3 {
            bench.digest(worker, 0, DigestKind::Joined { incarnation: 9, restarted: false });
        }
        bench.poll();
        bench.events();
        bench
    }

    fn digest(&mut self, worker: u8, round: u32, kind: DigestKind) {
        self.controller.handle_digest(self.now, &Digest { job: 1, round, worker, at: self.now, kind });
    }

    /// A round of all workers, `span` apart.
    fn round(&mut self, round: u32, span: Nanos) {
        for worker in 0..3 {
            self.digest(worker, round, DigestKind::Arrived { parked: worker < 2 });
            self.now += if worker < 2 { span } else { 0 };
        }
        self.digest(2, round, DigestKind::Released { included: 0b111, closed: false });
    }

    /// What it sends now: headers and bodies. Other commands are left out.
    fn poll(&mut self) -> Vec<(Repr, Control)> {
        let mut commands = Vec::new();
        self.controller.poll(self.now, &mut commands);
        let sent = commands.into_iter().filter_map(|command| match command {
            Command::Inject(frame) => {
                let packet = Packet::new_checked(payload(&frame)?).expect("whole");
                Some((Repr::parse(&packet), packet.control().expect("a body")))
            }
            _ => None,
        });
        sent.collect()
    }

    /// The one request that it sends now.
    fn request(&mut self) -> (Type, Control) {
        let sent = self.poll();
        assert_eq!(sent.len(), 1, "{sent:?}");
        (sent[0].0.kind, sent[0].1)
    }

    /// The switch answers a request.
    fn answer(&mut self, request: (Type, Control), code: Code, max_round: u32) {
        let header = Repr { round: max_round, norm: request.0 as u8, ..Repr::new(Type::ArmResponse, 1) };
        let frame = control_frame(SERVICE.address, SERVICE.mac, &header, &Control { code, ..request.1 });
        self.controller.handle_packet(self.now, &frame);
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.controller.pop_event()).map(|event| event.to_string()).collect()
    }

    fn in_force(&self) -> String {
        self.controller.status().in_force.to_string()
    }

    /// Everything goes well.
    fn complete(&mut self) {
        let arm = self.request();
        assert_eq!(arm.0, Type::Arm);
        self.answer(arm, Code::Done, self.controller.max_round);
        self.digest(0, arm.1.boundary, DigestKind::Reached);
        let complete = self.request();
        assert_eq!(complete.0, Type::Complete);
        self.answer(complete, Code::Done, arm.1.boundary);
    }
}

fn compare(metric: Metric, relation: Relation, value: f64, rounds: u32) -> Condition {
    Condition::Compare(Comparison { metric, relation, value, rounds })
}

fn policy(when: Condition, then: Action, cooldown_rounds: u32) -> Policy {
    Policy { within: None, when, then, cooldown_rounds }
}

const PARTIAL: Strategy = Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return };

#[test]
fn a_swap_is_armed_beyond_the_last_round_known_and_completed_when_all_are_past_it() {
    let mut bench = Bench::new(Vec::new());
    bench.round(1, MS);
    bench.controller.swap(bench.now, Strategy::Ssp { slack: 3 });
    let mut commands = Vec::new();
    bench.controller.poll(bench.now, &mut commands);
    let rule = Strategy::Ssp { slack: 3 }.compile(0b111, 2, Visibility::Deferred);
    assert_eq!(commands[0], Command::Rule { job: 1, bank: 1, rule }, "the rule is there before ARM");
    assert!(matches!(commands[1..], [Command::Inject(_)]));
    bench.now += RETRY_NS;
    let arm = bench.request();
    assert_eq!((arm.0, arm.1.swap_id, arm.1.boundary, arm.1.from_version, arm.1.to_version), (Type::Arm, 1, 3, 1, 2));
    bench.answer(arm, Code::Done, 1);
    assert_eq!(bench.poll(), [], "nothing to say until everybody is there");
    bench.digest(0, 3, DigestKind::Arrived { parked: false });
    bench.digest(1, 3, DigestKind::Reached);
    let complete = bench.request();
    assert_eq!((complete.0, complete.1.swap_id), (Type::Complete, 1));
    bench.answer(complete, Code::Done, 3);
    assert_eq!((bench.poll(), bench.in_force()), (vec![], "ssp(3) of 3 workers".into()));
    let swap = bench.controller.swaps().next().expect("one");
    assert_eq!((swap.outcome, swap.boundary, swap.naks, swap.cause), (Outcome::Stable, 3, 0, Cause::Operator));
    assert!(swap.armed_at <= swap.stable_at);
    let events = bench.events();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0], "swap 1 armed: bsp of 3 workers -> ssp(3) of 3 workers at round 3 (asked for)");
}

#[test]
fn requests_are_sent_until_they_are_answered_and_copies_of_answers_do_nothing() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, Strategy::Asp);
    let arm = bench.request();
    assert_eq!((bench.poll(), bench.controller.next_wakeup()), (vec![], Some(bench.now + RETRY_NS)));
    for _ in 0..3 {
        bench.now += RETRY_NS;
        assert_eq!(bench.request(), arm, "the same request");
    }
    bench.answer(arm, Code::Done, 0);
    bench.answer(arm, Code::Done, 0);
    bench.digest(0, arm.1.boundary, DigestKind::Reached);
    let complete = bench.request();
    bench.answer(arm, Code::Done, 0);
    assert!(bench.controller.status().swap.is_some(), "a copy of the answer to ARM is no answer to COMPLETE");
    bench.now += RETRY_NS;
    assert_eq!(bench.request(), complete);
    bench.answer(complete, Code::Done, 5);
    bench.answer(complete, Code::Done, 5);
    bench.digest(0, arm.1.boundary, DigestKind::Reached);
    assert_eq!((bench.poll(), bench.in_force()), (vec![], "asp of 3 workers".into()));
    assert_eq!(bench.controller.swaps().count(), 1);
}

#[test]
fn a_boundary_that_is_refused_is_raised_under_the_same_number() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, Strategy::Asp);
    let first = bench.request();
    bench.answer(first, Code::Nak, 9);
    bench.answer(first, Code::Nak, 9);
    let second = bench.request();
    assert_eq!((second.1.swap_id, second.1.boundary), (1, 11));
    bench.answer(second, Code::Done, 9);
    let record = bench.controller.status().swap.expect("armed");
    assert_eq!((record.naks, record.boundary), (1, 11), "a copy of the refusal counts once");
    assert_eq!(bench.events()[0], "swap 1: round 9 was pushed already; asking for round 11");
}

#[test]
fn a_swap_that_is_no_longer_wanted_is_taken_back_before_another_is_armed() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, Strategy::Asp);
    let arm = bench.request();
    bench.answer(arm, Code::Done, 0);
    bench.controller.swap(bench.now, PARTIAL);
    bench.controller.swap(bench.now, Strategy::Ssp { slack: 1 });
    let abort = bench.request();
    assert_eq!((abort.0, abort.1.swap_id), (Type::Abort, 1));
    bench.answer(abort, Code::Done, 1);
    let next = bench.request();
    assert_eq!((next.0, next.1.swap_id, next.1.to_version), (Type::Arm, 2, 3));
    let outcomes: Vec<_> = bench.controller.swaps().map(|swap| (swap.outcome, swap.to.strategy)).collect();
    let ssp = Strategy::Ssp { slack: 1 };
    assert_eq!(
        outcomes,
        [(Outcome::Superseded(Cause::Operator), Strategy::Asp), (Outcome::Pending, ssp)],
        "the latest wish counts"
    );
}

#[test]
fn a_swap_that_cannot_be_taken_back_is_finished_first() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, Strategy::Asp);
    let arm = bench.request();
    bench.answer(arm, Code::Done, 0);
    bench.controller.swap(bench.now, Strategy::Bsp);
    let abort = bench.request();
    bench.answer(abort, Code::TooLate, arm.1.boundary);
    assert_eq!(bench.poll(), []);
    bench.digest(0, arm.1.boundary, DigestKind::Reached);
    let complete = bench.request();
    bench.answer(complete, Code::Done, arm.1.boundary);
    let back = bench.request();
    assert_eq!((back.0, back.1.swap_id, bench.in_force()), (Type::Arm, 2, "asp of 3 workers".into()));
}

#[test]
fn a_worker_that_leaves_is_swapped_out_and_its_rounds_are_closed() {
    let mut bench = Bench::new(Vec::new());
    bench.round(1, MS);
    bench.digest(0, 2, DigestKind::Arrived { parked: true });
    bench.digest(2, 0, DigestKind::Left);
    let sent = bench.poll();
    let kinds: Vec<_> = sent.iter().map(|(header, _)| header.kind).collect();
    assert_eq!(kinds, [Type::Arm, Type::Close, Type::Close]);
    let (close, _) = sent[1];
    let asked = (close.segment, close.round, close.incarnation_or_included, close.norm);
    assert_eq!(asked, (0, 1, 0b011, 1), "the answer will say where the segment stands");
    assert_eq!(sent[0].1.boundary, 4);
    let arm = (Type::Arm, sent[0].1);
    bench.answer(arm, Code::Done, 2);
    let again = bench.poll();
    assert!(again.iter().all(|(header, _)| header.kind == Type::Close), "it is clear now which rounds: {again:?}");
    bench.digest(0, 4, DigestKind::Reached);
    let complete = bench.request();
    bench.answer(complete, Code::Done, 4);
    assert_eq!((bench.poll(), bench.in_force()), (vec![], "bsp of 2 workers".into()), "nothing more to close");
    assert_eq!(bench.events()[0], "worker 2 left");
}

#[test]
fn of_a_worker_that_is_behind_and_silent_the_log_is_told_once_and_when_it_is_back() {
    let mut bench = Bench::new(Vec::new());
    bench.round(1, MS);
    bench.events();
    bench.digest(0, 2, DigestKind::Arrived { parked: true });
    bench.digest(2, 2, DigestKind::Arrived { parked: true });
    assert!(bench.controller.next_wakeup().is_some_and(|at| at <= bench.now + SILENCE_NS));
    bench.now += SILENCE_NS;
    bench.poll();
    bench.poll();
    assert_eq!(bench.events(), ["worker 1 is behind and silent for 5 s; no policy has dropped it"], "the others wait");
    bench.digest(1, 2, DigestKind::Arrived { parked: false });
    bench.poll();
    assert_eq!(bench.events(), ["worker 1 is heard of again"]);
}

#[test]
fn under_asp_a_round_is_over_when_all_have_been_there() {
    let mut bench = Bench::new(Vec::new());
    bench.round(1, MS);
    bench.controller.swap(bench.now, Strategy::Asp);
    bench.complete();
    let boundary = bench.controller.swaps().last().expect("it is there").boundary;
    for (worker, ahead) in [(0, 40), (1, 3), (2, 20)] {
        bench.digest(worker, boundary + ahead, DigestKind::Arrived { parked: false });
    }
    assert_eq!(bench.controller.status().released, boundary + 3);
}

#[test]
fn of_workers_that_leave_one_after_another_each_says_why_the_swap_before_was_taken_back() {
    let mut bench = Bench::new(Vec::new());
    for worker in 0..3 {
        bench.digest(worker, 0, DigestKind::Left);
        let request = bench.request();
        bench.answer(request, Code::Done, 0);
        if request.0 == Type::Abort && worker < 2 {
            let next = bench.request();
            bench.answer(next, Code::Done, 0);
        }
    }
    let outcomes: Vec<_> = bench.controller.swaps().map(|swap| swap.outcome.to_string()).collect();
    assert_eq!(outcomes, ["superseded: worker 1 left", "superseded: worker 2 left"]);
    assert!(bench.controller.status().workers.iter().all(|worker| worker.left && !worker.live));
    bench.digest(1, 0, DigestKind::Joined { incarnation: 10, restarted: true });
    let status = bench.controller.status();
    assert_eq!(
        status.workers.iter().map(|worker| (worker.left, worker.live)).collect::<Vec<_>>(),
        [(true, false), (false, true), (true, false)]
    );
}

#[test]
fn a_worker_that_comes_back_is_swapped_in() {
    let mut bench = Bench::new(Vec::new());
    assert!(bench.controller.drop_member(bench.now, 1));
    assert!(!bench.controller.drop_member(bench.now, 1), "it is none any more");
    bench.complete();
    assert_eq!(bench.in_force(), "bsp of 2 workers");
    bench.digest(1, 0, DigestKind::Joined { incarnation: 10, restarted: true });
    bench.complete();
    assert_eq!(bench.in_force(), "bsp of 3 workers");
    let causes: Vec<_> = bench.controller.swaps().map(|swap| swap.cause).collect();
    assert_eq!(causes, [Cause::Dropped(1), Cause::Joined(1)]);
}

#[test]
fn a_worker_that_is_lost_while_a_swap_is_under_way_is_not_waited_for() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, PARTIAL);
    let arm = bench.request();
    bench.answer(arm, Code::Done, 0);
    bench.poll();
    bench.digest(0, arm.1.boundary, DigestKind::Arrived { parked: true });
    bench.controller.drop_member(bench.now, 2);
    let mut commands = Vec::new();
    bench.controller.poll(bench.now, &mut commands);
    let full = PARTIAL.compile(0b111, 2, Visibility::Deferred);
    let patched = Command::Rule { job: 1, bank: 1, rule: Rule { members: 0b011, ..full } };
    assert!(commands.contains(&patched), "the same need, but nobody who cannot come");
    bench.digest(0, arm.1.boundary, DigestKind::Reached);
    let sent = bench.poll();
    let complete = sent.iter().find(|(header, _)| header.kind == Type::Complete).expect("all others are there");
    bench.answer((Type::Complete, complete.1), Code::Done, arm.1.boundary);
    let sent = bench.poll();
    assert!(sent.iter().any(|(header, _)| header.kind == Type::Arm), "then one that does not count on it");
}

#[test]
fn when_nobody_is_left_there_is_nothing_to_swap_to() {
    let mut bench = Bench::new(Vec::new());
    for worker in 0..3 {
        bench.digest(worker, 0, DigestKind::Left);
        while let Some((Type::Arm, control)) = bench.poll().first().map(|(header, control)| (header.kind, *control)) {
            bench.answer((Type::Arm, control), Code::Done, 0);
        }
    }
    assert_eq!(bench.events().last().map(String::as_str), Some("no worker is left"));
}

#[test]
fn a_policy_swaps_when_its_condition_has_held_for_so_many_rounds() {
    let slow = policy(compare(Metric::WaitP95, Relation::Greater, 20e6, 3), Action::Swap(PARTIAL), 0);
    let mut bench = Bench::new(vec![slow]);
    for (round, span) in [(1, 15 * MS), (2, 15 * MS), (3, MS), (4, 15 * MS), (5, 15 * MS)] {
        bench.round(round, span);
        assert_eq!(bench.poll(), [], "round {round}");
    }
    bench.round(6, 15 * MS);
    let arm = bench.request();
    assert_eq!((arm.0, arm.1.boundary), (Type::Arm, 8));
    assert_eq!(bench.controller.swaps().last().map(|swap| swap.cause), Some(Cause::Policy(0)));
}

#[test]
fn rounds_that_straddle_a_swap_are_not_judged() {
    let slow = policy(compare(Metric::Span, Relation::Greater, 20e6, 1), Action::Swap(Strategy::Asp), 0);
    let mut bench = Bench::new(vec![slow]);
    bench.controller.swap(bench.now, PARTIAL);
    let arm = bench.request();
    bench.answer(arm, Code::Done, 0);
    bench.round(1, 50 * MS);
    assert_eq!(bench.poll(), []);
    bench.digest(0, 2, DigestKind::Reached);
    let complete = bench.request();
    bench.answer(complete, Code::Done, 2);
    bench.round(2, 50 * MS);
    assert_eq!(bench.poll(), [], "the boundary round");
    bench.round(3, 50 * MS);
    assert_eq!(bench.request().0, Type::Arm);
}

#[test]
fn a_policy_that_flaps_is_held_by_its_cooldown() {
    let policies = vec![
        Policy {
            within: Some("bsp"),
            ..policy(compare(Metric::Span, Relation::Greater, 1.0, 1), Action::Swap(PARTIAL), 20)
        },
        Policy {
            within: Some("partial"),
            ..policy(compare(Metric::Span, Relation::Greater, 1.0, 1), Action::Swap(Strategy::Bsp), 20)
        },
    ];
    let mut bench = Bench::new(policies);
    let mut boundaries = Vec::new();
    for round in 1..100 {
        bench.round(round, MS);
        if let Some((header, control)) = bench.poll().first() {
            boundaries.push(control.boundary);
            bench.answer((header.kind, *control), Code::Done, round);
            bench.digest(0, control.boundary, DigestKind::Reached);
            let complete = bench.request();
            bench.answer(complete, Code::Done, control.boundary);
        }
    }
    let gaps: Vec<_> = boundaries.windows(3).map(|window| window[2] - window[0]).collect();
    assert!(boundaries.len() > 4 && gaps.iter().all(|gap| *gap >= 20), "{boundaries:?}");
    assert!(boundaries.len() <= 10, "at most one swap a policy in 20 rounds: {boundaries:?}");
}

#[test]
fn the_first_policy_that_matches_wins_and_hold_keeps_the_others_back() {
    let always = compare(Metric::IncludedMin, Relation::AtLeast, 1.0, 1);
    let calm = compare(Metric::Span, Relation::Less, 20e6, 1);
    let hold = policy(Condition::All(vec![always.clone(), calm]), Action::Hold, 0);
    let mut bench = Bench::new(vec![
        hold,
        policy(always.clone(), Action::Swap(PARTIAL), 0),
        policy(always, Action::Swap(Strategy::Asp), 0),
    ]);
    bench.round(1, MS);
    assert_eq!(bench.poll(), []);
    bench.round(2, 30 * MS);
    bench.poll();
    assert_eq!(bench.controller.status().wanted.strategy, PARTIAL);
}

#[test]
fn ssp_within_bounds_takes_the_slack_that_the_hindmost_needs() {
    let always = Condition::Any(vec![
        compare(Metric::LagMax, Relation::Greater, 99.0, 1),
        compare(Metric::IncludedMin, Relation::AtLeast, 1.0, 1),
    ]);
    for (ahead, slack) in [(0, 2), (3, 4), (9, 5)] {
        let mut bench = Bench::new(vec![policy(always.clone(), Action::SspWithin { low: 2, high: 5 }, 0)]);
        bench.digest(0, 2 + ahead, DigestKind::Arrived { parked: true });
        bench.round(1, MS);
        bench.poll();
        assert_eq!(bench.controller.status().wanted.strategy, Strategy::Ssp { slack }, "{ahead} ahead");
    }
}

#[test]
fn a_silent_worker_is_dropped_by_the_policy_that_says_so() {
    let silent = policy(compare(Metric::Silent, Relation::Greater, 5e9, 1), Action::DropMember(None), 0);
    let mut bench = Bench::new(vec![silent]);
    let wakeup = bench.controller.next_wakeup().expect("somebody may be silent");
    assert_eq!(wakeup, bench.now + 5_000 * MS + 1);
    bench.now += 4_000 * MS;
    for worker in [0, 2] {
        bench.digest(worker, 0, DigestKind::Alive);
    }
    bench.now += 1_500 * MS;
    let sent = bench.poll();
    assert_eq!(sent.first().map(|(header, _)| header.kind), Some(Type::Arm));
    assert_eq!(bench.controller.status().wanted.members, 0b101);
    assert_eq!(bench.events(), ["worker 1 dropped: silent for 5500 ms"]);
}

#[test]
fn silence_that_nothing_is_done_about_does_not_keep_the_driver_busy() {
    let silent = compare(Metric::Silent, Relation::Greater, 5e9, 1);
    let mut bench = Bench::new(vec![policy(silent, Action::Swap(Strategy::Bsp), 0)]);
    bench.now += 6_000 * MS;
    assert_eq!(bench.poll(), []);
    assert!(bench.controller.next_wakeup().is_some_and(|at| at > bench.now));
}

#[test]
fn under_timed_a_round_is_closed_when_its_deadline_passes_and_left_alone_when_it_was_released() {
    let timed = Strategy::Timed { deadline_ns: 30 * MS, kmin: Quorum::Exactly(2), late: Late::Drop };
    let mut bench = Bench { controller: Controller::new(&SERVICE, &Job { start: timed, ..job(Vec::new()) }), now: MS };
    bench.round(1, 5 * MS);
    bench.now += 100 * MS;
    assert_eq!(bench.poll(), [], "round 1 was released in time");
    bench.digest(0, 2, DigestKind::Arrived { parked: true });
    let deadline = bench.now + 30 * MS;
    assert_eq!(bench.controller.next_wakeup(), Some(deadline));
    bench.now = deadline;
    let closes: Vec<_> =
        bench.poll().iter().map(|(h, _)| (h.kind, h.segment, h.round, h.norm, h.incarnation_or_included)).collect();
    assert_eq!(closes, [(Type::Close, 0, 2, 2, 0), (Type::Close, 1, 2, 2, 0)]);
}

#[test]
fn what_is_no_answer_of_the_job_is_ignored() {
    let mut bench = Bench::new(Vec::new());
    bench.controller.swap(bench.now, Strategy::Asp);
    let (_, control) = bench.request();
    for header in
        [Repr { norm: 8, ..Repr::new(Type::ArmResponse, 2) }, Repr { norm: 99, ..Repr::new(Type::ArmResponse, 1) }]
    {
        bench.controller.handle_packet(bench.now, &control_frame(SERVICE.address, [0; 6], &header, &control));
    }
    let mut frame = control_frame(SERVICE.address, [0; 6], &Repr::new(Type::ArmResponse, 1), &control);
    for len in (0..frame.len()).rev() {
        frame.truncate(len);
        bench.controller.handle_packet(bench.now, &frame);
    }
    assert!(bench.controller.status().swap.is_some_and(|swap| swap.armed_at.is_none()));
}
