//! Hosts: a NIC each, whose queue pairs take turns.

use std::collections::VecDeque;

use super::super::model::{HostModel, Sent};
use super::super::results::{JobResults, Results};
use super::super::setup::{Job, Setup, Topology};
use super::queue_pair::{Kind, Packet, QueuePair};
use super::ring::{Rank, Ring};
use super::{Parameters, Window, address, line_ns, ring};
use crate::dataplane::{HeadersOnly, L3, Nanos, Phv, Roce};
use crate::wire::{Ecn, Opcode, PROTOCOL_UDP, ethernet};

/// Payload of a full packet.
const PAYLOAD_BYTES: u32 = 1000;
/// Point-to-point, IP, UDP and sequence headers.
const HEADER_BYTES: u32 = 2 + 20 + 8 + 6;
const ACKNOWLEDGEMENT_BYTES: u32 = 48;
/// Source port of a rank's first message; the others follow.
const FIRST_PORT: u16 = 10_000;
const DESTINATION_PORT: u16 = 100;

const BEGIN: usize = 2;

/// All hosts. A rank's number is its node's and its NIC's.
pub(super) struct Hosts<'a> {
    parameters: Parameters,
    job: &'a Job,
    ring: Ring,
    begin: Nanos,
    nics: Vec<Nic>,
    ranks: Vec<Rank>,
    queue_pairs: Vec<QueuePair>,
    unfinished: u32,
    flags: u64,
    resent: u64,
    delivered_bytes: u64,
}

/// A NIC and its line.
#[derive(Default)]
struct Nic {
    acknowledgements: VecDeque<Packet>,
    /// Queue pairs that take turns, and whose turn was the last.
    group: Vec<u32>,
    last: usize,
    line_bps: u64,
    /// Bandwidth-delay product of the path to the next rank.
    window_bytes: u64,
    /// Packets of data sent: Symphony's PSN.
    packets: u32,
    free_at: Nanos,
    /// A packet is on the line, and its end is an event of its own.
    sending: bool,
    /// An event has come.
    woken: bool,
    /// A message is about to be sent.
    beginning: bool,
    paused: bool,
    /// Something happened that makes the NIC look for a packet.
    look: bool,
    /// When it looks by itself.
    look_at: Option<Nanos>,
    /// For which times there is an event already, of each of the three that there may be: the end of a packet, a look, and
    /// ([`BEGIN`]) the next message.
    awaited: [Option<Nanos>; 3],
}

impl<'a> Hosts<'a> {
    pub(super) fn new(setup: &'a Setup, job: &'a Job, parameters: Parameters, begin: Nanos) -> Self {
        let ring = ring(job);
        let nic = |(rank, &line_bps): (usize, &u64)| {
            let host = |rank: usize| job.hosts[rank % job.hosts.len()];
            let hops = hops(setup.fabric.topology, host(rank), host(rank + 1));
            let round_trip_ns =
                u64::from(hops) * (2 * setup.fabric.delay_ns + line_ns(PAYLOAD_BYTES, setup.fabric.fabric_bps));
            Nic {
                line_bps,
                window_bytes: (u128::from(round_trip_ns) * u128::from(line_bps) / 8_000_000_000) as u64,
                ..Nic::default()
            }
        };
        Hosts {
            parameters,
            job,
            ring,
            begin,
            nics: job.nic_bps.iter().enumerate().map(nic).collect(),
            ranks: job.start_at.iter().map(|start| Rank::new(begin + start)).collect(),
            queue_pairs: Vec::new(),
            unfinished: ring.ranks,
            flags: 0,
            resent: 0,
            delivered_bytes: 0,
        }
    }

    /// Sends the rank's next message, if it is time. A queue pair takes an event more to begin: it comes behind all that
    /// happens at the same time already.
    fn begin_step(&mut self, rank: u32, now: Nanos) {
        let own = &mut self.ranks[rank as usize];
        let nic = &mut self.nics[rank as usize];
        if !nic.woken || own.next_send.is_none_or(|at| at > now) {
            return;
        }
        nic.beginning = !nic.beginning;
        if nic.beginning {
            nic.awaited[BEGIN] = None;
            return;
        }
        let number = own.send(now, self.ring);
        self.count_finish(rank);
        let nic = &mut self.nics[rank as usize];
        nic.group.push(self.queue_pairs.len() as u32);
        nic.look = true;
        self.queue_pairs.push(QueuePair::new(rank, number, self.ring.message_bytes, now, nic.line_bps));
    }

    fn count_finish(&mut self, rank: u32) {
        // A rank takes its last message once, and nothing is taken behind it.
        self.unfinished -= u32::from(self.ranks[rank as usize].finish.is_some());
    }

