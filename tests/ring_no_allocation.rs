//! Endpoints allocate nothing for a packet: once a job is under way, thousands of packets pass without one allocation.

#[path = "common/allocations.rs"]
mod counting;

use std::collections::VecDeque;
use std::net::IpAddr;

use counting::allocations;
use symphony::roce::{Config, Endpoint, Outcome};
use symphony::wire::roce::Repr;

#[test]
fn packets_cost_no_allocation() {
    let ring: Vec<IpAddr> = vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
    let endpoint = |rank| {
        let config = Config { chunk_bytes: 1 << 20, iterations: 50, ..Config::new(1, &ring, rank).unwrap() };
        Endpoint::new(config).unwrap()
    };
    let mut endpoints = [endpoint(0), endpoint(1)];
    let mut flying: VecDeque<(Repr, usize)> = VecDeque::with_capacity(64);
    let mut payloads = vec![[0u8; 1024]; 64];
    let (mut now, mut packets, mut before) = (0, 0u64, None);
    while !endpoints.iter().all(|e| matches!(e.outcome(), Outcome::Finished { .. })) {
        now = endpoints.iter().filter_map(Endpoint::next_timeout).min().map_or(now, |next| next.max(now));
        for endpoint in &mut endpoints {
            while let Some(transmit) = endpoint.poll_transmit(now) {
                let slot = (packets % 64) as usize;
                endpoint.read_payload(transmit.data, &mut payloads[slot][..transmit.repr.payload_len]);
                flying.push_back((transmit.repr, slot));
                packets += 1;
            }
        }
        while let Some((repr, slot)) = flying.pop_front() {
            let to = endpoints.iter_mut().find(|e| e.config().addr == repr.dst).unwrap();
            to.on_packet(now, &repr, &payloads[slot][..repr.payload_len], packets.is_multiple_of(1000));
        }
        if before.is_none() && packets > 20_000 {
            before = Some(allocations());
        }
    }
    assert!(packets > 150_000, "{packets}");
    assert_eq!(allocations() - before.unwrap(), 0);
    for endpoint in &mut endpoints {
        assert_eq!(endpoint.verify(), Ok(()));
        assert!(endpoint.counters().cnps_received > 0);
    }
}
