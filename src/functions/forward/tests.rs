use super::*;
use crate::dataplane::{IpAddress, L3, NoBytes, NoTrace, VlanTags};

const PORTS: usize = 4;
const A: MacAddress = [2, 0, 0, 0, 0, 0xa];
const B: MacAddress = [2, 0, 0, 0, 0, 0xb];
const BROADCAST: MacAddress = [0xff; 6];

fn forward_at(forward: &mut Forward, now: Nanos, phv: &mut Phv) -> Verdict {
    let mut emissions = Vec::new();
    let mut cx = Cx { now, pass: 0, trace: &mut NoTrace, emissions: &mut emissions, frame: &mut NoBytes };
    forward.ingress(&mut cx, phv)
}

fn frame(port: PortId, src: MacAddress, dst: MacAddress) -> Phv {
    Phv { ingress_port: port, eth_src: src, eth_dst: dst, ..Phv::default() }
}

fn send(forward: &mut Forward, now: Nanos, port: PortId, src: MacAddress, dst: MacAddress) -> Verdict {
    forward_at(forward, now, &mut frame(port, src, dst))
}

fn learning() -> Forward {
    Forward::new(&ForwardConfig::Learning, PORTS, 1)
}

fn all_but(port: PortId) -> Verdict {
    Verdict::Multicast(PortSet(0b1111).without(port))
}

#[test]
fn the_unknown_is_flooded_to_every_other_port_and_the_known_goes_to_its_own() {
    let mut forward = learning();
    assert_eq!(send(&mut forward, 0, 1, A, B), all_but(1));
    assert_eq!(send(&mut forward, 1, 3, B, A), Verdict::Forward(1));
    assert_eq!(send(&mut forward, 2, 1, A, B), Verdict::Forward(3));
    assert_eq!(send(&mut forward, 3, 1, A, BROADCAST), all_but(1));
    assert_eq!(send(&mut forward, 4, 3, B, [0x33, 0x33, 0, 0, 0, 1]), all_but(3), "multicast");
    assert_eq!(send(&mut forward, 5, 3, A, B), Verdict::Drop(DropReason::SamePort));
}

#[test]
fn a_station_moves_with_its_first_frame_from_another_port() {
    let mut forward = learning();
    send(&mut forward, 0, 1, A, BROADCAST);
    send(&mut forward, 1, 2, A, BROADCAST);
    assert_eq!(send(&mut forward, 2, 0, B, A), Verdict::Forward(2));
    assert_eq!(forward.station(0, A), Some(Station { port: 2, heard_at: 1 }));
}

#[test]
fn a_station_that_was_silent_for_more_than_300_s_is_not_known_any_more() {
    let mut forward = learning();
    send(&mut forward, 7, 1, A, BROADCAST);
    assert_eq!(send(&mut forward, 7 + 300_000_000_000, 0, B, A), Verdict::Forward(1));
    assert_eq!(send(&mut forward, 8 + 300_000_000_000, 0, B, A), all_but(0));
    forward.expire(8 + 300_000_000_000);
    assert_eq!(forward.station(0, A), None);
    assert!(forward.station(0, B).is_some());
}

#[test]
fn the_stations_of_a_port_that_went_down_are_forgotten() {
    let mut forward = learning();
    send(&mut forward, 0, 1, A, BROADCAST);
    send(&mut forward, 0, 2, B, BROADCAST);
    forward.forget_port(1);
    assert_eq!((forward.station(0, A), forward.station(0, B).map(|s| s.port)), (None, Some(2)));
}

#[test]
fn vlans_are_learned_apart() {
    let mut forward = learning();
    let tagged = |port, src, dst, tci| Phv { vlan: VlanTags { count: 1, tci: [tci, 0] }, ..frame(port, src, dst) };
    forward_at(&mut forward, 0, &mut tagged(1, A, BROADCAST, 0x600a));
    forward_at(&mut forward, 0, &mut tagged(2, A, BROADCAST, 20));
    assert_eq!(
        forward_at(&mut forward, 0, &mut tagged(0, B, A, 10)),
        Verdict::Forward(1),
        "whatever the priority bits"
    );
    assert_eq!(forward_at(&mut forward, 0, &mut tagged(0, B, A, 20)), Verdict::Forward(2));
    assert_eq!(send(&mut forward, 0, 0, B, A), all_but(0), "untagged: never seen");
}

