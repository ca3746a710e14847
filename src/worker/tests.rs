//! Unit tests: one worker, and answers made by hand.

use super::*;
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Flags, HEADER_LEN, Notice, Packet, Repr, Type};

const MS: Nanos = 1_000_000;
const LANES: usize = 8;

/// A worker, its clock, and what it sent last.
struct Bench {
    worker: Worker,
    now: Nanos,
    out: [u8; HEADER_LEN + 4 * LANES],
}

impl Bench {
    fn new(segments: u32) -> Self {
        let config = Config::new(1, 2, segments, LANES, 77);
        let now = 1000 * MS;
        let worker = Worker::new(config, now).expect("a sound configuration");
        Bench { worker, now, out: [0; HEADER_LEN + 4 * LANES] }
    }

    /// One that has joined a job of four, at `round`.
    fn joined(segments: u32, round: u32) -> Self {
        let mut bench = Bench::new(segments);
        bench.send().expect("it joins");
        bench.answer_join(5, round);
        while let Some(pull) = bench.send() {
            bench.answer(&pull, 0, 0, |a| Repr { round: round - 1, frontier: round - 1, next_round: round, ..a });
        }
        assert_eq!(bench.worker.poll_event(), Some(Event::Joined { round }));
        bench
    }

    fn answer_join(&mut self, epoch: u32, next_round: u32) {
        let segments = self.worker.config().segments;
        let ack =
            Repr { segment: segments, incarnation_or_included: epoch, next_round, norm: 4, ..header(Type::JoinAck) };
        self.deliver(ack, 0);
    }

    fn send(&mut self) -> Option<Repr> {
        let len = self.worker.poll_transmit(self.now, &mut self.out)?;
        Some(Repr::parse(&Packet::new_checked(&self.out[..len]).expect("the worker writes sound packets")))
    }

    fn send_all(&mut self) -> Vec<Repr> {
        std::iter::from_fn(|| self.send()).collect()
    }

    fn lanes_sent(&self) -> Vec<i32> {
        Packet::new_checked(&self.out[..]).expect("a PUSH with lanes").lanes().collect()
    }

    fn deliver(&mut self, repr: Repr, sum: i32) {
        let mut bytes = [0; HEADER_LEN + 4 * LANES];
        repr.emit(&mut bytes).expect("it fits");
        for lane in bytes[HEADER_LEN..].as_chunks_mut().0 {
            *lane = sum.to_be_bytes();
        }
        self.worker.handle(self.now, &bytes[..repr.payload_len()]);
    }

    /// A RESULT to `request`, with lanes of `sum`.
    fn answer(&mut self, request: &Repr, sum: i32, included: u32, change: impl FnOnce(Repr) -> Repr) {
        let answer = Repr {
            round: request.round,
            segment: request.segment,
            lane_count: LANES as u16,
            norm: 4,
            frontier: request.round,
            incarnation_or_included: included,
            next_round: request.round + 1,
            ts_us: request.ts_us,
            ..header(Type::Result)
        };
        self.deliver(change(answer), sum);
    }

    fn wait(&mut self, request: &Repr) {
        self.deliver(Repr { round: request.round, segment: request.segment, ..header(Type::Wait) }, 0);
    }

    fn push(&mut self, value: f32) -> Vec<Repr> {
        let values = vec![value; self.worker.config().capacity()];
        self.worker.begin(self.now, &values).expect("it is ready");
        self.send_all()
    }

    fn report(&mut self) -> Report {
        match self.worker.poll_event() {
            Some(Event::Round(report)) => report,
            other => panic!("no round ended: {other:?}"),
        }
    }

    fn failure(&mut self) -> Failure {
        match self.worker.poll_event() {
            Some(Event::Failed(failure)) => failure,
            other => panic!("it did not fail: {other:?}"),
        }
    }
}

fn header(kind: Type) -> Repr {
    Repr { worker: 2, ..Repr::new(kind, 1) }
}

fn notice(notice: Notice, incarnation: u32) -> Repr {
    Repr { norm: notice as u8, incarnation_or_included: incarnation, ..header(Type::Notice) }
}

#[test]
fn joining_pulls_every_segment_and_begins_behind_the_least_frontier() {
    let mut bench = Bench::new(3);
    let join = bench.send().expect("it joins");
    assert_eq!((join.kind, join.incarnation_or_included, join.segment), (Type::Join, 77, 3));
    bench.answer_join(5, 1);
    let pulls = bench.send_all();
    assert_eq!(pulls.iter().map(|p| (p.kind, p.segment)).collect::<Vec<_>>(), [0, 1, 2].map(|s| (Type::Pull, s)));
    for (pull, frontier) in pulls.iter().zip([9, 7, 8]) {
        bench.answer(pull, 1 << 24, 0, |a| Repr { frontier, next_round: frontier + 1, ..a });
    }
    assert_eq!(bench.worker.poll_event(), Some(Event::Joined { round: 8 }));
    let mut delta = [0.0; 24];
    bench.worker.read_delta(&mut delta);
    assert_eq!(delta, [1.0; 24]);
}

