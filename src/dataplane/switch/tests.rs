use super::*;
use crate::dataplane::{HeadersOnly, HeapFrames, NoTrace, PortConfig, Red, Roce};
use crate::wire::Opcode;

/// Sends everything to port 0 and wants an extra mark on packets to destination 7.
struct Marker;

impl Function for Marker {
    fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, _: &mut Phv) -> Verdict {
        Verdict::Forward(0)
    }

    fn egress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, _: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        phv.extra_mark = phv.dst[15] == 7;
        None
    }
}

fn switch(red: Option<Red>) -> Switch<Marker, ()> {
    let port = PortConfig {
        name: "p".into(),
        rate_bps: Some(8_000_000_000),
        buffer_bytes: 1_000_000,
        red,
        pfc: None,
        fault: None,
    };
    Switch::new(&SwitchConfig { buffer_bytes: 1_000_000, seed: 1, ports: vec![port] }, Marker)
}

fn data(ecn: Ecn, dst: u8) -> Phv {
    let mut phv = Phv { frame_bytes: 1000, ecn, ..Phv::default() };
    phv.dst[15] = dst;
    phv
}

/// Puts `packets` in at time 0, takes all out, and returns the ECN field of each, in order.
fn run(switch: &mut Switch<Marker, ()>, packets: &[Phv]) -> Vec<Ecn> {
    let mut frames = HeadersOnly::default();
    for phv in packets {
        switch.ingress(0, *phv, (), &mut frames, &mut NoTrace);
    }
    std::iter::from_fn(|| switch.dequeue(0, Nanos::MAX, &mut frames, &mut NoTrace)).map(|d| d.phv.ecn).collect()
}

/// RED that hits every packet with more than 2000 bytes left behind and no other.
const STEP: Red = Red { kmin_bytes: 2000, kmax_bytes: 2000, pmax: 1.0 };

#[test]
fn ce_is_set_when_red_or_the_function_says_so_and_only_on_ect() {
    use Ecn::{Ce, Ect0, Ect1, NotEct};
    let mut marking = switch(Some(STEP));
    // Left behind: 6000, 5000, 4000, 3000, 2000, 1000, 0.
    let packets = [
        data(Ect0, 7),   // both
        data(Ect1, 1),   // RED
        data(NotEct, 7), // both, but not capable
        data(Ce, 7),     // marked already
        data(Ect0, 1),   // neither: 2000 is not above Kmin
        data(Ect0, 7),   // extra
        data(NotEct, 7),
    ];
    assert_eq!(run(&mut marking, &packets), [Ce, Ce, NotEct, Ce, Ect0, Ce, NotEct]);
    let marks = marking.counters().marks();
    assert_eq!((marks.red, marks.symphony), (2, 1), "an extra mark that RED made too is RED's");
}

#[test]
fn priority_packets_go_first_and_red_leaves_them_alone() {
    let mut marking = switch(Some(STEP));
    let roce = |opcode| Some(Roce { opcode, ..Roce::default() });
    let mut packets = vec![data(Ecn::Ect0, 1); 8];
    packets.push(Phv { roce: roce(Opcode::CNP), ..data(Ecn::Ect0, 1) });
    packets.push(Phv { roce: roce(Opcode::ACKNOWLEDGE), ..data(Ecn::Ect0, 1) });
    packets.push(Phv { roce: roce(Opcode::WRITE_ONLY), ..data(Ecn::Ect0, 1) });
    let mut expected = vec![Ecn::Ect0; 2];
    expected.extend([Ecn::Ce; 6]);
    expected.extend([Ecn::Ect0; 3]);
    assert_eq!(run(&mut marking, &packets), expected);
}

#[test]
fn a_port_without_red_gets_only_extra_marks() {
    let mut marking = switch(None);
    let packets = [data(Ecn::Ect0, 1), data(Ecn::Ect0, 7), data(Ecn::Ect0, 1)];
    assert_eq!(run(&mut marking, &packets), [Ecn::Ect0, Ecn::Ce, Ecn::Ect0]);
}

/// Multicasts to group 1, whose copies say in egress which one they are.
struct Copier;

impl Function for Copier {
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        assert!(cx.frame.resize(20));
        phv.frame_bytes = 20;
        Verdict::Group(phv.eth_dst[0].into())
    }

    fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, _: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        cx.frame.bytes_mut()[5] = phv.bridged.rid;
        None
    }
}

#[test]
fn each_copy_of_a_group_knows_which_one_it_is_and_has_bytes_of_its_own() {
    let port =
        PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1_000_000, red: None, pfc: None, fault: None };
    let config = SwitchConfig { buffer_bytes: 1_000_000, seed: 1, ports: vec![port.clone(), port] };
    let (mut switch, mut frames) = (Switch::new(&config, Copier), HeapFrames);
    switch.set_group(1, &[(0, 7), (1, 8), (0, 9)].map(|(port, rid)| Replica { port, rid }));
    let frame = |group| [&[group, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0xaa; 40]].concat();
    switch.receive(1, 0, frame(1), &mut frames, &mut NoTrace);
    let mut sent = |port| {
        std::iter::from_fn(|| switch.dequeue(port, 0, &mut frames, &mut NoTrace))
            .map(|d| (d.frame.len(), d.frame[5]))
            .collect::<Vec<_>>()
    };
    assert_eq!((sent(0), sent(1)), (vec![(20, 7), (20, 9)], vec![(20, 8)]));
    assert_eq!(switch.counters().conservation.replicas, 2);
    switch.receive(1, 0, frame(2), &mut frames, &mut NoTrace);
    assert_eq!(switch.counters().drops.get(DropReason::NoRoute), 1, "an empty group");
    assert!(switch.counters().conservation.holds());
}

#[test]
fn what_a_driver_cannot_send_moves_from_sent_to_dropped() {
    let (mut switch, mut frames) = (switch(None), HeadersOnly::default());
    for _ in 0..3 {
        switch.ingress(0, data(Ecn::Ect0, 1), (), &mut frames, &mut NoTrace);
    }
    let departure = switch.dequeue(0, 0, &mut frames, &mut NoTrace).expect("due at once");
    assert_eq!((switch.counters().conservation.tx, switch.counters().ports[0].tx_bytes), (1, 1000));
    switch.drop_departure(departure, DropReason::TxStalled, &mut frames, &mut NoTrace);
    assert_eq!((switch.counters().conservation.tx, switch.counters().ports[0].tx_bytes), (0, 0));
    switch.set_port_up(0, false);
    switch.flush_port(0, &mut frames, &mut NoTrace);
    switch.ingress(0, data(Ecn::Ect0, 1), (), &mut frames, &mut NoTrace);
    let counters = switch.counters();
    assert_eq!((counters.drops.get(DropReason::TxStalled), counters.drops.get(DropReason::PortDown)), (1, 3));
    assert!(counters.conservation.holds());
    switch.set_port_up(0, true);
    switch.ingress(0, data(Ecn::Ect0, 1), (), &mut frames, &mut NoTrace);
    assert_eq!(switch.counters().conservation.queued, 1);
}
