//! What a replay reports: `symphony replay --json`.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::classify::RocePacket;
use super::flows::Flows;
use crate::dataplane::{Counters, Marks, Nanos};
use crate::functions::symphony::{FlowView, PATIENCE_SHIFT, Parameters, Symphony, tick};
use crate::wire::{self, Ecn};

/// The report; field names are the JSON's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Schema version, 1.
    pub version: u32,
    /// Frames in the file.
    pub packets: u64,
    /// Unfragmented UDP to port 4791 with a whole BTH, any opcode, right or wrong ICRC.
    pub rocev2: u64,
    /// Frames whose headers end early or contradict themselves; they are not among `rocev2`.
    pub malformed: u64,
    /// Of `rocev2`, by opcode in two hexadecimal digits.
    pub by_opcode: BTreeMap<String, u64>,
    /// Of `rocev2`, those that the capture has not cut.
    pub icrc: IcrcCounts,
    /// Of `rocev2`, as captured.
    pub ecn: EcnCounts,
    /// Flows of request data.
    pub flows: Vec<FlowReport>,
    /// Jobs of the configuration.
    pub jobs: Vec<JobReport>,
    /// Marks that the switch set.
    pub marks: Marks,
    /// Drops by reason, those that happened.
    pub drops: BTreeMap<&'static str, u64>,
}

/// ICRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IcrcCounts {
    /// Right.
    pub ok: u64,
    /// Wrong.
    pub bad: u64,
}

/// ECN fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EcnCounts {
    /// 00.
    pub not_ect: u64,
    /// 10.
    pub ect0: u64,
    /// 01.
    pub ect1: u64,
    /// 11.
    pub ce: u64,
}

/// One flow: source, destination, destination queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    /// Source address, RFC 5952 or dotted.
    pub src: String,
    /// Destination address.
    pub dst: String,
    /// Destination queue pair.
    pub qpn: u32,
    /// Data packets, retransmissions included.
    pub packets: u64,
    /// Packets whose PSN is not newer than the newest seen.
    pub retransmitted: u64,
    /// With-immediate message ends, each once.
    pub messages: u64,
    /// Completed steps since the job's counters last restarted; `messages` where the flow is of no job.
    pub step: u32,
}

/// One job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct JobReport {
    /// The user's number.
    pub job: u32,
    /// Fewest completed steps of its flows.
    pub min_step: u32,
    /// Most completed steps of its flows.
    pub max_step: u32,
}

/// The counts under way.
pub struct Counts {
    packets: u64,
    malformed: u64,
    opcodes: [u64; 256],
    icrc: IcrcCounts,
    ecn: EcnCounts,
    flows: Flows,
}

impl Counts {
    /// Zero.
    pub fn new(parameters: &Parameters) -> Self {
        Counts {
            packets: 0,
            malformed: 0,
            opcodes: [0; 256],
            icrc: IcrcCounts::default(),
            ecn: EcnCounts::default(),
            flows: Flows::new(tick(parameters.epoch_ns << PATIENCE_SHIFT).max(1)),
        }
    }

    /// Counts a frame of the capture. What is cut is filled up with zeros, so it is not held against the frame.
    pub fn frame(&mut self, classified: &Result<Option<RocePacket>, wire::Error>, is_cut: bool, now: Nanos) {
        self.packets += 1;
        let packet = match classified {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(_) => {
                self.malformed += u64::from(!is_cut);
                return;
            }
        };
        self.opcodes[usize::from(packet.roce.opcode.0)] += 1;
        match (is_cut, packet.icrc) {
            (true, _) => {}
            (false, true) => self.icrc.ok += 1,
            (false, false) => self.icrc.bad += 1,
        }
        match packet.ecn {
            Ecn::NotEct => self.ecn.not_ect += 1,
            Ecn::Ect0 => self.ecn.ect0 += 1,
            Ecn::Ect1 => self.ecn.ect1 += 1,
            Ecn::Ce => self.ecn.ce += 1,
        }
        self.flows.packet(packet, tick(now));
    }

    /// Puts them together with what Symphony and the switch counted. Symphony knows better about the messages of its
    /// jobs: it sees queue pairs that start anew. Packets count also where the switch's parser does not read them.
    pub fn report(&self, symphony: &Symphony, counters: &Counters) -> Report {
        let tracked: HashMap<_, FlowView> =
            symphony.flows().into_iter().map(|flow| ((flow.src.clone(), flow.dst.clone(), flow.qpn), flow)).collect();
        let flows = self.flows.iter().map(|((src, dst, qpn), flow)| {
            let (src, dst) = (src.to_string(), dst.to_string());
            let untracked = (flow.count.messages.into(), flow.count.messages);
            let view = tracked.get(&(src.clone(), dst.clone(), *qpn));
            let (messages, step) = view.map_or(untracked, |view| (view.messages, view.step));
            let (packets, retransmitted) = (flow.count.packets.into(), flow.newest.retransmitted.into());
            FlowReport { src, dst, qpn: *qpn, packets, retransmitted, messages, step }
        });
        let by_opcode = self.opcodes.iter().enumerate().filter(|(_, packets)| **packets > 0);
        let jobs = symphony.jobs().into_iter();
        Report {
            version: 1,
            packets: self.packets,
            rocev2: self.opcodes.iter().sum(),
            malformed: self.malformed,
            by_opcode: by_opcode.map(|(opcode, packets)| (format!("{opcode:02x}"), *packets)).collect(),
            icrc: self.icrc,
            ecn: self.ecn,
            flows: flows.collect(),
            jobs: jobs.map(|job| JobReport { job: job.job, min_step: job.min_step, max_step: job.max_step }).collect(),
            marks: counters.marks(),
            drops: counters
                .drops
                .iter()
                .filter(|(_, packets)| *packets > 0)
                .map(|(reason, packets)| (reason.label(), packets))
                .collect(),
        }
    }
}