#[test]
fn a_full_table_floods_and_counts_and_goes_on_with_the_known() {
    let mut forward = learning();
    for n in 0..MAX_STATIONS as u32 + 5 {
        let [_, x, y, z] = n.to_be_bytes();
        send(&mut forward, 0, 1, [2, 1, 0, x, y, z], BROADCAST);
    }
    assert_eq!(forward.not_learned(), 5);
    assert_eq!(send(&mut forward, 1, 2, A, [2, 1, 0, 0, 0, 0]), Verdict::Forward(1));
    assert_eq!(send(&mut forward, 1, 1, [2, 1, 0, 0, 0, 0], A), all_but(1));
    assert_eq!(forward.not_learned(), 6);
    forward.expire(2 + AGE_LIMIT_NS);
    send(&mut forward, 3 + AGE_LIMIT_NS, 2, A, BROADCAST);
    assert_eq!(forward.station(0, A).map(|s| s.port), Some(2), "room again");
}

#[test]
fn link_local_frames_and_group_sources_are_dropped_in_both_modes_and_never_learned() {
    for config in [ForwardConfig::Learning, ForwardConfig::Static(Vec::new())] {
        let mut forward = Forward::new(&config, PORTS, 1);
        for last in 0..16 {
            let verdict = send(&mut forward, 0, 1, A, [0x01, 0x80, 0xc2, 0, 0, last]);
            assert_eq!(verdict, Verdict::Drop(DropReason::LinkLocal));
        }
        let verdict = send(&mut forward, 0, 1, A, [0x01, 0x80, 0xc2, 0, 0, 0x10]);
        assert_ne!(verdict, Verdict::Drop(DropReason::LinkLocal));
        let group = [0x03, 0, 0, 0, 0, 1];
        assert_eq!(send(&mut forward, 0, 1, group, A), Verdict::Drop(DropReason::BadSourceMac));
        assert_eq!(forward.station(0, group), None);
    }
}

