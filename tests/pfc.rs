//! Priority flow control through a whole switch: no loss, for neighbours that keep to it.

use proptest::prelude::*;
use symphony::dataplane::{
    Cx, DropReason, Function, HeadersOnly, Nanos, NoTrace, Pfc, Phv, PortConfig, PortId, Roce, Switch, SwitchConfig,
    Tracer, Verdict,
};
use symphony::wire::Opcode;

const PORTS: u16 = 3;
const MAX_BYTES: u32 = 1500;
const HEADROOM_BYTES: u64 = 6_000;
/// What may still come after a pause: the packet that brought it may be headroom already.
const IN_FLIGHT_BYTES: u64 = HEADROOM_BYTES - MAX_BYTES as u64;

/// Sends to the port in the last byte of the destination MAC.
struct ByMac;

impl Function for ByMac {
    fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        Verdict::Forward(phv.eth_dst[5].into())
    }
}

fn switch(buffer_bytes: u64, pfc: Option<Pfc>) -> Switch<ByMac, ()> {
    let port = PortConfig {
        name: String::new(),
        rate_bps: Some(8_000_000_000),
        // No room for a packet: only what is lossless gets through.
        buffer_bytes: if pfc.is_some() { 0 } else { 1_000_000 },
        red: None,
        pfc,
        fault: None,
    };
    Switch::new(&SwitchConfig { buffer_bytes, seed: 1, ports: vec![port; PORTS.into()] }, ByMac)
}

fn packet(from: PortId, to: PortId, frame_bytes: u32) -> Phv {
    Phv { ingress_port: from, frame_bytes, eth_dst: [2, 0, 0, 0, 0, to as u8], ..Phv::default() }
}

/// Takes out what is due.
fn drain(switch: &mut Switch<ByMac, ()>, port: PortId, now: Nanos) {
    while switch.dequeue(port, now, &mut HeadersOnly::default(), &mut NoTrace).is_some() {}
}

/// A neighbour that sends, and what it may still send if it is paused.
#[derive(Clone, Copy, Default)]
struct Neighbour {
    paused: bool,
    in_flight_bytes: u64,
}

#[derive(Clone, Debug)]
enum Act {
    Send { from: PortId, to: PortId, bytes: u32 },
    Drain { port: PortId },
    Pause { port: PortId, paused: bool },
    Wait(Nanos),
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![64..=MAX_BYTES, Just(MAX_BYTES)];
    prop_oneof![
        // Two ports feed mostly one: something has to give.
        6 => (0..PORTS, prop_oneof![4 => Just(0), 1 => 0..PORTS], bytes)
            .prop_map(|(from, to, bytes)| Act::Send { from, to, bytes }),
        2 => (0..PORTS).prop_map(|port| Act::Drain { port }),
        1 => (0..PORTS, any::<bool>()).prop_map(|(port, paused)| Act::Pause { port, paused }),
        2 => (0..1_000u64).prop_map(Act::Wait),
    ]
}

