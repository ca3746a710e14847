//! The function behind the real switch: frames in, frames out.

mod answers;
mod beside;
mod guards;
mod random;
mod strategies;
mod swaps;

use std::net::{Ipv4Addr, SocketAddrV4};

use super::controller::{Command, Controller};
use super::*;
use crate::dataplane::{HeapFrames, NoTrace, PortConfig, Switch, SwitchConfig};
use crate::functions::forward::{Forward, ForwardConfig};
use crate::wire::aggregation::{Align, Code, Control, Flags, Packet, Repr};
use crate::wire::{ethernet, ipv4, udp};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const SERVICE_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0xfe];
const JOB: u8 = 1;
const LANES: usize = 8;
/// The last port.
const CPU: u16 = 4;
const PAYLOAD_AT: usize = 42;

/// `10.0.0.(worker + 1):7001`.
fn address(worker: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker + 1), 7001)
}

fn mac(worker: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, worker + 1]
}

fn job(workers: u8, segments: u32, start: Strategy) -> Job {
    let members = (0..workers).map(address).collect();
    Job { id: JOB, members, segments, lanes: LANES as u16, scale_log2: 24, start, policies: Vec::new() }
}

/// Lanes that tell who pushed them.
fn lanes(value: i32) -> [i32; LANES] {
    std::array::from_fn(|lane| value * 1000 + lane as i32)
}

fn sum(values: &[i32]) -> Vec<i32> {
    (0..LANES as i32).map(|lane| values.iter().map(|value| value * 1000 + lane).sum()).collect()
}

fn frame(src_mac: [u8; 6], source: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; PAYLOAD_AT];
    let datagram_len = udp::HEADER_LEN + payload.len();
    ethernet::Repr { dst: SERVICE_MAC, src: src_mac, tags: [None; 2], ethertype: ethernet::IPV4 }
        .emit(&mut bytes)
        .expect("fits");
    ipv4::Repr::udp(*source.ip(), SERVICE, 0, 64, datagram_len).emit(&mut bytes[14..]).expect("fits");
    udp::Repr { src_port: source.port(), dst_port: AGGREGATION_PORT, payload_len: payload.len() }
        .emit(&mut bytes[34..])
        .expect("fits");
    bytes.extend(payload);
    bytes
}

fn payload(header: &Repr, lanes: &[i32]) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    header.emit(&mut bytes).expect("fits");
    bytes.extend(lanes.iter().flat_map(|lane| lane.to_be_bytes()));
    bytes
}

/// A packet that came out of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Out {
    port: u16,
    header: Repr,
    lanes: Vec<i32>,
    control: Option<Control>,
}

impl Out {
    fn flags(&self) -> Flags {
        self.header.flags
    }

    fn has(&self, flag: Flags) -> bool {
        self.header.flags.contains(flag)
    }

    fn included(&self) -> u32 {
        self.header.incarnation_or_included
    }
}

/// A switch with a worker behind each port, and the CPU port.
struct Net {
    switch: Switch<(Serene, Forward), Vec<u8>>,
    now: Nanos,
    /// By worker: what it believes of frontiers.
    base: [u32; 4],
}

