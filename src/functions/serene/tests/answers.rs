//! Who is answered, and what is refused.

use super::*;
use crate::wire::aggregation::Notice;
use crate::wire::arp;

fn bsp() -> Net {
    Net::joined(&job(2, 1, Strategy::Bsp))
}

#[test]
fn whatever_is_wrong_is_dropped_for_its_own_reason_and_changes_nothing() {
    use DropReason::*;
    type Change = fn(&mut Vec<u8>);
    // Offsets: IPv4 at 14, UDP at 34, aggregation header at 42, lanes at 74.
    let cases: [(&str, DropReason, Change); 17] = [
        ("version 2", AggregationMalformed, |b| b[42] = 0x20),
        ("type 12", AggregationMalformed, |b| b[42] = 0x1c),
        ("fewer lanes than announced", AggregationMalformed, |b| b[54] = 2),
        ("more lanes than announced", AggregationMalformed, |b| b[54] = 0),
        ("a UDP length beyond the packet", AggregationMalformed, |b| b[39] = 200),
        ("a wrong IPv4 checksum", AggregationCorrupted, |b| b[24] ^= 1),
        ("a wrong UDP checksum", AggregationCorrupted, |b| b[40] = 1),
        ("an answer", NotControl, |b| b[42] = 0x11),
        ("a worker that is not there", NotMember, |b| b[45] = 2),
        ("a worker beyond all", NotMember, |b| b[45] = 255),
        ("another worker's number", NotMember, |b| b[45] = 1),
        ("another UDP port", NotMember, |b| b[35] ^= 1),
        ("segment 1 of one", BadSegment, |b| b[53] = 1),
        ("round 0", BadRound, |b| b[49] = 0),
        ("round 2^31", BadRound, |b| b[46] = 0x80),
        ("a round too far ahead", Premature, |b| b[49] = 2),
        ("16 lanes where there are 8", BadLanes, |b| {
            b[54] = 2;
            b.extend([0; 32]);
            (b[17], b[39]) = (b[17] + 32, b[39] + 32);
            b[24..26].fill(0);
            let header: [u8; 20] = b[14..34].try_into().expect("20 bytes");
            let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum = words.sum::<u32>();
            let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
            b[24..26].copy_from_slice(&checksum.to_be_bytes());
        }),
    ];
    for (case, reason, change) in cases {
        let mut net = bsp();
        let header = Repr { segment: 0, ..net.push_header(0, 0, 1) };
        let mut bytes = frame(mac(0), address(0), &payload(&header, &lanes(3)));
        change(&mut bytes);
        assert_eq!(net.raw(0, bytes), [], "{case}");
        assert_eq!(
            net.drops(reason),
            1,
            "{case}: {:?}",
            net.switch.counters().drops.iter().filter(|d| d.1 > 0).collect::<Vec<_>>()
        );
        let segment = net.serene().segment(JOB, 0).expect("it is there");
        assert_eq!((segment.open, segment.frontier), (vec![0; LANES], 0), "{case}");
        net.park(0, 1, 3);
        net.release(1, 1, 5);
    }
}

#[test]
fn a_controllers_packets_count_only_when_they_come_in_by_the_cpu_port() {
    let mut net = bsp();
    let control = net.control(Type::Arm, 1, 9);
    for kind in [Type::Arm, Type::Abort, Type::Complete, Type::Close] {
        let mut bytes = control.clone();
        bytes[42] = 0x10 | kind as u8;
        assert_eq!(net.raw(0, bytes), []);
    }
    assert_eq!((net.drops(DropReason::NotControl), net.view().armed), (4, None));
    let header = net.push_header(0, 0, 1);
    let bytes = frame(mac(0), address(0), &payload(&header, &lanes(3)));
    assert_eq!(net.raw(CPU, bytes.clone()).len(), 0, "a worker may be anywhere, even there");
    let mut answer = control.clone();
    answer[42] = 0x19;
    assert_eq!(net.raw(CPU, answer), []);
    assert_eq!(net.drops(DropReason::NotControl), 5);
    let mut unknown = control;
    unknown[44] = 9;
    net.raw(CPU, unknown);
    assert_eq!(net.drops(DropReason::UnknownJob), 1);
}