/// A pool that is just large enough, and thresholds of either kind.
fn limits() -> impl Strategy<Value = (u64, Pfc)> {
    let ports = u64::from(PORTS);
    prop_oneof![
        (0..20_000u64, 0..20_000u64).prop_map(move |(xoff_bytes, below)| {
            let xon_bytes = xoff_bytes.saturating_sub(below);
            (ports * (xoff_bytes + HEADROOM_BYTES), Pfc::fixed(xoff_bytes, xon_bytes, HEADROOM_BYTES))
        }),
        (0..80_000u64, 0..6u8).prop_map(move |(shared_bytes, shift)| {
            let pfc = Pfc::dynamic(shift, HEADROOM_BYTES);
            (ports * (pfc.reserve_bytes + HEADROOM_BYTES) + shared_bytes, pfc)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_packet_is_lost_while_no_more_than_the_headroom_comes_after_a_pause(
        (buffer_bytes, pfc) in limits(),
        acts in proptest::collection::vec(act(), 1..400),
    ) {
        let mut switch = switch(buffer_bytes, Some(pfc));
        let mut frames = HeadersOnly::default();
        let mut neighbours = [Neighbour::default(); PORTS as usize];
        let (mut now, mut pauses) = (0, [0; PORTS as usize]);
        // In the end all is let go.
        let end = (0..PORTS).flat_map(|port| {
            [Act::Wait(1 << 30), Act::Pause { port, paused: false }, Act::Wait(1 << 30), Act::Drain { port }]
        });
        for act in acts.into_iter().chain(end) {
            match act {
                Act::Send { from, to, bytes } => {
                    let neighbour = &mut neighbours[usize::from(from)];
                    if neighbour.paused {
                        let Some(rest) = neighbour.in_flight_bytes.checked_sub(bytes.into()) else { continue };
                        neighbour.in_flight_bytes = rest;
                    }
                    switch.ingress(now, packet(from, to, bytes), (), &mut frames, &mut NoTrace);
                }
                Act::Drain { port } => drain(&mut switch, port, now),
                Act::Pause { port, paused } => {
                    drain(&mut switch, port, now);
                    switch.pause(port, now, paused);
                }
                Act::Wait(ns) => now += ns,
            }
            for (port, paused) in switch.take_pauses() {
                let neighbour = &mut neighbours[usize::from(port)];
                prop_assert_ne!(neighbour.paused, paused, "told once");
                *neighbour = Neighbour { paused, in_flight_bytes: IN_FLIGHT_BYTES };
                pauses[usize::from(port)] += u64::from(paused);
            }
            prop_assert_eq!(switch.counters().conservation.dropped, 0);
        }
        prop_assert_eq!(switch.counters().conservation.queued, 0);
        for (port, neighbour) in neighbours.iter().enumerate() {
            prop_assert!(!neighbour.paused, "who is paused for good has lost, too");
            prop_assert_eq!(switch.counters().ports[port].pfc_pauses, pauses[port]);
        }
    }

    #[test]
    fn limits_that_nobody_reaches_change_nothing(acts in proptest::collection::vec(act(), 1..200)) {
        let run = |mut switch: Switch<ByMac, ()>| {
            let mut frames = HeadersOnly::default();
            let (mut now, mut seen) = (0, Vec::new());
            for act in &acts {
                match *act {
                    Act::Send { from, to, bytes } => {
                        switch.ingress(now, packet(from, to, bytes), (), &mut frames, &mut NoTrace);
                    }
                    Act::Drain { port } => {
                        seen.extend(std::iter::from_fn(|| switch.dequeue(port, now, &mut frames, &mut NoTrace)
                            .map(|d| (d.port, d.at, d.ends_at, d.depth_bytes, d.phv))));
                    }
                    Act::Pause { .. } => {}
                    Act::Wait(ns) => now += ns,
                }
                assert_eq!(switch.take_pauses().count(), 0);
            }
            (seen, switch.counters().clone())
        };
        prop_assert_eq!(run(switch(1 << 20, None)), run(switch(1 << 20, Some(Pfc::fixed(300_000, 0, 0)))));
    }
}

#[test]
fn a_neighbour_that_sends_on_is_dropped_for_a_reason_of_its_own_and_pauses_are_counted() {
    let mut switch = switch(100_000, Some(Pfc::fixed(2_000, 1_000, 1_000)));
    let mut frames = HeadersOnly::default();
    for _ in 0..4 {
        switch.ingress(0, packet(1, 0, 1000), (), &mut frames, &mut NoTrace);
    }
    assert_eq!(switch.take_pauses().collect::<Vec<_>>(), [(1, true)]);
    let counters = switch.counters();
    assert_eq!((counters.drops.get(DropReason::HeadroomFull), counters.conservation.dropped), (1, 1));
    drain(&mut switch, 0, 5_000);
    assert_eq!(switch.take_pauses().collect::<Vec<_>>(), [(1, false)]);
    let pauses: Vec<_> = switch.counters().ports.iter().map(|port| port.pfc_pauses).collect();
    assert_eq!(pauses, [0, 1, 0], "resumes are not counted");
}

#[test]
fn a_pause_stops_data_and_lets_acknowledgements_go() {
    let mut switch = switch(100_000, None);
    let mut frames = HeadersOnly::default();
    let acknowledgement = Roce { opcode: Opcode::ACKNOWLEDGE, ..Roce::default() };
    switch.pause(0, 0, true);
    switch.ingress(0, packet(1, 0, 1000), (), &mut frames, &mut NoTrace);
    switch.ingress(0, Phv { roce: Some(acknowledgement), ..packet(1, 0, 64) }, (), &mut frames, &mut NoTrace);
    let mut sent = || switch.dequeue(0, 9_000, &mut frames, &mut NoTrace).map(|d| (d.phv.frame_bytes, d.at));
    assert_eq!((sent(), sent()), (Some((64, 0)), None));
    assert_eq!(switch.next_departure_any(), None);
    switch.pause(0, 9_000, false);
    assert_eq!(switch.next_departure(0), Some(9_000));
}