#[test]
fn an_answer_to_an_earlier_process_of_the_rank_is_not_taken_for_one_to_a_pull() {
    let mut bench = Bench::new(1);
    bench.send();
    bench.answer_join(5, 1);
    let pull = bench.send().expect("it pulls");
    bench.answer(&pull, 0, 0, |a| Repr { ts_us: pull.ts_us - 1, ..a });
    assert_eq!(bench.worker.poll_event(), None);
    bench.answer(&pull, 0, 0, |a| a);
    assert!(bench.worker.is_ready());
}

#[test]
fn a_vector_is_divided_by_the_norm_scaled_and_rounded() {
    let mut bench = Bench::joined(1, 1);
    let push = bench.push(0.5);
    assert_eq!((push[0].round, push[0].norm, push[0].frontier), (1, 4, 0));
    assert_eq!(bench.lanes_sent(), [1 << 21; LANES]);
}

#[test]
fn values_that_are_no_numbers_or_too_many_are_refused_and_change_nothing() {
    let mut bench = Bench::joined(1, 1);
    let nan = bench.worker.begin(bench.now, &[0.0, f32::NAN]);
    assert_eq!(nan, Err(PushError::NotFinite { index: 1 }));
    assert_eq!(bench.worker.begin(bench.now, &[f32::INFINITY]), Err(PushError::NotFinite { index: 0 }));
    assert_eq!(bench.worker.begin(bench.now, &[0.0; 9]), Err(PushError::TooLong { given: 9, capacity: 8 }));
    assert!(bench.worker.is_ready());
    assert_eq!(bench.send(), None);
}

#[test]
fn a_value_beyond_its_share_of_the_range_is_clipped_and_counted() {
    let mut bench = Bench::joined(1, 1);
    bench.worker.begin(bench.now, &[1e9, -1e9, 1.0]).expect("it is ready");
    let push = bench.send().expect("it pushes");
    assert!(push.flags.contains(Flags::OVERFLOW));
    assert_eq!(bench.lanes_sent()[..3], [1 << 27, -(1 << 27), 1 << 22], "2^31 / (4 * 4)");
    assert_eq!(bench.worker.counters().clipped, 2);
}

#[test]
fn a_round_ends_with_its_last_answer_and_goes_on_by_the_least_next_round() {
    let mut bench = Bench::joined(3, 4);
    let pushes = bench.push(1.0);
    assert_eq!(pushes.len(), 3);
    bench.now += 2 * MS;
    for (push, next_round) in pushes.iter().zip([9, 6, 8]) {
        bench.answer(push, 5, 0b100, |a| Repr { next_round, frontier: next_round - 1, norm: 3, rule_version: 2, ..a });
    }
    let report = bench.report();
    assert_eq!((report.round, report.next_round, report.included, report.rule_version), (4, 6, 3, 2));
    assert_eq!((report.exchange_ns(), bench.worker.norm()), (2 * MS, 3));
    assert_eq!(bench.push(1.0)[0].frontier, 5, "the base is the least frontier");
}

#[test]
fn an_older_next_round_never_takes_the_worker_back() {
    let mut bench = Bench::joined(1, 9);
    let push = bench.push(0.0);
    bench.answer(&push[0], 0, 0b100, |a| Repr { next_round: 3, ..a });
    assert_eq!(bench.report().next_round, 10);
}

#[test]
fn a_packet_is_sent_again_after_the_rto_which_doubles_and_is_the_same_but_for_flag_and_time() {
    let mut bench = Bench::joined(1, 1);
    let first = bench.push(0.25)[0];
    let lanes = bench.lanes_sent();
    let mut sent_at = bench.now;
    for gap_ms in [5, 10, 20, 40, 80, 160, 200, 200] {
        bench.now = sent_at + gap_ms * MS - 1;
        assert_eq!(bench.send(), None, "{gap_ms} ms");
        assert_eq!(bench.worker.next_timeout(), Some(bench.now + 1));
        bench.now += 1;
        sent_at = bench.now;
        let again = bench.send().expect("it is due");
        assert_eq!(Repr { flags: first.flags, ts_us: first.ts_us, ..again }, first);
        assert!(again.flags.contains(Flags::RETX));
        assert_eq!(bench.lanes_sent(), lanes);
    }
}