#[test]
fn without_an_address_or_for_others_packets_go_on() {
    let mut net = bsp();
    let header = net.push_header(0, 0, 1);
    let sound = frame(mac(0), address(0), &payload(&header, &lanes(3)));
    let cases: [fn(&mut Vec<u8>); 3] = [|b| b[33] = 9, |b| b[37] ^= 1, |b| b[23] = 6];
    for change in cases {
        let mut bytes = sound.clone();
        change(&mut bytes);
        let out = net.raw(0, bytes.clone());
        assert!(out.iter().all(|(port, frame)| *port != 0 && *frame == bytes) && out.len() == 3, "flooded as it is");
    }
    let mut off = Net::new(&job(2, 1, Strategy::Bsp));
    off.serene().config.address = Ipv4Addr::UNSPECIFIED;
    assert_eq!(off.raw(0, sound.clone()), [(1, sound.clone()), (2, sound.clone()), (3, sound)]);
}

#[test]
fn a_join_is_acknowledged_and_learned() {
    let mut net = Net::new(&job(2, 1, Strategy::Ssp { slack: 3 }));
    let out = net.join(1, 555);
    assert_eq!((out.len(), out[0].port, out[0].header.kind), (1, 1, Type::JoinAck));
    let ack = out[0].header;
    assert_eq!((ack.incarnation_or_included, ack.segment, ack.next_round), (77, 1, 1), "the switch's own number");
    assert_eq!((ack.norm, ack.rule_version, ack.ts_us, ack.lane_count), (2, 1, 5, 0));
    assert_eq!(net.digests(), [(0, 1, DigestKind::Joined { incarnation: 555, restarted: false })]);
    assert_eq!(net.serene().replicas(JOB), [Replica { port: 1, rid: 1 }]);
    assert_eq!(net.view().members[1].link, Some(Link { port: 1, mac: mac(1), incarnation: 555 }));
    net.join(1, 555);
    assert_eq!(net.digests(), [(0, 1, DigestKind::Joined { incarnation: 555, restarted: false })], "the same process");
}

#[test]
fn who_has_not_joined_is_told_to() {
    let mut net = Net::new(&job(2, 1, Strategy::Bsp));
    for kind in [Type::Push, Type::Pull, Type::Leave] {
        let header = Repr { kind, ..net.push_header(0, 0, 1) };
        let header = if kind == Type::Push { header } else { Repr { lane_count: 0, ..header } };
        let lanes = lanes(3);
        let out = net.by_worker(0, header, if kind == Type::Push { &lanes } else { &[] });
        assert_eq!((out.len(), out[0].header.kind, out[0].header.norm), (1, Type::Notice, Notice::Rejoin as u8));
        assert_eq!((out[0].header.lane_count, out[0].included()), (0, 100), "the incarnation that it gave");
    }
    assert_eq!(net.sum(), [0; LANES]);
}

#[test]
fn packets_of_a_process_that_was_replaced_do_not_count() {
    let mut net = bsp();
    net.park(0, 1, 3);
    assert!(net.rejoin(0, 999));
    assert_eq!(net.digests().last(), Some(&(0, 0, DigestKind::Joined { incarnation: 999, restarted: true })));
    let stale = net.ask(0, 1, 3);
    assert_eq!((stale.header.kind, stale.header.norm, stale.included()), (Type::Notice, Notice::Dropped as u8, 100));
    let late = net.join(0, 100);
    assert_eq!(
        (late[0].header.kind, late[0].header.norm),
        (Type::Notice, Notice::Dropped as u8),
        "a JOIN that was held up"
    );
    let header = Repr { incarnation_or_included: 999, ..net.push_header(0, 0, 1) };
    let out = net.by_worker(0, header, &lanes(3));
    assert_eq!((out.len(), out[0].header.kind), (1, Type::Wait), "its predecessor's contribution is in");
    net.release(1, 1, 5);
    assert_eq!(net.sum(), sum(&[3, 5]));
}