fn ip(last: u8) -> IpAddress {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

fn packet(dst: u8, sport: u16) -> Phv {
    Phv { l3: L3::Ipv4, src: ip(1), dst: ip(dst), ttl: 64, protocol: 17, sport, dport: 4791, ..frame(0, A, B) }
}

fn hop(port: PortId) -> NextHop {
    NextHop { port, mac: Some([2, 0, 0, 0, 1, port as u8]), source_mac: Some([2, 0, 0, 0, 2, port as u8]) }
}

fn prefix(last: u8, bits: u8, via: Vec<NextHop>) -> Route {
    Route { matches: RouteMatch::Prefix(Prefix { address: ip(last), bits: 96 + bits }), via }
}

fn routes(routes: Vec<Route>) -> Forward {
    Forward::new(&ForwardConfig::Static(routes), PORTS, 1)
}

#[test]
fn the_longest_prefix_routes_and_asks_for_new_macs() {
    let mut forward = routes(vec![prefix(0, 24, vec![hop(1)]), prefix(9, 32, vec![hop(2)])]);
    let mut phv = packet(8, 1);
    assert_eq!(forward_at(&mut forward, 0, &mut phv), Verdict::Forward(1));
    assert_eq!((phv.routed, phv.eth_dst, phv.eth_src), (true, [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 1]));
    assert_eq!(phv.ttl, packet(8, 1).ttl - 1);
    let mut phv = packet(9, 1);
    assert_eq!(forward_at(&mut forward, 0, &mut phv), Verdict::Forward(2));
    let mut elsewhere = Phv { dst: [0xfd; 16], l3: L3::Ipv6, ..packet(8, 1) };
    assert_eq!(forward_at(&mut forward, 0, &mut elsewhere), Verdict::Drop(DropReason::NoRoute));
    assert!(!elsewhere.routed);
    let mut not_ip = Phv { l3: L3::Other, ..packet(8, 1) };
    assert_eq!(forward_at(&mut forward, 0, &mut not_ip), Verdict::Drop(DropReason::NoRoute), "nothing is flooded");
}

#[test]
fn a_ttl_of_one_ends_here() {
    let mut forward = routes(vec![prefix(0, 24, vec![hop(1)])]);
    for (ttl, verdict) in [
        (0, Verdict::Drop(DropReason::TtlExpired)),
        (1, Verdict::Drop(DropReason::TtlExpired)),
        (2, Verdict::Forward(1)),
    ] {
        let mut phv = Phv { ttl, ..packet(8, 1) };
        assert_eq!(forward_at(&mut forward, 0, &mut phv), verdict, "TTL {ttl}");
    }
}

#[test]
fn a_mac_route_comes_first_and_changes_nothing() {
    let mut forward =
        routes(vec![prefix(0, 24, vec![hop(1)]), Route { matches: RouteMatch::Mac(B), via: vec![hop(3)] }]);
    let mut phv = Phv { ttl: 1, ..packet(8, 1) };
    assert_eq!(forward_at(&mut forward, 0, &mut phv), Verdict::Forward(3));
    assert_eq!(phv, Phv { ttl: 1, ..packet(8, 1) });
    let mut phv = Phv { ingress_port: 3, ..phv };
    assert_eq!(forward_at(&mut forward, 0, &mut phv), Verdict::Drop(DropReason::SamePort));
}

#[test]
fn a_next_hop_without_macs_sends_on_unchanged_or_from_the_old_destination() {
    let bare = NextHop { mac: None, source_mac: None, ..hop(2) };
    let sourceless = NextHop { source_mac: None, ..hop(2) };
    let mut phv = packet(8, 1);
    assert_eq!(forward_at(&mut routes(vec![prefix(0, 24, vec![bare])]), 0, &mut phv), Verdict::Forward(2));
    assert!(!phv.routed);
    forward_at(&mut routes(vec![prefix(0, 24, vec![sourceless])]), 0, &mut phv);
    assert_eq!((phv.routed, phv.eth_dst, phv.eth_src), (true, [2, 0, 0, 0, 1, 2], B));
    assert_eq!(
        forward_at(&mut routes(vec![prefix(0, 24, vec![])]), 0, &mut packet(8, 1)),
        Verdict::Drop(DropReason::NoRoute)
    );
}

fn port_of(forward: &mut Forward, mut phv: Phv) -> PortId {
    match forward_at(forward, 0, &mut phv) {
        Verdict::Forward(port) => port,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ecmp_spreads_flows_evenly_and_keeps_each_on_one_way() {
    let mut forward = routes(vec![prefix(0, 24, (1..4).map(hop).collect())]);
    let mut flows = [0; PORTS];
    for sport in 0..30_000 {
        let port = port_of(&mut forward, packet(8, sport));
        assert_eq!(port, port_of(&mut forward, Phv { frame_bytes: 9, ttl: 5, ..packet(8, sport) }));
        flows[usize::from(port)] += 1;
    }
    assert_eq!(flows[0], 0);
    // Binomial: 10000 +- 82.
    assert!(flows[1..].iter().all(|n| (9_600..10_400).contains(n)), "{flows:?}");
}

#[test]
fn all_fragments_of_a_packet_take_one_way() {
    let mut forward = routes(vec![prefix(0, 24, (1..4).map(hop).collect())]);
    for dst in 2..100 {
        let fragment = |sport| Phv { fragment: true, ..packet(dst, sport) };
        assert_eq!(port_of(&mut forward, fragment(0)), port_of(&mut forward, fragment(4791)));
    }
}

/// A leaf sends a spine only flows with one answer of its own hash. With a hash that is linear in the seed these would
/// all get one answer of the spine's, too.
#[test]
fn switches_with_different_seeds_do_not_polarise() {
    let group = ForwardConfig::Static(vec![prefix(0, 24, (0..4).map(hop).collect())]);
    let (mut leaf, mut spine) = (Forward::new(&group, PORTS, 1), Forward::new(&group, PORTS, 2));
    let mut flows = [[0; PORTS]; PORTS];
    for sport in 0..16_000 {
        let up = port_of(&mut leaf, packet(8, sport));
        flows[usize::from(up)][usize::from(port_of(&mut spine, packet(8, sport)))] += 1;
    }
    assert!(flows.iter().flatten().all(|n| (850..1150).contains(n)), "1000 expected in each: {flows:?}");
}