#[test]
fn after_wait_there_is_no_hurry_until_results_flow() {
    let mut bench = Bench::joined(2, 1);
    let pushes = bench.push(0.0);
    for push in &pushes {
        bench.wait(push);
    }
    bench.now += 200 * MS - 1;
    assert_eq!(bench.send_all(), []);
    bench.now += 1;
    assert_eq!(bench.send_all().len(), 2);

    let mut bench = Bench::joined(2, 1);
    let pushes = bench.push(0.0);
    for push in &pushes {
        bench.wait(push);
    }
    bench.now += 50 * MS;
    bench.answer(&pushes[1], 0, 0b111, |a| Repr { ts_us: 0, ..a });
    bench.now += 5 * MS - 1;
    assert_eq!(bench.send_all(), []);
    bench.now += 1;
    let asked = bench.send_all();
    assert_eq!(asked.iter().map(|p| p.segment).collect::<Vec<_>>(), [0], "its answer is as likely lost");
}

#[test]
fn a_worker_whose_round_nobody_will_release_jumps_to_the_boundary_that_wait_names() {
    let mut bench = Bench::joined(2, 5);
    let pushes = bench.push(0.0);
    bench.answer(&pushes[0], 0, 0b100, |a| a);
    let wait = Repr { round: 5, segment: 1, norm: 3, rule_version: 9, ..header(Type::Wait) };
    bench.deliver(Repr { next_round: 6, ..wait }, 0);
    assert_eq!(bench.worker.poll_event(), None);
    bench.deliver(Repr { next_round: 8, ..wait }, 0);
    let report = bench.report();
    assert_eq!((report.next_round, report.included, report.rule_version, bench.worker.norm()), (8, 2, 9, 3));
}

#[test]
fn an_answer_to_another_round_is_a_hint_where_the_segment_has_moved_on() {
    let mut bench = Bench::joined(1, 5);
    let push = bench.push(1.0)[0];
    bench.now += MS;
    bench.answer(&push, 1, 0b11, |a| Repr { round: 4, frontier: 4, ..a });
    assert_eq!(bench.worker.next_timeout(), Some(push.ts_us as Nanos * 1000 + 5 * MS), "a copy of what it knew");
    bench.answer(&push, 1, 0b11, |a| Repr { flags: Flags::MCAST, ..a });
    bench.answer(&push, 1, 0b11, |a| Repr { round: 6, frontier: 6, ..a });
    assert_eq!(bench.worker.poll_event(), None, "what became of its own contribution is not told yet");
    bench.now += MS;
    assert_eq!(bench.send_all().len(), 1, "it asks soon");
    bench.answer(&push, 1, 0b11, |a| Repr { flags: Flags::LATE, frontier: 6, next_round: 7, ..a });
    assert_eq!(bench.report().next_round, 7);
}

#[test]
fn a_late_contribution_is_dropped_or_returned_as_the_answer_says_and_an_old_one_is_forgotten() {
    let mut bench = Bench::joined(3, 1);
    let pushes = bench.push(1.0);
    bench.answer(&pushes[0], 0, 0, |a| Repr { flags: Flags::LATE, ..a });
    bench.answer(&pushes[1], 0, 0, |a| Repr { flags: Flags(Flags::LATE.0 | Flags::RETURN.0), ..a });
    bench.answer(&pushes[2], 0, 0, |a| Repr { flags: Flags::OLD, ..a });
    let report = bench.report();
    assert_eq!((report.late, report.returned, report.forgotten, report.included), (2, 1, 1, 0));
    bench.worker.begin(bench.now, &[0.0; 24]).expect("it is ready");
    let mut sent = Vec::new();
    while bench.send().is_some() {
        sent.push(bench.lanes_sent()[0]);
    }
    assert_eq!(sent, [0, 1 << 22, 0]);
}

#[test]
fn no_more_than_the_window_is_on_its_way_but_what_waits_does_not_hold_up_the_rest() {
    let mut bench = Bench::joined(200, 1);
    let first = bench.push(0.0);
    assert_eq!(first.len(), 64);
    assert_eq!(bench.send(), None);
    bench.wait(&first[0]);
    bench.answer(&first[1], 0, 0b111, |a| a);
    assert_eq!(bench.send_all().len(), 2);
    bench.now += MS;
    let rest = bench.send_all();
    assert_eq!(rest.iter().filter(|p| !p.flags.contains(Flags::RETX)).count(), 64, "all have left the network");
}