    /// An acknowledgement has come to its sender. Returns the rank that has received a message by this.
    fn acknowledged(&mut self, now: Nanos, packet: Packet) -> Option<u32> {
        let Kind::Acknowledge { next, missing, flag } = packet.kind else { return None };
        let own = &mut self.queue_pairs[packet.queue_pair as usize];
        self.nics[own.from as usize].look = true;
        self.resent += u64::from(missing);
        let completes = own.on_acknowledge(next, missing);
        if flag && !own.is_done() {
            self.flags += 1;
            if let Some(dcqcn) = &self.job.congestion_control {
                own.rate.flag(now, dcqcn);
            }
        }
        if !completes {
            return None;
        }
        let to = self.ring.next(own.from);
        self.ranks[to as usize].receive(now, self.ring);
        self.count_finish(to);
        Some(to)
    }

    /// The queue pair that is served next. Those that are done leave the group here.
    fn choose(&mut self, rank: u32, now: Nanos) -> Option<u32> {
        let nic = &mut self.nics[rank as usize];
        let count = nic.group.len();
        let (mut choice, mut done) = (None, false);
        for turn in 1..=count {
            let index = (nic.last + turn) % count;
            let own = &mut self.queue_pairs[nic.group[index] as usize];
            let window_bytes = match (self.parameters.window, &self.job.congestion_control) {
                (Window::Unbounded, _) => u64::MAX,
                (Window::ByRate, None) => nic.window_bytes,
                (Window::ByRate, Some(dcqcn)) => scaled(nic.window_bytes, own.rate.at(now, dcqcn), nic.line_bps),
            };
            if nic.paused || own.left_bytes() == 0 || own.in_flight_bytes() >= window_bytes {
                done |= own.is_done();
            } else if own.available <= now {
                choice = Some((index, nic.group[index]));
                break;
            }
        }
        if done {
            let before = choice.map_or(0, |(index, _)| {
                nic.group[..index].iter().filter(|&&other| self.queue_pairs[other as usize].is_done()).count()
            });
            choice = choice.map(|(index, own)| (index - before, own));
            nic.group.retain(|&other| !self.queue_pairs[other as usize].is_done());
        }
        let (index, own) = choice?;
        nic.last = index;
        Some(own)
    }

    /// Nothing can be sent: when the NIC looks again by itself.
    fn sleep(&mut self, rank: u32, now: Nanos) {
        let nic = &mut self.nics[rank as usize];
        if nic.look_at.is_some() {
            return;
        }
        let queue_pairs = nic.group.iter().map(|&own| &self.queue_pairs[own as usize]);
        let sending = queue_pairs.filter(|own| !self.parameters.skip_drained || own.left_bytes() > 0);
        nic.look_at = sending.map(|own| own.available).min().filter(|&at| at > now);
    }

    fn data(&mut self, index: u32, now: Nanos) -> (Phv, Packet) {
        let own = &mut self.queue_pairs[index as usize];
        let (first, bytes) = own.take(PAYLOAD_BYTES);
        let frame_bytes = bytes + HEADER_BYTES;
        let nic = &mut self.nics[own.from as usize];
        let rate_bps = self.job.congestion_control.as_ref().map_or(nic.line_bps, |dcqcn| own.rate.at(now, dcqcn));
        own.available = now + line_ns(frame_bytes, rate_bps);
        let opcode = match (first == 0, own.left_bytes() == 0) {
            (true, true) => Opcode::WRITE_ONLY_IMM,
            (true, false) => Opcode::WRITE_FIRST,
            (false, true) => Opcode::WRITE_LAST_IMM,
            (false, false) => Opcode::WRITE_MIDDLE,
        };
        let (from, to) = (own.from, self.ring.next(own.from));
        // To Symphony, all queue pairs from a rank to the next are one flow.
        let roce = Roce { opcode, dest_qpn: to, psn: nic.packets & 0xff_ffff, ..Roce::default() };
        nic.packets = nic.packets.wrapping_add(1);
        let phv = Phv {
            ecn: Ecn::Ect0,
            sport: source_port(own),
            dport: DESTINATION_PORT,
            roce: Some(roce),
            ..headers(from, to, frame_bytes)
        };
        (phv, Packet { queue_pair: index, kind: Kind::Data { first, bytes } })
    }

    fn acknowledgement(&self, packet: Packet) -> (Phv, Packet) {
        let own = &self.queue_pairs[packet.queue_pair as usize];
        // No RoCE to the switch: it is not to be put before data.
        let phv = Phv {
            sport: DESTINATION_PORT,
            dport: source_port(own),
            ..headers(self.ring.next(own.from), own.from, ACKNOWLEDGEMENT_BYTES)
        };
        (phv, packet)
    }
}

/// Links on the way between two hosts.
fn hops(topology: Topology, a: u32, b: u32) -> u32 {
    let same_pod = match topology {
        Topology::FatTree { k } => topology.leaf(a) / (k / 2) == topology.leaf(b) / (k / 2),
        _ => true,
    };
    if topology.leaf(a) == topology.leaf(b) {
        2
    } else if same_pod {
        4
    } else {
        6
    }
}

fn source_port(own: &QueuePair) -> u16 {
    FIRST_PORT.wrapping_add(own.number as u16)
}

