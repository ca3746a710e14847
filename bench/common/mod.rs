//! What the benches and the allocation test drive: a switch of four ports with standing queues and RoCEv2 flows through it.

#![allow(dead_code)] // each user takes its part

use std::net::{IpAddr, Ipv4Addr};

use symphony::dataplane::{
    Bridged, Frames, Function, Nanos, NoTrace, PortConfig, PortId, Red, Roce, Step, Switch, SwitchConfig, parse_l2_l3,
};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::symphony::{Job, Parameters, StepSource, Symphony};
use symphony::wire::Opcode;
use symphony::wire::roce::Repr;

pub const PORTS: u16 = 4;
pub const PATH_MTU: usize = 1024;
/// Packets that a driver hands over together.
pub const BATCH: usize = 64;

/// Packets that wait at each port: 64 KB, so that RED draws for every packet and Symphony's queue test holds.
const STANDING: usize = 64;
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
        pfc: None,
        fault: None,
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
        step_ns: None,
        idle_ns: IDLE_NS,
        enabled: true,
    };
    symphony.add_job(&job, 0).expect("it is the only one");
    symphony
}

/// Room for the headers of one frame.
const HEADERS: usize = 128;
/// Frames in memory: more than wait at all ports together, a power of two.
const BUFFERS: u32 = 1024;

/// Frames in fixed memory; the handle is a number. Only headers have room of their own, and what follows them passes for
/// payload, which nobody in the pipeline reads.
pub struct Buffers {
    memory: Vec<u8>,
    frame_bytes: usize,
}

impl Buffers {
    fn new(frame_bytes: usize) -> Self {
        Buffers { memory: vec![0; BUFFERS as usize * HEADERS + frame_bytes], frame_bytes }
    }

    fn headers(&mut self, number: u32) -> &mut [u8] {
        &mut self.memory[number as usize * HEADERS..][..HEADERS]
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

/// A flow as its sender sees it.
struct Flow {
    headers: [u8; HEADERS],
    psn: u32,
    from: PortId,
    to: PortId,
}

/// A frame that has come in.
#[derive(Clone, Copy)]
struct Arrival {
    frame: u32,
    from: PortId,
    to: PortId,
    /// What the kernel side says of it, where there is one.
    tracked: Option<(Bridged, Roce)>,
}

/// A switch in its steady state.
pub struct Rig<F> {
    pub switch: Switch<F, u32>,
    frames: Buffers,
    flows: Vec<Flow>,
    /// What has come in and was not processed yet.
    batch: Vec<Arrival>,
    /// Whether packets come with what tracking in the kernel found, as they do live.
    kernel_tracks: bool,
    next: u32,
    now: Nanos,
}

impl<F: Function> Rig<F> {
    /// `flows` is a power of two.
    pub fn new(functions: F, flows: u32, kernel_tracks: bool) -> Self {
        let flow = |flow: u32| {
            let mut headers = [0; HEADERS];
            headers.copy_from_slice(&packet(flow)[..HEADERS]);
            let port = |rank: u32| (rank % u32::from(PORTS)) as PortId;
            Flow { headers, psn: 0, from: port(flow), to: port(flow + 1) }
        };
        let mut rig = Rig {
            switch: Switch::new(&config(), functions),
            frames: Buffers::new(packet(0).len()),
            flows: (0..flows).map(flow).collect(),
            batch: Vec::with_capacity(BATCH),
            kernel_tracks,
            next: 0,
            now: IDLE_NS * 10,
        };
        rig.learn();
        let used: std::collections::BTreeSet<_> = rig.flows.iter().map(|flow| flow.to).collect();
        for _ in 0..STANDING * used.len() {
            rig.arrive(1);
            rig.receive(|_, _| ());
        }
        rig
    }

    /// Makes every rank known to a learning bridge.
    fn learn(&mut self) {
        for rank in 0..RANKS {
            let hello = self.frames.headers(0);
            hello.copy_from_slice(&packet(rank)[..HEADERS]);
            hello[..6].fill(0xff);
            hello[23] = 1; // not UDP
            self.switch.receive((rank % u32::from(PORTS)) as PortId, self.now, 0, &mut self.frames, &mut NoTrace);
        }
        for port in 0..PORTS {
            while self.switch.dequeue(port, self.now, &mut self.frames, &mut NoTrace).is_some() {}
        }
    }

    /// What a driver does: the next `packets` packets are in frames, their headers just written. At most [`BATCH`].
    pub fn arrive(&mut self, packets: usize) {
        for _ in 0..packets {
            let number = self.next % BUFFERS;
            // An odd multiplier visits every flow once a round, in an order that no predictor guesses.
            let flow = self.next.wrapping_mul(0x9e37_79b1) as usize & (self.flows.len() - 1);
            self.next = self.next.wrapping_add(1);
            let alone = self.flows.len() == 1;
            let sender = &mut self.flows[flow];
            let headers = self.frames.headers(number);
            headers.copy_from_slice(&sender.headers);
            // BTH behind 42 bytes: steps of PACKETS_PER_STEP packets. The payload of zeros passes for RETH and immediate.
            let opcode = match sender.psn % PACKETS_PER_STEP {
                0 => Opcode::WRITE_FIRST,
                n if n + 1 == PACKETS_PER_STEP => Opcode::WRITE_LAST_IMM,
                _ => Opcode::WRITE_MIDDLE,
            };
            headers[42] = opcode.0;
            headers[51..54].copy_from_slice(&sender.psn.to_be_bytes()[1..]);
            let tracked = self.kernel_tracks.then(|| {
                let progress = sender.psn * 256 / PACKETS_PER_STEP;
                let (flow, lead) = (flow as u32, progress as i32);
                let bridged = Bridged {
                    tracked: true,
                    step: Step::Data,
                    armed: true,
                    flow,
                    progress,
                    lead,
                    ..Default::default()
                };
                (bridged, Roce { opcode, psn: sender.psn, ..Roce::default() })
            });
            // Flow 0 does not get on: it lags, all others lead and pass through every test.
            if flow != 0 || alone {
                sender.psn = (sender.psn + 1) & 0xff_ffff;
            }
            self.batch.push(Arrival { frame: number, from: sender.from, to: sender.to, tracked });
        }
    }

    /// Takes in what arrived; `then` follows each packet, with the switch and the port that the packet goes to.
    #[inline]
    fn receive(&mut self, mut then: impl FnMut(&mut Self, PortId)) {
        for i in 0..self.batch.len() {
            let Arrival { frame, from, to, tracked } = self.batch[i];
            self.now += BETWEEN_PACKETS_NS;
            match tracked {
                None => self.switch.receive(from, self.now, frame, &mut self.frames, &mut NoTrace),
                Some((bridged, roce)) => {
                    let mut phv = parse_l2_l3(self.frames.bytes(&frame), from, self.now).expect("a sound frame");
                    phv.bridged = bridged;
                    phv.roce = Some(roce);
                    self.switch.ingress(self.now, phv, frame, &mut self.frames, &mut NoTrace);
                }
            }
            then(self, to);
        }
        self.batch.clear();
    }

    /// The pipeline's work for what arrived: each packet in, and one out of the port that it goes to.
    #[inline]
    pub fn process(&mut self) {
        self.receive(|rig, to| {
            let departure = rig.switch.dequeue(to, rig.now, &mut rig.frames, &mut NoTrace);
            assert!(departure.is_some());
        });
    }
}