#[test]
fn a_join_of_a_process_that_is_gone_takes_no_place_however_late_it_comes() {
    let mut net = bsp();
    assert!(net.rejoin(0, 999));
    // Of one before it that had no answer in its life, so that nobody knows of it.
    assert_eq!(net.join(0, 500)[0].header.kind, Type::JoinAck);
    let header = Repr { incarnation_or_included: 999, ..net.push_header(0, 0, 1) };
    assert_eq!(net.by_worker(0, header, &lanes(3)), [], "the living one goes on: its contribution waits");
    assert_eq!(net.view().members[0].link.map(|link| link.incarnation), Some(999));
}

#[test]
fn of_two_workers_with_one_rank_the_last_to_join_has_it() {
    let mut net = bsp();
    // The same address behind another port: another namespace, say.
    for kind in [Type::Join, Type::Pull] {
        let header = Repr { incarnation_or_included: 200, ..net.header(kind, 0) };
        let sent = net.raw(3, frame(mac(3), address(0), &payload(&header, &[])));
        assert_eq!((sent.len(), sent[0].0, &sent[0].1[..6]), (1, 3, &mac(3)[..]));
    }
    assert_eq!(net.serene().replicas(JOB)[0], Replica { port: 3, rid: 0 }, "it moved");
    let first = net.ask(0, 1, 3);
    assert_eq!((first.header.kind, first.header.norm), (Type::Notice, Notice::Dropped as u8));
    // Another address: not the member.
    let header = Repr { incarnation_or_included: 200, ..net.header(Type::Join, 0) };
    let bytes = frame(mac(3), address(3), &payload(&header, &[]));
    assert_eq!((net.raw(3, bytes), net.drops(DropReason::NotMember)), (vec![], 1));
}

#[test]
fn a_pull_reads_the_sum_and_the_first_label_to_use() {
    let mut net = bsp();
    net.park(0, 1, 3);
    net.release(1, 1, 5);
    net.park(1, 2, 7);
    let out = net.by_worker(0, net.header(Type::Pull, 0), &[]);
    assert_eq!((out.len(), out[0].header.kind, out[0].header.lane_count), (1, Type::Result, 8));
    assert_eq!((out[0].lanes.clone(), out[0].header.frontier, out[0].header.next_round), (sum(&[3, 5]), 1, 2));
    let wrong = Repr { segment: 1, ..net.header(Type::Pull, 0) };
    assert_eq!((net.by_worker(0, wrong, &[]), net.drops(DropReason::BadSegment)), (vec![], 1));
}

#[test]
fn a_restarted_worker_uses_no_label_of_its_predecessor_twice() {
    let mut net = Net::joined(&job(2, 1, Strategy::Ssp { slack: 2 }));
    let pull = |net: &mut Net| {
        let header = net.header(Type::Pull, 0);
        net.by_worker(0, header, &[])[0].header.next_round
    };
    assert_eq!(pull(&mut net), 1);
    net.ask(0, 1, 1);
    net.ask(0, 2, 1);
    assert_eq!(pull(&mut net), 3);
    net.park(0, 3, 1);
    // Label 4 would be refused as premature; label 3 is in, and waits.
    assert_eq!(pull(&mut net), 3);
    assert_eq!(net.ask(0, 3, 1).header.kind, Type::Wait);
}

#[test]
fn a_leave_is_answered_and_told_to_the_controller() {
    let mut net = bsp();
    let out = net.by_worker(1, net.header(Type::Leave, 1), &[]);
    assert_eq!((out[0].header.kind, out[0].header.norm), (Type::Notice, Notice::Dropped as u8));
    assert_eq!(net.digests(), [(0, 1, DigestKind::Left)]);
}