/// A window at a rate: at least a byte, so that something moves.
fn scaled(window_bytes: u64, bps: u64, line_bps: u64) -> u64 {
    if bps == line_bps {
        return window_bytes;
    }
    ((u128::from(window_bytes) * u128::from(bps) / u128::from(line_bps)) as u64).max(1)
}

/// Packets of a step.
pub(super) fn packets_per_message(job: &Job) -> u32 {
    job.chunk_bytes.div_ceil(PAYLOAD_BYTES)
}

fn headers(from: u32, to: u32, frame_bytes: u32) -> Phv {
    Phv {
        frame_bytes,
        ethertype: ethernet::IPV4,
        l3: L3::Ipv4,
        src: address(from),
        dst: address(to),
        protocol: PROTOCOL_UDP,
        ..Phv::default()
    }
}

impl HostModel<HeadersOnly<Packet>> for Hosts<'_> {
    fn lines(&self) -> u32 {
        self.nics.len() as u32
    }

    fn host(&self, line: u32) -> u32 {
        self.job.hosts[line as usize]
    }

    #[inline]
    fn receive(&mut self, now: Nanos, phv: &Phv, packet: Packet, _: &mut HeadersOnly<Packet>, lines: &mut Vec<u32>) {
        let Some(own) = self.queue_pairs.get_mut(packet.queue_pair as usize) else { return };
        match packet.kind {
            Kind::Data { first, bytes } => {
                let to = self.ring.next(own.from);
                let Some(kind) = own.on_data(now, first, bytes, phv.ecn == Ecn::Ce) else { return };
                if matches!(kind, Kind::Acknowledge { missing: false, .. }) {
                    self.delivered_bytes += u64::from(bytes);
                }
                let nic = &mut self.nics[to as usize];
                nic.acknowledgements.push_back(Packet { kind, ..packet });
                nic.look = true;
                lines.push(to);
            }
            Kind::Acknowledge { .. } => {
                let from = own.from;
                let received = self.acknowledged(now, packet);
                lines.push(from);
                lines.extend(received);
            }
            Kind::Nothing => {}
        }
    }

    #[inline]
    fn send(&mut self, line: u32, now: Nanos, _: &mut HeadersOnly<Packet>) -> Option<Sent<Packet>> {
        self.begin_step(line, now);
        let nic = &mut self.nics[line as usize];
        let woken = std::mem::take(&mut nic.woken);
        if woken && nic.look_at.is_some_and(|at| at <= now) {
            nic.look_at = None;
            nic.look = true;
        }
        if woken && nic.sending && nic.free_at <= now {
            nic.sending = false;
            nic.look = true;
        }
        if nic.sending || !std::mem::take(&mut nic.look) {
            return None;
        }
        let acknowledgement = if nic.paused { None } else { nic.acknowledgements.pop_front() };
        let (phv, frame) = match acknowledgement {
            Some(packet) => self.acknowledgement(packet),
            None => match self.choose(line, now) {
                Some(queue_pair) => self.data(queue_pair, now),
                None => {
                    self.sleep(line, now);
                    return None;
                }
            },
        };
        let nic = &mut self.nics[line as usize];
        nic.sending = true;
        nic.free_at = now + line_ns(phv.frame_bytes, nic.line_bps);
        Some(Sent { phv, frame, ends_at: nic.free_at })
    }

    fn wake(&mut self, line: u32) -> Option<Nanos> {
        let next_send = self.ranks[line as usize].next_send;
        let nic = &mut self.nics[line as usize];
        let wanted = [nic.sending.then_some(nic.free_at), nic.look_at, next_send];
        let (awaited, at) = nic.awaited.iter_mut().zip(wanted).find(|(awaited, wanted)| **awaited != *wanted)?;
        *awaited = at;
        at.or_else(|| HostModel::<HeadersOnly<Packet>>::wake(self, line))
    }

    fn woken(&mut self, line: u32) {
        self.nics[line as usize].woken = true;
    }

    fn pause(&mut self, host: u32, paused: bool, lines: &mut Vec<u32>) {
        let Some(rank) = self.job.hosts.iter().position(|&place| place == host) else { return };
        let nic = &mut self.nics[rank];
        nic.paused = paused;
        nic.look |= !paused;
        lines.push(rank as u32);
    }

    fn transfer(&mut self, _: Nanos, _: u32, _: &mut Vec<u32>) {}

    fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    fn report(&self, results: &mut Results) {
        let finish: Option<Vec<Nanos>> = self.ranks.iter().map(|rank| rank.finish).collect();
        results.jobs.push(JobResults {
            class: self.job.class.clone(),
            start_ns: self.job.start_at.iter().copied().min().unwrap_or(0),
            finish_ns: finish.and_then(|of_ranks| of_ranks.into_iter().max()).map(|at| at - self.begin),
            steps: self.ranks.iter().map(|rank| rank.steps.iter().map(|at| at - self.begin).collect()).collect(),
        });
        results.cnps += self.flags;
        results.retransmissions += self.resent;
        results.delivered_bytes += self.delivered_bytes;
    }
}