#[test]
fn the_sum_is_exact_beyond_32_bits_and_a_jump_of_half_the_range_stops_the_worker() {
    let mut bench = Bench::joined(1, 1);
    let step = 1 << 30;
    let mut sum = 0i32;
    for round in 1..=6 {
        let push = bench.push(0.0)[0];
        sum = sum.wrapping_add(step);
        bench.answer(&push, sum, 0b111, |a| a);
        assert_eq!(bench.report().round, round);
    }
    let mut delta = [0.0; LANES];
    bench.worker.read_delta(&mut delta);
    assert_eq!(delta, [6.0 * 64.0; LANES]);
    let push = bench.push(0.0)[0];
    bench.answer(&push, sum.wrapping_add(step + 1), 0b111, |a| a);
    assert_eq!(bench.failure(), Failure::Overflow { round: 7, index: 0 });
    assert_eq!(bench.worker.next_timeout(), None);
}

#[test]
fn a_rejoin_in_a_round_goes_on_with_what_is_not_answered_unless_the_sums_are_gone() {
    for (epoch, lost) in [(5, false), (6, true)] {
        let mut bench = Bench::joined(2, 1);
        let pushes = bench.push(0.5);
        bench.answer(&pushes[0], 0, 0b111, |a| a);
        bench.deliver(notice(Notice::Rejoin, 77), 0);
        assert_eq!(bench.send().map(|p| p.kind), Some(Type::Join));
        bench.answer_join(epoch, 1);
        if lost {
            assert_eq!(bench.failure(), Failure::StoreLost { job: 1, round: 0 });
            continue;
        }
        let again = bench.send_all();
        assert_eq!(again.iter().map(|p| (p.kind, p.round, p.segment)).collect::<Vec<_>>(), [(Type::Push, 1, 1)]);
        bench.answer(&again[0], 0, 0b111, |a| a);
        assert_eq!(bench.report().included, 2);
    }
}

#[test]
fn a_worker_that_the_others_went_on_without_comes_back_once_it_is_let() {
    let mut bench = Bench::joined(2, 1);
    let pushes = bench.push(0.5);
    bench.answer(&pushes[0], 9, 0b111, |a| a);
    bench.now += MS;
    bench.deliver(notice(Notice::Dropped, 76), 0);
    assert_eq!(bench.send(), None, "meant for an earlier process of the rank");
    bench.deliver(notice(Notice::Dropped, 77), 0);
    let join = bench.send().expect("it asks to be let in again");
    assert_eq!(join.kind, Type::Join);
    bench.deliver(notice(Notice::Dropped, 77), 0);
    assert_eq!(bench.worker.poll_event(), None, "to another push");
    bench.answer_join(5, 8);
    for pull in bench.send_all() {
        bench.answer(&pull, 7, 0, |a| Repr { round: 7, frontier: 7, next_round: 8, ..a });
    }
    let report = bench.report();
    assert_eq!((report.round, report.next_round, report.included, report.forgotten), (1, 8, 1, 1));
    assert_eq!(bench.worker.sum(), [7; 16]);

    bench.push(0.5);
    bench.deliver(notice(Notice::Dropped, 77), 0);
    let join = bench.send().expect("it asks again");
    bench.deliver(Repr { ts_us: join.ts_us, ..notice(Notice::Dropped, 77) }, 0);
    assert_eq!(bench.failure(), Failure::Dropped { job: 1, worker: 2 });
}

#[test]
fn a_worker_goes_on_with_its_round_if_the_swap_without_it_was_taken_back() {
    let mut bench = Bench::joined(2, 1);
    let pushes = bench.push(0.5);
    bench.answer(&pushes[0], 9, 0b111, |a| a);
    bench.now += MS;
    bench.deliver(notice(Notice::Dropped, 77), 0);
    bench.send().expect("it asks to be let in again");
    bench.answer_join(5, 1);
    for pull in bench.send_all() {
        let frontier = if pull.segment == 0 { 1 } else { 0 };
        bench.answer(&pull, 7, 0, |a| Repr { round: frontier, frontier, next_round: frontier + 1, ..a });
    }
    let again = bench.send_all();
    assert_eq!(again.iter().map(|p| (p.kind, p.round, p.segment)).collect::<Vec<_>>(), [(Type::Push, 1, 1)]);
    bench.answer(&again[0], 9, 0b111, |a| a);
    let report = bench.report();
    assert_eq!((report.round, report.next_round, report.included, report.forgotten), (1, 2, 2, 0));
}

