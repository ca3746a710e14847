//! What the benches and the allocation test drive: a switch of four ports with standing queues and RoCEv2 flows through it.

#![allow(dead_code)] // each user takes its part

use std::net::{IpAddr, Ipv4Addr};

use symphony::dataplane::{Frames, Function, Nanos, NoTrace, PortConfig, PortId, Red, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::symphony::{Job, Parameters, StepSource, Symphony};
use symphony::wire::Opcode;
use symphony::wire::roce::Repr;

pub const PORTS: u16 = 4;
pub const PATH_MTU: usize = 1024;

/// Packets that wait at each port: 64 KB, so that RED draws for every packet and Symphony's queue test holds.
const STANDING: u64 = 64;
const BETWEEN_PACKETS_NS: Nanos = 100;
const RANKS: u32 = 64;
const PACKETS_PER_STEP: u32 = 16;
const IDLE_NS: Nanos = 1_000_000;

fn address(rank: u32) -> IpAddr {
    Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + rank % RANKS).into()
}

/// The station of a rank lives on port `rank % PORTS`.
fn mac(rank: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, (rank % RANKS) as u8]
}

/// A packet of flow number `flow`: an edge of a ring of [`RANKS`] ranks, and more queue pairs from [`RANKS`] flows on.
pub fn packet(flow: u32) -> Vec<u8> {
    let repr = Repr {
        tos: 0x6a,
        sport: 0xc000,
        payload_len: PATH_MTU,
        ..Repr::new(address(flow), address(flow + 1), Opcode::WRITE_MIDDLE, 0x100 + flow / RANKS)
    };
    let mut bytes = vec![0; PATH_MTU + 128];
    let len = repr.emit_frame(mac(flow), mac(flow + 1), &[0; PATH_MTU], &mut bytes).expect("it fits");
    bytes.truncate(len);
    bytes
}

pub fn config() -> SwitchConfig {
    let port = PortConfig {
        name: "p".into(),
        rate_bps: None,
        buffer_bytes: 1_000_000,
        red: Some(Red { kmin_bytes: 20_000, kmax_bytes: 400_000, pmax: 0.2 }),
    };
    SwitchConfig { buffer_bytes: 32 << 20, seed: 1, ports: vec![port; PORTS.into()] }
}

pub fn forward() -> Forward {
    Forward::new(&ForwardConfig::Learning, PORTS.into(), 1)
}

/// One job over all ranks; its flows are tracked from the first packet on, and marked.
pub fn symphony() -> Symphony {
    let mut symphony = Symphony::new(Parameters::default(), 16384, 1024);
    let job = Job {
        id: 1,
        name: "bench".into(),
        ring: (0..RANKS).map(address).collect(),
        step_source: StepSource::Message,
        requests_per_step: 1,
        packets_per_step: Some(PACKETS_PER_STEP),
        path_mtu: PATH_MTU as u32,
        steps_per_collective: 2 * (RANKS - 1),
        idle_ns: IDLE_NS,
        enabled: true,
    };
    symphony.add_job(&job, 0).expect("it is the only one");
    symphony
}

/// Room for the headers of one frame.
const HEADERS: usize = 128;

/// Frames in fixed memory; the handle is a number. Only headers have room of their own, and what follows them passes for
/// payload: a driver hands frames over with their headers in the cache, and nobody in the pipeline reads payload.
pub struct Buffers {
    memory: Vec<u8>,
    frame_bytes: usize,
}

impl Buffers {
    /// `count` frames with the headers of `frame(number)`, all of one length.
    fn new(count: u32, frame: impl Fn(u32) -> Vec<u8>) -> Self {
        let frame_bytes = frame(0).len();
        let mut buffers = Buffers { memory: vec![0; count as usize * HEADERS + frame_bytes], frame_bytes };
        for number in 0..count {
            buffers.set_headers(number, &frame(number));
        }
        buffers
    }

    fn set_headers(&mut self, number: u32, frame: &[u8]) {
        let mut handle = number;
        self.bytes_mut(&mut handle)[..HEADERS].copy_from_slice(&frame[..HEADERS]);
    }
}

impl Frames for Buffers {
    type Handle = u32;

