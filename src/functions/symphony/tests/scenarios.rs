//! Literal packet sequences through the ingress stages.

use super::*;

#[test]
fn message_steps_are_counted_at_the_end_with_immediate() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    let first = a.send(&mut bench, 3);
    assert!(first.iter().all(|b| b.step == Step::Data && b.steps_done == 0 && b.armed && b.tracked));
    assert_eq!(bench.step(&a), 1);
    let second = a.send(&mut bench, 1);
    assert_eq!(second[0].steps_done, 1, "progress is that of before the packet");
    assert_eq!(bench.step(&a), 2);
    let flow = bench.flow(&a);
    assert_eq!((flow.packets, flow.messages, flow.retransmitted, flow.takes_part), (4, 2, 0, true));
}

#[test]
fn two_requests_make_a_step_of_nccl_simple() {
    let mut bench = Bench::of(Job { requests_per_step: 2, ..ring(1, 4) });
    let mut a = Sender::new(0, 1);
    for expected in [0, 1, 1, 2, 2] {
        a.send(&mut bench, 2);
        assert_eq!(bench.step(&a), expected);
    }
}

#[test]
fn packets_give_progress_inside_a_step_of_known_size() {
    let mut bench = Bench::of(Job { packets_per_step: Some(4), ..ring(1, 4) });
    let mut a = Sender::new(0, 1);
    assert_eq!(progress_of(&a.send(&mut bench, 4)), [0, 64, 128, 192]);
    assert_eq!(progress_of(&a.send(&mut bench, 4)), [256, 320, 384, 448]);
    assert_eq!(progress_of(&a.send(&mut bench, 6)), [512, 576, 640, 704, 767, 767], "never the next step's");
}

#[test]
fn psn_steps_are_counted_by_packets() {
    let mut bench = Bench::of(Job { step_source: StepSource::Psn, packets_per_step: Some(3), ..ring(1, 4) });
    let mut a = Sender::new(0, 1);
    assert_eq!(progress_of(&a.send(&mut bench, 5)), [0, 85, 170, 256, 341]);
    assert_eq!(bench.step(&a), 1);
    a.send(&mut bench, 1);
    assert_eq!(bench.step(&a), 2);
}

#[test]
fn imm_steps_are_read_from_the_immediate() {
    let mut bench = Bench::of(Job { step_source: StepSource::Imm, requests_per_step: 2, ..ring(1, 4) });
    let mut a = Sender::new(0, 1);
    for (request, expected) in [(0, 0), (1, 1), (2, 1), (3, 2)] {
        for phv in a.message(2, request) {
            bench.send(phv);
        }
        assert_eq!(bench.step(&a), expected);
    }
    // Requests 4..=8 went where the switch did not see them.
    a.psn += 5;
    bench.now += 2 * MS; // idle: what is missed is not a gap that will be refilled
    for phv in a.message(1, 9) {
        bench.send(phv);
    }
    assert_eq!(bench.step(&a), 2, "a gap is waited for");
    bench.now += 300 * MS;
    for phv in a.message(1, 11) {
        bench.send(phv);
    }
    assert_eq!(bench.step(&a), 6, "resynchronised, the counter is right again at once");
}

#[test]
fn udp_source_port_tags_name_the_step_in_hand() {
    let mut bench = Bench::of(Job { step_source: StepSource::UdpSport, packets_per_step: Some(2), ..ring(1, 2) });
    let mut a = Sender { sport: 0xffff, ..Sender::new(0, 1) }; // tag 0x3fff; the next one is 0
    assert_eq!(progress_of(&a.send(&mut bench, 2)), [0x3fff * 256, 0x3fff * 256 + 128]);
    a.sport = 0xc000;
    let last = a.send(&mut bench, 2);
    assert_eq!(progress_of(&last), [0x4000 * 256, 0x4000 * 256 + 128], "the tag's wrap does not show");
    assert_eq!(last.iter().map(|b| b.leaves).collect::<Vec<_>>(), [false, true], "two steps make this collective");
}

