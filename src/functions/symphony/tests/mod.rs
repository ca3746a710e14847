//! Tests of the function as a whole: packets in, what tracking says of them and which are marked out.

mod control;
mod marks;
mod properties;
mod rings;
mod scenarios;

use std::net::{IpAddr, Ipv4Addr};

use rand_chacha::ChaCha8Rng;

use super::*;
use crate::dataplane::{Emission, L3, Nanos, NoBytes, NoTrace, Roce};
use crate::wire::{Ecn, Opcode};

const MS: Nanos = 1_000_000;

/// `10.0.job.rank`.
fn address(job: u8, rank: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, job, rank))
}

/// A ring of `ranks`: a step is one message, its size is not known, idle is 1 ms.
fn ring(id: u8, ranks: u8) -> Job {
    Job {
        id: id.into(),
        name: format!("job{id}"),
        ring: (0..ranks).map(|rank| address(id, rank)).collect(),
        step_source: StepSource::Message,
        requests_per_step: 1,
        packets_per_step: None,
        path_mtu: 1024,
        steps_per_collective: 2 * (u32::from(ranks) - 1),
        step_ns: None,
        idle_ns: MS,
        enabled: true,
    }
}

/// A switch's worth of Symphony, and a clock that goes on by 1 us a packet.
struct Bench {
    symphony: Symphony,
    now: Nanos,
    pass: u64,
    emissions: Vec<Emission>,
}

impl Bench {
    /// Jobs have been there, idle, for a second: their first packet arms them.
    fn new(parameters: Parameters, jobs: &[Job]) -> Self {
        let mut symphony = Symphony::new(parameters, 64, 8);
        for job in jobs {
            symphony.add_job(job, 0).expect("a sound job");
        }
        Bench { symphony, now: 1000 * MS, pass: 0, emissions: Vec::new() }
    }

    fn of(job: Job) -> Self {
        Bench::new(Parameters::reference(), &[job])
    }

    /// Runs a packet through ingress.
    fn ingress(&mut self, phv: &mut Phv) {
        self.now += 1000;
        self.pass += 1;
        let mut cx = Cx {
            now: self.now,
            pass: self.pass,
            trace: &mut NoTrace,
            emissions: &mut self.emissions,
            frame: &mut NoBytes,
        };
        assert_eq!(self.symphony.ingress(&mut cx, phv), Verdict::Continue);
    }

    /// Runs a packet through ingress and says what tracking found.
    fn send(&mut self, mut phv: Phv) -> Bridged {
        self.ingress(&mut phv);
        phv.bridged
    }

    /// Runs a packet through egress and says whether it gets an extra mark.
    fn egress(&mut self, phv: &mut Phv, depth_bytes: u64, kmin_bytes: u64, red: bool, rng: &mut ChaCha8Rng) -> bool {
        self.pass += 1;
        let mut cx = Cx {
            now: self.now,
            pass: self.pass,
            trace: &mut NoTrace,
            emissions: &mut self.emissions,
            frame: &mut NoBytes,
        };
        let mut egress = Egress { port: 0, depth_bytes, kmin_bytes, red, rng };
        assert_eq!(self.symphony.egress(&mut cx, &mut egress, phv), None);
        phv.extra_mark
    }

    /// Long enough for every job to be idle.
    fn rest(&mut self) {
        self.now += 10 * MS;
    }

    fn flow(&self, sender: &Sender) -> FlowView {
        let src = address(sender.job, sender.src).to_string();
        let dst = address(sender.job, sender.dst).to_string();
        let mut flows = self.symphony.flows().into_iter();
        flows.find(|f| (&f.src, &f.dst, f.qpn) == (&src, &dst, sender.qpn)).expect("the flow is known")
    }

    fn step(&self, sender: &Sender) -> u32 {
        self.flow(sender).step
    }
}

/// The requester's side of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Sender {
    job: u8,
    src: u8,
    dst: u8,
    qpn: u32,
    psn: u32,
    sport: u16,
}

impl Sender {
    /// On the edge from `src` to `dst` of job 1.
    fn new(src: u8, dst: u8) -> Self {
        Sender { job: 1, src, dst, qpn: 0x100 + u32::from(src), psn: 0, sport: 0xc000 }
    }

    /// The packet with this PSN; the sender does not move on.
    fn at(&self, psn: u32, opcode: Opcode) -> Phv {
        Phv {
            l3: L3::Ipv4,
            src: mapped(address(self.job, self.src)),
            dst: mapped(address(self.job, self.dst)),
            ecn: Ecn::Ect0,
            sport: self.sport,
            dport: 4791,
            frame_bytes: 1082,
            roce: Some(Roce { opcode, dest_qpn: self.qpn, psn, dma_len: 0, immediate: 0 }),
            ..Phv::default()
        }
    }

    /// The next packet.
    fn next(&mut self, opcode: Opcode) -> Phv {
        let phv = self.at(self.psn, opcode);
        self.psn = (self.psn + 1) & 0xff_ffff;
        phv
    }

    /// The packets of a WRITE with immediate.
    fn message(&mut self, packets: u32, immediate: u32) -> Vec<Phv> {
        (0..packets)
            .map(|i| {
                let mut phv = self.next(write_opcode(i, packets));
                if let Some(roce) = &mut phv.roce
                    && roce.opcode.is_end_with_immediate()
                {
                    roce.immediate = immediate;
                }
                phv
            })
            .collect()
    }

    /// Sends a whole message; what tracking said of its packets.
    fn send(&mut self, bench: &mut Bench, packets: u32) -> Vec<Bridged> {
        self.message(packets, 0).into_iter().map(|phv| bench.send(phv)).collect()
    }
}

/// Opcode of packet `i` of a WRITE with immediate of `packets` packets.
fn write_opcode(i: u32, packets: u32) -> Opcode {
    match (i == 0, i + 1 == packets) {
        (true, true) => Opcode::WRITE_ONLY_IMM,
        (true, false) => Opcode::WRITE_FIRST,
        (false, false) => Opcode::WRITE_MIDDLE,
        (false, true) => Opcode::WRITE_LAST_IMM,
    }
}

fn progress_of(bridged: &[Bridged]) -> Vec<u32> {
    bridged.iter().map(|b| b.progress).collect()
}