    fn bytes<'a>(&'a self, frame: &'a u32) -> &'a [u8] {
        &self.memory[*frame as usize * HEADERS..][..self.frame_bytes]
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut u32) -> &'a mut [u8] {
        &mut self.memory[*frame as usize * HEADERS..][..self.frame_bytes]
    }

    fn replicate(&mut self, _: &u32) -> Option<u32> {
        None
    }

    fn emit(&mut self, _: &[u8]) -> Option<u32> {
        None
    }

    fn free(&mut self, _: u32) {}
}

/// A switch in its steady state.
pub struct Rig<F> {
    pub switch: Switch<F, u32>,
    frames: Buffers,
    /// Per buffer: its flow, and the flow's ports.
    route: Vec<(u32, PortId, PortId)>,
    psn: Vec<u32>,
    next: usize,
    now: Nanos,
}

impl<F: Function> Rig<F> {
    /// `flows` is a power of two.
    pub fn new(functions: F, flows: u32) -> Self {
        let buffers = flows.max(1024);
        let route = |buffer: u32| {
            let flow = buffer % flows;
            (flow, (flow % u32::from(PORTS)) as PortId, ((flow + 1) % u32::from(PORTS)) as PortId)
        };
        let mut rig = Rig {
            switch: Switch::new(&config(), functions),
            frames: Buffers::new(buffers, |buffer| packet(buffer % flows)),
            route: (0..buffers).map(route).collect(),
            psn: vec![0; flows as usize],
            next: 0,
            now: IDLE_NS * 10,
        };
        rig.learn();
        let used: std::collections::BTreeSet<_> = rig.route.iter().map(|(_, _, to)| *to).collect();
        for _ in 0..STANDING * used.len() as u64 {
            rig.receive();
        }
        rig
    }

    /// Makes every rank known to a learning bridge.
    fn learn(&mut self) {
        for rank in 0..RANKS {
            let mut hello = packet(rank);
            hello[..6].fill(0xff);
            hello[23] = 1; // not UDP
            self.frames.set_headers(0, &hello);
            self.switch.receive((rank % u32::from(PORTS)) as PortId, self.now, 0, &mut self.frames, &mut NoTrace);
            self.frames.set_headers(0, &packet(0));
        }
        for port in 0..PORTS {
            while self.switch.dequeue(port, self.now, &mut self.frames, &mut NoTrace).is_some() {}
        }
    }

    /// Takes in the next packet; returns the port that it goes to.
    #[inline]
    fn receive(&mut self) -> PortId {
        // An odd multiplier visits every buffer once a round, in an order that no prefetcher guesses. It is a round
        // before a buffer comes again; its last packet has long left the queue.
        let buffer = self.next.wrapping_mul(0x9e37_79b1) & (self.route.len() - 1);
        self.next += 1;
        self.now += BETWEEN_PACKETS_NS;
        let (flow, from, to) = self.route[buffer];
        let alone = self.psn.len() == 1;
        let psn = &mut self.psn[flow as usize];
        let mut handle = buffer as u32;
        let bytes = self.frames.bytes_mut(&mut handle);
        bytes[15] = 0x6a;
        // BTH behind 42 bytes: steps of PACKETS_PER_STEP packets. The payload of zeros passes for RETH and immediate.
        bytes[42] = match *psn % PACKETS_PER_STEP {
            0 => Opcode::WRITE_FIRST,
            n if n + 1 == PACKETS_PER_STEP => Opcode::WRITE_LAST_IMM,
            _ => Opcode::WRITE_MIDDLE,
        }
        .0;
        bytes[51..54].copy_from_slice(&psn.to_be_bytes()[1..]);
        // Flow 0 does not get on: it lags, all others lead and pass through every test.
        if flow != 0 || alone {
            *psn = (*psn + 1) & 0xff_ffff;
        }
        self.switch.receive(from, self.now, buffer as u32, &mut self.frames, &mut NoTrace);
        to
    }

    /// One packet in, one packet out.
    #[inline]
    pub fn step(&mut self) {
        let port = self.receive();
        let departure = self.switch.dequeue(port, self.now, &mut self.frames, &mut NoTrace);
        assert!(departure.is_some());
    }
}