#[test]
fn a_worker_that_hears_nothing_says_so() {
    let mut bench = Bench::joined(1, 1);
    bench.push(0.0);
    bench.now += SILENCE_TIMEOUT_NS;
    assert_eq!(bench.send(), None);
    assert_eq!(bench.failure(), Failure::Silent { job: 1, round: 1, waited_ms: 30_000 });

    let mut bench = Bench::new(1);
    bench.send();
    bench.now += JOIN_TIMEOUT_NS;
    assert_eq!(bench.send(), None);
    assert_eq!(bench.failure(), Failure::JoinTimeout { job: 1, worker: 2, waited_ms: 10_000 });
}

#[test]
fn a_worker_waits_for_a_job_that_is_not_there_yet_and_says_so_once() {
    let unknown = |join: &Repr| Repr { ts_us: join.ts_us, segment: join.segment, ..notice(Notice::UnknownJob, 77) };
    let refuse = |bench: &mut Bench| {
        let join = bench.send().expect("it asks");
        bench.deliver(unknown(&join), 0);
        bench.now = bench.now.max(bench.worker.next_timeout().expect("it asks again"));
        join
    };
    let mut bench = Bench::new(1);
    refuse(&mut bench);
    assert_eq!(bench.worker.poll_event(), Some(Event::JobUnknown));
    let late = refuse(&mut bench);
    assert_eq!(bench.worker.poll_event(), None);
    bench.send().expect("it asks");
    bench.answer_join(5, 1);
    let pull = bench.send().expect("it is let in");
    bench.deliver(unknown(&late), 0);
    assert_eq!((pull.kind, bench.worker.poll_event()), (Type::Pull, None), "a late copy is none of this");

    let mut bench = Bench::new(1);
    for _ in 0..3 {
        refuse(&mut bench);
    }
    bench.worker.poll_event();
    bench.now += JOIN_TIMEOUT_NS;
    assert_eq!(bench.send(), None);
    assert_eq!(bench.failure(), Failure::UnknownJob { job: 1, waited_ms: 10_000 });
}

#[test]
fn a_job_that_is_gone_ends_its_workers_at_once() {
    let mut bench = Bench::joined(2, 4);
    let push = bench.push(0.5)[1];
    bench.deliver(Repr { segment: push.segment, ..notice(Notice::UnknownJob, 76) }, 0);
    assert_eq!(bench.worker.poll_event(), None, "meant for an earlier process of the rank");
    bench.deliver(Repr { segment: push.segment, ..notice(Notice::UnknownJob, 77) }, 0);
    assert_eq!(bench.failure(), Failure::StoreLost { job: 1, round: 3 });
}

#[test]
fn leaving_ends_with_the_answer_or_without() {
    let mut bench = Bench::joined(1, 1);
    bench.worker.leave(bench.now);
    let leave = bench.send().expect("it leaves");
    assert_eq!(leave.kind, Type::Leave);
    bench.deliver(Repr { ts_us: leave.ts_us, ..notice(Notice::Dropped, 77) }, 0);
    assert_eq!(bench.worker.poll_event(), Some(Event::Left));

    let mut bench = Bench::joined(1, 1);
    bench.worker.leave(bench.now);
    let mut sent = 0;
    while let Some(next) = bench.worker.next_timeout() {
        bench.now = bench.now.max(next);
        sent += usize::from(bench.send().is_some());
    }
    assert_eq!((sent, bench.worker.poll_event()), (6, Some(Event::Left)));
}

#[test]
fn the_round_trip_is_told_only_by_the_echo_of_the_last_packet() {
    let mut bench = Bench::joined(2, 1);
    let joined = bench.worker.rtt_ns();
    let pushes = bench.push(0.0);
    bench.now += 2 * MS;
    bench.answer(&pushes[0], 0, 0b111, |a| Repr { ts_us: 0, ..a });
    assert_eq!(bench.worker.rtt_ns(), joined, "another worker's time");
    bench.answer(&pushes[1], 0, 0b111, |a| a);
    assert_ne!(bench.worker.rtt_ns(), joined);
}

#[test]
fn what_is_no_packet_or_for_somebody_else_is_counted_and_ignored() {
    let mut bench = Bench::joined(1, 1);
    let push = bench.push(0.0)[0];
    bench.worker.handle(bench.now, &[0x10; 31]);
    bench.answer(&push, 0, 0, |a| Repr { worker: 3, ..a });
    bench.answer(&push, 0, 0, |a| Repr { job: 2, ..a });
    assert_eq!(bench.worker.counters().foreign, 3);
    bench.answer(&push, 0, 0, |a| Repr { segment: 9, ..a });
    assert_eq!(bench.worker.poll_event(), None);
}
