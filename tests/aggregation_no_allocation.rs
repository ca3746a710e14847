//! Aggregation in the switch allocates nothing per packet: neither what is added up, nor what is sent to all.

#[path = "common/allocations.rs"]
mod counting;

use std::net::{Ipv4Addr, SocketAddrV4};

use counting::allocations;
use symphony::dataplane::{Frames, NoTrace, PortConfig, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::serene::{Job, Serene, SereneConfig, Strategy};
use symphony::wire::aggregation::{Flags, Packet, Repr, Type};
use symphony::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};

const WORKERS: u8 = 4;
const SEGMENTS: u32 = 16;
const LANES: usize = 256;
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const PAYLOAD_AT: usize = 42;

/// Frames in a pool that is filled once, as live ones are.
struct Pool(Vec<Vec<u8>>);

impl Pool {
    fn take(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut frame = self.0.pop()?;
        frame.clear();
        frame.extend_from_slice(bytes);
        Some(frame)
    }
}

impl Frames for Pool {
    type Handle = Vec<u8>;

    fn bytes<'a>(&'a self, frame: &'a Vec<u8>) -> &'a [u8] {
        frame
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Vec<u8>) -> &'a mut [u8] {
        frame
    }

    fn resize(&mut self, frame: &mut Vec<u8>, len: usize) -> bool {
        frame.resize(len, 0);
        true
    }

    fn replicate(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        self.take(frame)
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.take(bytes)
    }

    fn free(&mut self, frame: Vec<u8>) {
        self.0.push(frame);
    }
}

/// A worker's frame, written over `bytes`.
fn write(bytes: &mut Vec<u8>, header: &Repr, lane: i32) {
    bytes.clear();
    bytes.resize(PAYLOAD_AT + header.payload_len(), 0);
    let worker = header.worker;
    let payload_len = header.payload_len();
    let src = Ipv4Addr::new(10, 0, 0, worker + 1);
    ethernet::Repr { dst: [2; 6], src: [2, 0, 0, 0, 0, worker], tags: [None; 2], ethertype: ethernet::IPV4 }
        .emit(bytes)
        .expect("fits");
    ipv4::Repr::udp(src, SERVICE, 0, 64, udp::HEADER_LEN + payload_len).emit(&mut bytes[14..]).expect("fits");
    udp::Repr { src_port: 7001, dst_port: AGGREGATION_PORT, payload_len }.emit(&mut bytes[34..]).expect("fits");
    header.emit(&mut bytes[PAYLOAD_AT..]).expect("fits");
    bytes[PAYLOAD_AT + 32..].as_chunks_mut().0.fill(lane.to_be_bytes());
}

#[test]
fn a_round_of_all_workers_allocates_nothing_and_adds_up() {
    let members = (1..=WORKERS).map(|host| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), 7001)).collect();
    let start = Strategy::Bsp;
    let job =
        Job { id: 1, members, segments: SEGMENTS, lanes: LANES as u16, scale_log2: 24, start, policies: Vec::new() };
    let mut serene = Serene::new(SereneConfig { address: SERVICE, mac: [2; 6], cpu_port: None, incarnation: 1 });
    serene.add_job(&job).expect("a sound job");
    let port =
        PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault: None };
    let config = SwitchConfig { buffer_bytes: 1 << 22, seed: 1, ports: vec![port; WORKERS.into()] };
    let forward = Forward::new(&ForwardConfig::Learning, WORKERS.into(), 1);
    let mut switch = Switch::new(&config, (serene, forward));
    let mut pool = Pool((0..64).map(|_| Vec::with_capacity(2048)).collect());

    let mut bytes = Vec::with_capacity(2048);
    let (mut before, mut released, mut now) = (0, 0, 0);
    for round in 0..200u32 {
        if round == 10 {
            before = allocations();
        }
        for segment in 0..SEGMENTS {
            for worker in 0..WORKERS {
                let kind = if round == 0 { Type::Join } else { Type::Push };
                let header = Repr {
                    worker,
                    segment,
                    round,
                    lane_count: if round == 0 { 0 } else { LANES as u16 },
                    frontier: round.saturating_sub(1),
                    incarnation_or_included: 9,
                    ..Repr::new(kind, 1)
                };
                write(&mut bytes, &header, 1 + i32::from(worker));
                let frame = pool.take(&bytes).expect("no frame is lost");
                now += 1000;
                switch.receive(worker.into(), now, frame, &mut pool, &mut NoTrace);
                for port in 0..WORKERS {
                    while let Some(departure) = switch.dequeue(port.into(), now, &mut pool, &mut NoTrace) {
                        let packet = Packet::new_checked(&departure.frame[PAYLOAD_AT..]).expect("an answer");
                        if packet.flags().contains(Flags::MCAST) {
                            assert!(packet.lanes().all(|lane| lane == 10 * round as i32));
                            released += 1;
                        }
                        pool.free(departure.frame);
                    }
                }
            }
        }
        if round == 0 {
            let replicas = switch.functions().0.replicas(1);
            switch.set_group(1, &replicas);
        }
        while switch.functions_mut().0.pop_digest().is_some() {}
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!(released, 199 * SEGMENTS * u32::from(WORKERS), "each round of each segment went to each worker");
    assert_eq!(switch.counters().conservation.dropped, 0);
}