#[test]
fn a_worker_of_a_job_that_is_not_there_is_told_in_a_packet_no_longer_than_its_own() {
    let mut net = bsp();
    assert!(net.serene().remove_job(JOB));
    let push = net.push_header(1, 0, 1);
    for (header, lanes) in [(net.header(Type::Join, 1), &[][..]), (push, &lanes(3)), (net.header(Type::Leave, 1), &[])]
    {
        let out = net.by_worker(1, header, lanes);
        assert_eq!((out.len(), out[0].port, out[0].lanes.len()), (1, 1, 0));
        let told = Repr { kind: Type::Notice, norm: Notice::UnknownJob as u8, lane_count: 0, ..header };
        assert_eq!(out[0].header, told);
    }
    let echo = frame(mac(1), address(1), &payload(&net.header(Type::Notice, 1), &[]));
    assert_eq!((net.raw(1, echo), net.drops(DropReason::NotControl)), (vec![], 1), "no answer to an answer");
}

#[test]
fn life_is_reported_now_and_then() {
    let mut net = Net::joined(&job(2, 2, Strategy::Bsp));
    let mut alive = 0;
    for _ in 0..30 {
        net.now += ALIVE_NS / 10;
        net.push(0, 0, 1, 3);
        alive += std::iter::from_fn(|| net.serene().pop_digest()).filter(|d| d.kind == DigestKind::Alive).count();
    }
    assert!((2..=4).contains(&alive), "{alive} in three times the interval, though packets came ten times as often");
}

#[test]
fn digests_that_nobody_reads_are_counted_as_lost_and_stop_nothing() {
    let mut net = bsp();
    for _ in 0..DIGESTS + 10 {
        net.push(0, 0, 1, 3);
    }
    assert!(net.serene().digests_lost() >= 10);
    net.release(1, 1, 5);
}

#[test]
fn arp_for_the_services_address_is_answered_and_for_others_goes_on() {
    let request = |target: Ipv4Addr, operation| {
        let mut bytes = [[0xff; 6], mac(1)].concat();
        bytes.extend([0x08, 0x06]);
        let sender = *address(1).ip();
        let arp = arp::Repr { operation, sender_mac: mac(1), sender, target_mac: [0; 6], target };
        bytes.resize(60, 0);
        arp.emit(&mut bytes[14..]).expect("fits");
        bytes
    };
    let mut net = bsp();
    let out = net.raw(1, request(SERVICE, arp::Operation::Request));
    assert_eq!((out.len(), out[0].0, out[0].1.len()), (1, 1, 60));
    assert_eq!((&out[0].1[..6], &out[0].1[6..12]), (&mac(1)[..], &SERVICE_MAC[..]));
    let expected = arp::Repr {
        operation: arp::Operation::Reply,
        sender_mac: SERVICE_MAC,
        sender: SERVICE,
        target_mac: mac(1),
        target: *address(1).ip(),
    };
    assert_eq!(arp::Repr::parse(&out[0].1[14..]), Ok(expected));
    for other in [request(Ipv4Addr::new(10, 0, 0, 9), arp::Operation::Request), request(SERVICE, arp::Operation::Reply)]
    {
        assert!(net.raw(1, other.clone()).iter().all(|(port, bytes)| *port != 1 && *bytes == other));
    }
}

#[test]
fn an_answer_to_a_tagged_packet_is_tagged() {
    let mut net = Net::joined(&job(1, 1, Strategy::Asp));
    let header = net.push_header(0, 0, 1);
    let mut bytes = frame(mac(0), address(0), &payload(&header, &lanes(3)));
    bytes.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    let out = net.raw(0, bytes);
    assert_eq!(
        (out.len(), &out[0].1[..6], &out[0].1[12..18]),
        (1, &mac(0)[..], &[0x81, 0x00, 0x20, 0x05, 0x08, 0x00][..])
    );
    let packet = Packet::new_checked(&out[0].1[46..]).expect("whole");
    assert_eq!((packet.kind(), packet.lanes().collect::<Vec<_>>()), (Type::Result, sum(&[3])));
}
