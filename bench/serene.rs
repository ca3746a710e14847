//! Aggregation in the pure pipeline, a packet at a time, with 256 lanes a segment: parse, stages, store, and where there is
//! an answer traffic manager, copies and egress. Elements are lanes: values aggregated or read a second.
//!
//! `forward` is what the same switch takes for a frame of that length that only passes.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use symphony::dataplane::{Frames, Nanos, NoTrace, PortConfig, PortId, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::serene::{Job, Serene, SereneConfig, Strategy};
use symphony::wire::aggregation::{self, Repr, Type};
use symphony::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const SERVICE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const LANES: usize = 256;
/// A 784-100-10 perceptron: 79510 parameters.
const SEGMENTS: u32 = 311;
const PAYLOAD_AT: usize = 14 + ipv4::HEADER_LEN + udp::HEADER_LEN;
const FRAME_BYTES: usize = PAYLOAD_AT + aggregation::HEADER_LEN + 4 * LANES;
const BETWEEN_PACKETS_NS: Nanos = 100;

/// A frame is so far from the next, as in a UMEM of small chunks.
const CHUNK_BYTES: usize = 2048;
/// Packets that a driver hands over together.
const BATCH: u32 = 32;
/// A batch, and the copies of one packet.
const CHUNKS: usize = 64;

/// Frames in fixed memory; replicas are copied.
struct Chunks {
    memory: Vec<u8>,
    free: Vec<usize>,
}

/// Where its chunk begins, and how much of that is the frame.
struct Frame {
    at: usize,
    bytes: usize,
}

impl Chunks {
    fn new() -> Self {
        Chunks { memory: vec![0; CHUNKS * CHUNK_BYTES], free: (0..CHUNKS).map(|chunk| chunk * CHUNK_BYTES).collect() }
    }
}

impl Frames for Chunks {
    type Handle = Frame;

    fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        &self.memory[frame.at..][..frame.bytes]
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Frame) -> &'a mut [u8] {
        &mut self.memory[frame.at..][..frame.bytes]
    }

    fn resize(&mut self, frame: &mut Frame, len: usize) -> bool {
        let fits = len <= CHUNK_BYTES;
        if fits {
            frame.bytes = len;
        }
        fits
    }

    fn replicate(&mut self, frame: &Frame) -> Option<Frame> {
        let at = self.free.pop()?;
        self.memory.copy_within(frame.at..frame.at + frame.bytes, at);
        Some(Frame { at, bytes: frame.bytes })
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Frame> {
        let at = self.free.pop()?;
        self.memory[at..][..bytes.len()].copy_from_slice(bytes);
        Some(Frame { at, bytes: bytes.len() })
    }

    fn free(&mut self, frame: Frame) {
        self.free.push(frame.at);
    }
}

fn address(worker: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker + 1), 7001)
}

fn mac(worker: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, worker + 1]
}

/// A switch with one worker behind each port, all of one BSP job.
struct Rig {
    switch: Switch<(Serene, Forward), Frame>,
    frames: Chunks,
    /// A request with its lanes, to be changed here and there.
    request: [u8; FRAME_BYTES],
    workers: u8,
    /// What has come in and was not processed yet.
    batch: Vec<(PortId, Frame)>,
    now: Nanos,
    round: u32,
}