#[test]
fn a_tag_tells_the_step_whatever_is_missing_before_it() {
    let mut bench = Bench::of(Job { step_source: StepSource::UdpSport, packets_per_step: Some(4), ..ring(1, 4) });
    let mut a = Sender { sport: 0xc001, ..Sender::new(0, 1) };
    let step: Vec<Phv> = a.message(4, 0);
    a.sport = 0xc002;
    let next = a.at(4, Opcode::WRITE_FIRST);
    let sent = [step[0], step[1], next, step[2], step[3], next].map(|phv| bench.send(phv));
    // The third comes by another way than the two before it, which then come late and count no more.
    assert_eq!(progress_of(&sent), [256, 320, 512, 576, 576, 576]);
}

#[test]
fn loss_upstream_is_counted_once_it_is_refilled() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    let messages: Vec<Phv> = (0..4).flat_map(|_| a.message(2, 0)).collect();
    // Packet 2 is lost before the switch; 3..=7 are on their way already.
    for i in [0, 1, 3, 4, 5, 6, 7] {
        bench.send(messages[i]);
    }
    assert_eq!(bench.step(&a), 1, "nothing behind the gap counts");
    for phv in &messages[2..] {
        bench.send(*phv);
    }
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.messages, flow.packets), (4, 4, 13));
    assert_eq!((flow.retransmitted, flow.resyncs), (6, 0));
}

#[test]
fn loss_downstream_is_not_counted_twice() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    let messages: Vec<Phv> = (0..3).flat_map(|_| a.message(2, 0)).collect();
    for phv in messages.iter().chain(&messages[1..]) {
        bench.send(*phv);
    }
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.messages, flow.packets, flow.retransmitted), (3, 3, 11, 5));
}

#[test]
fn sequence_numbers_wrap() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender { psn: 0xff_fffe, ..Sender::new(0, 1) };
    let messages: Vec<Phv> = (0..3).flat_map(|_| a.message(2, 0)).collect();
    assert_eq!(a.psn, 4);
    for i in [0, 1, 3, 4, 2, 3, 4, 5] {
        bench.send(messages[i]);
    }
    bench.send(messages[0]);
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.retransmitted, flow.resyncs), (3, 4, 0));
}

#[test]
fn a_read_takes_the_sequence_numbers_of_its_responses() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 2);
    for (dma_len, taken) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (4096, 4)] {
        let mut read = a.next(Opcode::READ_REQUEST);
        if let Some(roce) = &mut read.roce {
            roce.dma_len = dma_len;
        }
        let bridged = bench.send(read);
        assert_eq!((bridged.step, bridged.armed, bridged.tracked), (Step::None, false, true));
        a.psn += taken - 1;
        a.send(&mut bench, 1);
    }
    a.next(Opcode(0x14)); // FETCH&ADD, lost: what follows waits for it
    a.send(&mut bench, 1);
    assert_eq!(bench.step(&a), 6);
    let flow = bench.flow(&a);
    assert_eq!((flow.packets, flow.messages), (8, 6), "READs are no data");
}

#[test]
fn a_read_opens_no_flow() {
    let mut bench = Bench::of(ring(1, 4));
    bench.send(Sender::new(0, 1).next(Opcode::READ_REQUEST));
    assert_eq!(bench.symphony.flows(), []);
    assert_eq!(bench.symphony.outcomes().not_of_a_job, 1);
}

#[test]
fn clear_to_send_of_a_ring_of_two_takes_no_part() {
    let mut bench = Bench::of(ring(1, 2));
    let mut data = Sender::new(0, 1);
    // The receiver's clear-to-send runs on the edge from 1 to 0, which is a ring edge as well.
    let mut cts = Sender { qpn: 0x777, ..Sender::new(1, 0) };
    let mut back = Sender::new(1, 0);
    for _ in 0..2 {
        let bridged = bench.send(cts.next(Opcode::WRITE_ONLY));
        assert_eq!((bridged.step, bridged.leaves), (Step::None, false));
        data.send(&mut bench, 2);
        back.send(&mut bench, 2);
    }
    assert_eq!((bench.step(&data), bench.step(&back)), (2, 2));
    let cts = bench.flow(&cts);
    assert_eq!((cts.step, cts.messages, cts.takes_part), (0, 0, false));
    // The one flow that lags at 0 is the clear-to-send flow, and it is not the minimum.
    assert_eq!(bench.symphony.jobs()[0].min_step, 2);
}