impl Net {
    fn new(job: &Job) -> Self {
        let config = SereneConfig { address: SERVICE, mac: SERVICE_MAC, cpu_port: Some(CPU), incarnation: 77 };
        let mut serene = Serene::new(config);
        serene.add_job(job).expect("a sound job");
        let port =
            PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault: None };
        let config = SwitchConfig { buffer_bytes: 1 << 22, seed: 1, ports: vec![port; usize::from(CPU) + 1] };
        let forward = Forward::new(&ForwardConfig::Learning, usize::from(CPU), 1);
        Net { switch: Switch::new(&config, (serene, forward)), now: 1_000_000_000, base: [0; 4] }
    }

    /// With all workers joined and the multicast group set.
    fn joined(job: &Job) -> Self {
        let mut net = Net::new(job);
        for worker in 0..job.members.len() as u8 {
            net.join(worker, 100 + u32::from(worker));
        }
        net.regroup();
        while net.serene().pop_digest().is_some() {}
        net
    }

    fn serene(&mut self) -> &mut Serene {
        &mut self.switch.functions_mut().0
    }

    fn view(&self) -> JobView {
        self.switch.functions().0.job(JOB).expect("it is there")
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.switch.counters().drops.get(reason)
    }

    fn regroup(&mut self) {
        let replicas = self.serene().replicas(JOB);
        self.switch.set_group(JOB.into(), &replicas);
    }

    fn digests(&mut self) -> Vec<(u32, u8, DigestKind)> {
        let all = std::iter::from_fn(|| self.serene().pop_digest());
        all.filter(|d| d.kind != DigestKind::Alive).map(|d| (d.round, d.worker, d.kind)).collect()
    }

    /// Puts a frame in and takes everything out.
    fn raw(&mut self, port: u16, frame: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
        self.now += 1000;
        self.switch.receive(port, self.now, frame, &mut HeapFrames, &mut NoTrace);
        let mut out = Vec::new();
        for port in 0..=CPU {
            while let Some(departure) = self.switch.dequeue(port, self.now, &mut HeapFrames, &mut NoTrace) {
                out.push((port, departure.frame));
            }
        }
        assert!(self.switch.counters().conservation.holds());
        out
    }

    /// As [`Net::raw`]; what comes out must be whole answers of the service.
    fn send(&mut self, port: u16, frame: Vec<u8>) -> Vec<Out> {
        let sent = self.raw(port, frame);
        sent.into_iter().map(|(port, bytes)| self.read(port, &bytes)).collect()
    }

    fn read(&self, port: u16, bytes: &[u8]) -> Out {
        let ethernet = ethernet::Frame::new_checked(bytes).expect("whole");
        let ip = ipv4::Packet::new_checked(ethernet.payload()).expect("whole");
        let udp = udp::Packet::new_checked(ip.payload()).expect("whole");
        let packet = Packet::new_checked(udp.payload()).expect("whole");
        assert!(ip.checksum_is_valid());
        assert_eq!((ip.src(), udp.src_port(), udp.checksum(), ip.ttl()), (SERVICE, AGGREGATION_PORT, 0, 64));
        assert_eq!(bytes.len(), PAYLOAD_AT + udp.payload().len());
        if port != CPU {
            let to = address(packet.worker());
            assert_eq!((ip.dst(), udp.dst_port()), (*to.ip(), to.port()), "addressed to the worker it names");
            assert_eq!((ethernet.dst(), ethernet.src()), (mac(packet.worker()), SERVICE_MAC));
        }
        Out { port, header: Repr::parse(&packet), lanes: packet.lanes().collect(), control: packet.control() }
    }

    /// A worker's packet, from where it lives.
    fn by_worker(&mut self, worker: u8, header: Repr, lanes: &[i32]) -> Vec<Out> {
        let bytes = frame(mac(worker), address(worker), &payload(&header, lanes));
        self.send(worker.into(), bytes)
    }

    fn header(&self, kind: Type, worker: u8) -> Repr {
        Repr {
            worker,
            frontier: self.base[usize::from(worker)],
            incarnation_or_included: 100 + u32::from(worker),
            ts_us: 5,
            ..Repr::new(kind, JOB)
        }
    }

    fn join(&mut self, worker: u8, incarnation: u32) -> Vec<Out> {
        let header = Repr { incarnation_or_included: incarnation, ..self.header(Type::Join, worker) };
        self.by_worker(worker, header, &[])
    }

    /// Another process takes the worker's place. Says whether it has.
    fn rejoin(&mut self, worker: u8, incarnation: u32) -> bool {
        let pull = Repr { incarnation_or_included: incarnation, ..self.header(Type::Pull, worker) };
        let answered = |out: Vec<Out>, kind: Type| out.first().is_some_and(|out| out.header.kind == kind);
        answered(self.join(worker, incarnation), Type::JoinAck)
            && answered(self.by_worker(worker, pull, &[]), Type::Result)
    }

    fn push_header(&self, worker: u8, segment: u32, round: u32) -> Repr {
        Repr { segment, round, lane_count: LANES as u16, norm: 2, ..self.header(Type::Push, worker) }
    }

    /// PUSH of `lanes(value)`.
    fn push(&mut self, worker: u8, segment: u32, round: u32, value: i32) -> Vec<Out> {
        let header = self.push_header(worker, segment, round);
        self.by_worker(worker, header, &lanes(value))
    }

    /// PUSH to segment 0, of which one answer to the worker itself is expected.
    fn ask(&mut self, worker: u8, round: u32, value: i32) -> Out {
        let out = self.push(worker, 0, round, value);
        assert_eq!(out.len(), 1, "{out:?}");
        assert_eq!((out[0].port, out[0].header.worker), (worker.into(), worker));
        out.into_iter().next().expect("one")
    }

    /// PUSH to segment 0 that releases: the copies by worker.
    fn release(&mut self, worker: u8, round: u32, value: i32) -> Vec<Out> {
        let out = self.push(worker, 0, round, value);
        for copy in &out {
            assert!(copy.has(Flags::MCAST), "{copy:?}");
            assert_eq!((copy.header.kind, copy.header.round, copy.header.ts_us), (Type::Result, round, 0));
            self.base[usize::from(copy.header.worker)] = copy.header.frontier;
        }
        assert_eq!(out.len(), self.view().members.iter().filter(|member| member.link.is_some()).count());
        out
    }

    /// PUSH to segment 0 that is to have no answer.
    fn park(&mut self, worker: u8, round: u32, value: i32) {
        assert_eq!(self.push(worker, 0, round, value), []);
    }

    /// A controller's frame.
    fn control(&self, kind: Type, swap_id: u32, boundary: u32) -> Vec<u8> {
        let (align, code) = (Align::Jump, Code::Done);
        let control = Control { swap_id, boundary, from_version: 1, to_version: 2, align, code };
        request::control_frame(SERVICE, SERVICE_MAC, &Repr::new(kind, JOB), &control)
    }

    /// A controller's request: how it fared, the highest round pushed so far, and the boundary.
    fn ask_switch(&mut self, kind: Type, swap_id: u32, boundary: u32) -> (Code, u32, u32) {
        let bytes = self.control(kind, swap_id, boundary);
        let out = self.send(CPU, bytes);
        assert_eq!((out.len(), out[0].port, out[0].header.kind), (1, CPU, Type::ArmResponse));
        assert_eq!(out[0].header.norm, kind as u8);
        let control = out[0].control.expect("a body");
        assert_eq!(control.swap_id, swap_id);
        (control.code, out[0].header.round, control.boundary)
    }

    /// CLOSE.
    fn close(&mut self, segment: u32, round: u32, required: u32, at_least: u8) -> Vec<Out> {
        let mut bytes = self.control(Type::Close, 0, 0);
        let header =
            Repr { segment, round, norm: at_least, incarnation_or_included: required, ..Repr::new(Type::Close, JOB) };
        header.emit(&mut bytes[PAYLOAD_AT..]).expect("fits");
        self.send(CPU, bytes)
    }

    /// Arms a swap to a strategy of all members.
    fn arm(&mut self, swap_id: u32, boundary: u32, strategy: Strategy) -> (Code, u32, u32) {
        let view = self.view();
        let bank = 1 - self.bank();
        let rule = strategy.compile(view.rule.members, view.rule.version + 1, view.rule.visibility);
        self.serene().set_rule(JOB, bank, rule);
        self.ask_switch(Type::Arm, swap_id, boundary)
    }

    fn bank(&mut self) -> usize {
        self.serene().jobs[usize::from(JOB)].as_ref().expect("it is there").boundary.peek().bank
    }

    /// Lets the controller do its work until it has none left; `copies` says how often each control packet, and each answer
    /// to one, gets through. Returns what went to workers.
    fn run_controller(&mut self, controller: &mut Controller, mut copies: impl FnMut() -> usize) -> Vec<Out> {
        let (mut to_workers, mut commands) = (Vec::new(), Vec::new());
        loop {
            while let Some(digest) = self.serene().pop_digest() {
                controller.handle_digest(self.now, &digest);
            }
            controller.poll(self.now, &mut commands);
            if commands.is_empty() {
                return to_workers;
            }
            for command in commands.drain(..) {
                match command {
                    Command::Rule { job, bank, rule } => self.serene().set_rule(job, bank, rule),
                    Command::Regroup { .. } => self.regroup(),
                    Command::Inject(frame) => {
                        for _ in 0..copies() {
                            for (port, bytes) in self.raw(CPU, frame.clone()) {
                                if port == CPU {
                                    (0..copies()).for_each(|_| controller.handle_packet(self.now, &bytes));
                                } else {
                                    to_workers.push(self.read(port, &bytes));
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn sum(&self) -> Vec<i32> {
        self.switch.functions().0.segment(JOB, 0).expect("it is there").sum
    }
}