impl Rig {
    fn new(workers: u8) -> Self {
        let ports = usize::from(workers);
        let members = (0..workers).map(address).collect();
        let job = Job {
            id: 1,
            members,
            segments: SEGMENTS,
            lanes: LANES as u16,
            scale_log2: 24,
            start: Strategy::Bsp,
            policies: Vec::new(),
        };
        let mut serene =
            Serene::new(SereneConfig { address: SERVICE, mac: SERVICE_MAC, cpu_port: None, incarnation: 1 });
        serene.add_job(&job).expect("a sound job");
        let port =
            PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault: None };
        let config = SwitchConfig { buffer_bytes: 32 << 20, seed: 1, ports: vec![port; ports] };
        let forward = Forward::new(&ForwardConfig::Learning, ports, 1);
        let mut rig = Rig {
            switch: Switch::new(&config, (serene, forward)),
            frames: Chunks::new(),
            request: [0; FRAME_BYTES],
            workers,
            batch: Vec::with_capacity(BATCH as usize),
            now: 0,
            round: 1,
        };
        for (at, byte) in rig.request.iter_mut().enumerate() {
            *byte = at as u8;
        }
        for worker in 0..workers {
            rig.arrive(worker, Type::Join, 0);
            rig.arrive_at_neighbour(worker);
            rig.process();
        }
        let replicas = rig.switch.functions().0.replicas(1);
        assert_eq!(replicas.len(), ports);
        rig.switch.set_group(1, &replicas);
        rig
    }

    /// What a driver does: a request has come in.
    fn arrive(&mut self, worker: u8, kind: Type, segment: u32) {
        let lane_count = if kind == Type::Push { LANES as u16 } else { 0 };
        let payload_len = aggregation::HEADER_LEN + 4 * usize::from(lane_count);
        let header = Repr {
            worker,
            round: if kind == Type::Push { self.round } else { 0 },
            segment: if kind == Type::Join { SEGMENTS } else { segment },
            lane_count,
            norm: self.workers,
            rule_version: 1,
            frontier: self.round - 1,
            incarnation_or_included: 7,
            ..Repr::new(kind, 1)
        };
        let bytes = &mut self.request;
        let datagram_len = udp::HEADER_LEN + payload_len;
        ethernet::Repr { dst: SERVICE_MAC, src: mac(worker), tags: [None; 2], ethertype: ethernet::IPV4 }
            .emit(bytes)
            .expect("it fits");
        ipv4::Repr::udp(*address(worker).ip(), SERVICE, 0, 64, datagram_len).emit(&mut bytes[14..]).expect("it fits");
        udp::Repr { src_port: address(worker).port(), dst_port: AGGREGATION_PORT, payload_len }
            .emit(&mut bytes[14 + ipv4::HEADER_LEN..])
            .expect("it fits");
        header.emit(&mut bytes[PAYLOAD_AT..]).expect("it fits");
        let frame = self.frames.emit(&self.request[..PAYLOAD_AT + payload_len]).expect("a chunk is free");
        self.batch.push((worker.into(), frame));
    }

    /// A PUSH by its length, which goes to the next worker instead.
    fn arrive_at_neighbour(&mut self, worker: u8) {
        self.arrive(worker, Type::Push, 0);
        if let Some((_, frame)) = self.batch.last_mut() {
            let bytes = self.frames.bytes_mut(frame);
            bytes[..6].copy_from_slice(&mac((worker + 1) % self.workers));
            bytes[PAYLOAD_AT - 5] ^= 1; // the UDP port
        }
    }

    /// The pipeline's work for what arrived: each packet in, and out what there is. Returns how many frames came out.
    #[inline]
    fn process(&mut self) -> usize {
        let mut departures = 0;
        for (port, frame) in self.batch.drain(..) {
            self.now += BETWEEN_PACKETS_NS;
            self.switch.receive(port, self.now, frame, &mut self.frames, &mut NoTrace);
            for port in self.switch.backlog().iter() {
                while let Some(departure) = self.switch.dequeue(port, self.now, &mut self.frames, &mut NoTrace) {
                    self.frames.free(departure.frame);
                    departures += 1;
                }
            }
        }
        departures
    }

    /// The time for a batch, each packet of which has so many copies that leave.
    fn time(&mut self, copies: u8) -> Duration {
        let packets = self.batch.len();
        let begin = Instant::now();
        let departures = self.process();
        let spent = begin.elapsed();
        assert_eq!(departures, packets * usize::from(copies));
        spent
    }

    /// All contributions of a worker to the open round, each with so many answers.
    fn time_pushes(&mut self, worker: u8, copies: u8) -> Duration {
        let mut spent = Duration::ZERO;
        for first in (0..SEGMENTS).step_by(BATCH as usize) {
            for segment in first..(first + BATCH).min(SEGMENTS) {
                self.arrive(worker, Type::Push, segment);
            }
            spent += self.time(copies);
        }
        spent
    }

    /// A whole round: the time of the contributions that are parked, and of those that release.
    fn time_round(&mut self) -> (Duration, Duration) {
        let last = self.workers - 1;
        let parked = (0..last).map(|worker| self.time_pushes(worker, 0)).sum();
        let releasing = self.time_pushes(last, self.workers);
        self.round += 1;
        (parked, releasing)
    }

    fn time_pulls(&mut self) -> Duration {
        for packet in 0..BATCH {
            self.arrive(0, Type::Pull, (self.now as u32 + packet) % SEGMENTS);
        }
        self.time(1)
    }

    fn time_forwards(&mut self) -> Duration {
        for _ in 0..BATCH {
            self.arrive_at_neighbour(0);
        }
        self.time(1)
    }
}

/// Runs `batch`, which gives the time of so many packets, until `iterations` packets have been timed.
fn times(iterations: u64, packets: u64, mut batch: impl FnMut() -> Duration) -> Duration {
    let batches = iterations.div_ceil(packets);
    let spent: Duration = (0..batches).map(|_| batch()).sum();
    spent.mul_f64(iterations as f64 / (batches * packets) as f64)
}

fn serene(c: &mut Criterion) {
    let mut group = c.benchmark_group("serene");
    group.throughput(Throughput::Elements(LANES as u64));
    let segments = u64::from(SEGMENTS);
    let mut rig = Rig::new(4);
    group.bench_function("forward", |b| b.iter_custom(|n| times(n, BATCH.into(), || rig.time_forwards())));
    group.bench_function("pull", |b| b.iter_custom(|n| times(n, BATCH.into(), || rig.time_pulls())));
    for workers in [4, 8] {
        let mut rig = Rig::new(workers);
        let parked = segments * u64::from(workers - 1);
        group.bench_function(BenchmarkId::new("push, parked", workers), |b| {
            b.iter_custom(|n| times(n, parked, || rig.time_round().0));
        });
        group.bench_function(BenchmarkId::new("push, releasing to", workers), |b| {
            b.iter_custom(|n| times(n, segments, || rig.time_round().1));
        });
    }
    group.finish();
}

criterion_group!(benches, serene);
criterion_main!(benches);