#[test]
fn adaptive_routing_splits_a_message_and_only_its_immediate_counts() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    let mut split = |bench: &mut Bench| {
        let opcodes = [Opcode::WRITE_FIRST, Opcode::WRITE_MIDDLE, Opcode::WRITE_LAST, Opcode::WRITE_ONLY_IMM];
        let sent = opcodes.map(|opcode| bench.send(a.next(opcode)));
        (sent.map(|b| (b.step, b.leaves)), bench.step(&a))
    };
    let taken = (Step::Data, false);
    let (first, step) = split(&mut bench);
    // Until its first immediate the flow may be any WRITE traffic, so at the plain end it is dropped for one packet.
    assert_eq!((first, step), ([taken, taken, (Step::None, true), taken], 1));
    assert_eq!(split(&mut bench), ([taken; 4], 2));
}

#[test]
fn plain_writes_withdraw_from_the_minimum_and_stay_away() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    let mut plain = Sender { qpn: 0x999, ..Sender::new(0, 1) };
    bench.send(plain.next(Opcode::WRITE_FIRST)); // now the owner of the minimum, at 0
    a.send(&mut bench, 1);
    assert_eq!(a.send(&mut bench, 1)[0].lead, 256);
    assert_eq!(bench.send(plain.next(Opcode::WRITE_LAST)).step, Step::None);
    assert_eq!(a.send(&mut bench, 1)[0].lead, 0, "nobody is behind");
    assert_eq!(bench.send(plain.next(Opcode::WRITE_FIRST)).step, Step::None);
    assert!(!bench.flow(&plain).takes_part);
}

#[test]
fn a_plain_end_beyond_a_gap_neither_takes_part_nor_withdraws() {
    let mut bench = Bench::of(ring(1, 4));
    let a = Sender::new(0, 1);
    let opcodes =
        [(0, Opcode::WRITE_FIRST), (2, Opcode::WRITE_LAST), (1, Opcode::WRITE_MIDDLE), (2, Opcode::WRITE_LAST)];
    let sent = opcodes.map(|(psn, opcode)| bench.send(a.at(psn, opcode)));
    let found = sent.map(|b| (b.step, b.leaves));
    assert_eq!(found, [(Step::Data, false), (Step::None, false), (Step::Data, false), (Step::None, true)]);
}

#[test]
fn a_gap_in_uc_is_taken_as_it_is() {
    let mut bench = Bench::of(ring(1, 4));
    let a = Sender::new(0, 1);
    let uc = |opcode: Opcode| Opcode(opcode.0 | 0x20);
    bench.send(a.at(5, uc(Opcode::WRITE_ONLY_IMM)));
    bench.send(a.at(9, uc(Opcode::WRITE_ONLY_IMM)));
    bench.send(a.at(10, uc(Opcode::WRITE_ONLY_IMM)));
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.resyncs), (3, 1));
}

#[test]
fn a_gap_is_given_up_after_sixteen_epochs() {
    let mut bench = Bench::of(Job { idle_ns: 1000 * MS, ..ring(1, 4) });
    let a = Sender::new(0, 1);
    bench.send(a.at(0, Opcode::WRITE_ONLY_IMM));
    bench.send(a.at(2, Opcode::WRITE_ONLY_IMM));
    bench.now += 16 * 16 * MS; // an epoch is 2^24 ns, 16.8 ms
    bench.send(a.at(3, Opcode::WRITE_ONLY_IMM));
    assert_eq!(bench.step(&a), 1);
    bench.now += 16 * MS;
    bench.send(a.at(4, Opcode::WRITE_ONLY_IMM));
    bench.send(a.at(5, Opcode::WRITE_ONLY_IMM));
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.resyncs), (3, 1));
}

#[test]
fn a_retransmission_that_goes_on_for_epochs_counts_once() {
    let mut bench = Bench::of(Job { idle_ns: 1000 * MS, ..ring(1, 4) });
    let a = Sender::new(0, 1);
    for _ in 0..10 {
        bench.send(a.at(0, Opcode::WRITE_ONLY_IMM)); // the receiver is not ready
        bench.now += 10 * MS;
    }
    bench.send(a.at(2, Opcode::WRITE_ONLY_IMM));
    assert_eq!(bench.step(&a), 1, "and the gap is as old as its first packet, not as the retransmission");
    bench.send(a.at(1, Opcode::WRITE_ONLY_IMM));
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.retransmitted, flow.resyncs), (2, 10, 0));
}

#[test]
fn two_packets_of_a_gap_in_one_tick_do_not_end_it() {
    let mut cell = PsnCell::default();
    let roce = |psn| Roce { opcode: Opcode::WRITE_MIDDLE, psn, ..Roce::default() };
    let mut action = |psn| psn_action(&mut cell, &roce(psn), 10, Some(2), 4000, 16384);
    assert_eq!([action(0), action(2), action(3)], [Order::InOrder, Order::Gap, Order::Gap]);
}

#[test]
fn a_queue_pair_made_anew_is_followed_from_its_first_packet() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender { psn: 5000, ..Sender::new(0, 1) };
    a.send(&mut bench, 3);
    bench.rest();
    let mut again = Sender { psn: 0, ..a };
    again.send(&mut bench, 3);
    again.send(&mut bench, 3);
    let flow = bench.flow(&a);
    assert_eq!((flow.step, flow.resyncs), (2, 1));
}

#[test]
fn loss_of_the_first_packet_after_a_rest_costs_nothing() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 1);
    bench.rest();
    let messages: Vec<Phv> = (0..3).flat_map(|_| a.message(1, 0)).collect();
    for i in [1, 2, 0, 1, 2] {
        bench.send(messages[i]);
    }
    assert_eq!((bench.step(&a), bench.flow(&a).resyncs), (3, 0));
}

#[test]
fn after_a_rest_all_counters_restart_together() {
    let mut bench = Bench::of(ring(1, 4));
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    for _ in 0..6 {
        a.send(&mut bench, 1);
    }
    b.send(&mut bench, 1); // died after one step
    bench.rest();
    let first = a.send(&mut bench, 1)[0];
    assert_eq!((first.steps_done, first.lead), (0, 0));
    assert_eq!((bench.step(&a), bench.step(&b)), (1, 0));
    let first = b.send(&mut bench, 1)[0];
    assert_eq!((first.steps_done, first.lead), (0, 0));
}

#[test]
fn a_collective_that_was_given_up_does_not_shorten_the_next() {
    let mut bench = Bench::of(ring(1, 4));
    let mut a = Sender::new(0, 1);
    a.send(&mut bench, 1);
    a.send(&mut bench, 1);
    bench.rest();
    let leaves: Vec<bool> = (0..6).map(|_| a.send(&mut bench, 1)[0].leaves).collect();
    assert_eq!(leaves, [false, false, false, false, false, true]);
}

#[test]
fn clear_to_send_as_the_first_packet_after_a_rest_does_not_hide_the_restart() {
    let mut bench = Bench::of(Job { steps_per_collective: 100, ..ring(1, 2) });
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 0));
    let mut cts = Sender { qpn: 0x777, ..b };
    b.send(&mut bench, 1); // the minimum's owner, and dies here
    a.send(&mut bench, 1);
    for _ in 0..3 {
        a.send(&mut bench, 1);
    }
    bench.now += 2 * MS; // idle, but the epoch is the same
    bench.send(cts.next(Opcode::WRITE_ONLY));
    let leads: Vec<i32> = (0..3).map(|_| a.send(&mut bench, 1)[0].lead).collect();
    assert_eq!(leads, [0, 0, 0], "the minimum is not that of before the rest");
}

#[test]
fn a_job_added_while_it_runs_is_armed_by_its_first_rest() {
    let mut bench = Bench::new(Parameters::default(), &[]);
    bench.symphony.add_job(&ring(1, 4), bench.now).expect("a sound job");
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    for _ in 0..3 {
        assert!(a.send(&mut bench, 2).iter().all(|b| b.step == Step::Data && !b.armed));
    }
    assert!(!bench.symphony.jobs()[0].armed);
    bench.rest();
    assert!(b.send(&mut bench, 1)[0].armed);
    assert!(bench.symphony.jobs()[0].armed);
    assert_eq!(a.send(&mut bench, 1)[0].steps_done, 0);
}

#[test]
fn the_lead_is_over_the_flow_that_lags() {
    let mut bench = Bench::of(ring(1, 4));
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    b.send(&mut bench, 1); // at 0 when it sent
    let leads: Vec<i32> = (0..4).map(|_| a.send(&mut bench, 1)[0].lead).collect();
    assert_eq!(leads, [0, 256, 512, 768]);
    assert_eq!(b.send(&mut bench, 1)[0].lead, 0, "the minimum moves on with its owner");
    assert_eq!(a.send(&mut bench, 1)[0].lead, 3 * 256);
}

#[test]
fn the_last_packet_of_a_collective_releases_the_minimum() {
    let mut bench = Bench::of(Job { steps_per_collective: 2, ..ring(1, 4) });
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    b.send(&mut bench, 1);
    assert!(!a.send(&mut bench, 1)[0].leaves);
    let last = b.send(&mut bench, 1)[0];
    assert!(last.leaves && last.step == Step::Data);
    // b is done at 2 steps. Were its 1 still the minimum, this would be a lead of 0 and the next one of 1 step.
    a.send(&mut bench, 1);
    assert_eq!(a.send(&mut bench, 1)[0].lead, 0);
    assert_eq!(bench.symphony.jobs()[0].minimum, 2 * 256);
}

#[test]
fn an_epoch_forgets_a_flow_that_went_silent() {
    let mut bench = Bench::of(Job { steps_per_collective: 100, ..ring(1, 4) });
    let (mut a, mut b) = (Sender::new(0, 1), Sender::new(1, 2));
    a.send(&mut bench, 1);
    b.send(&mut bench, 1);
    for _ in 0..3 {
        a.send(&mut bench, 1);
        bench.now += MS / 2; // not idle
    }
    bench.send(b.at(b.psn - 1, Opcode::WRITE_ONLY_IMM)); // still there, one step done
    assert_eq!(a.send(&mut bench, 1)[0].lead, 3 * 256);
    for _ in 0..40 {
        a.send(&mut bench, 1);
        bench.now += MS / 2;
    }
    assert_eq!(a.send(&mut bench, 1)[0].lead, 0);
}

#[test]
fn jobs_do_not_mix() {
    let mut bench = Bench::new(Parameters::default(), &[ring(1, 4), ring(2, 4)]);
    let mut a = Sender::new(0, 1);
    let mut b = Sender { job: 2, ..a };
    b.send(&mut bench, 1);
    for _ in 0..4 {
        a.send(&mut bench, 1);
    }
    assert_eq!(a.send(&mut bench, 1)[0].lead, 0, "b is of another job");
    let jobs = bench.symphony.jobs();
    assert_eq!([(jobs[0].job, jobs[0].max_step), (jobs[1].job, jobs[1].max_step)], [(1, 5), (2, 1)]);
    assert_eq!([jobs[0].packets, jobs[1].packets], [5, 1]);
}

#[test]
fn only_edges_of_the_ring_are_tracked() {
    let mut bench = Bench::of(ring(1, 4));
    let untracked = Bridged { tracked: true, ..Bridged::default() };
    assert_eq!(bench.send(Sender::new(1, 0).next(Opcode::WRITE_ONLY_IMM)), untracked, "the wrong way round");
    assert_eq!(bench.send(Sender::new(0, 1).next(Opcode::ACKNOWLEDGE)), untracked);
    assert_eq!(bench.send(Sender::new(0, 1).next(Opcode::CNP)), untracked);
    assert_eq!(bench.send(Phv::default()), untracked);
    let outcomes = bench.symphony.outcomes();
    assert_eq!(outcomes, Outcomes { not_roce: 1, not_data: 2, not_of_a_job: 1, ..Outcomes::default() });
    assert_eq!(bench.symphony.flows(), []);
}

#[test]
fn what_xdp_tracked_is_not_tracked_again() {
    let mut bench = Bench::of(ring(1, 4));
    let mut phv = Sender::new(0, 1).next(Opcode::WRITE_ONLY_IMM);
    let bridged = Bridged { tracked: true, step: Step::Data, armed: true, lead: 700, flow: 9, ..Bridged::default() };
    phv.bridged = bridged;
    assert_eq!(bench.send(phv), bridged);
    assert_eq!(bench.symphony.flows(), []);
    assert_eq!(bench.symphony.jobs()[0].packets, 1, "it counts all the same");
}
