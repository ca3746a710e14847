//! Any train of aggregation packets and swaps, at any time, at a switch with a job and its controller: nothing panics, every
//! packet is accounted for, and every answer is a well-formed one.
//!
//! A step is 16 bytes: what happens, by which worker and when; the fields of a header; where the frame ends and which of its
//! bytes is damaged.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};

use libfuzzer_sys::fuzz_target;
use symphony::backend::controllers::Controllers;
use symphony::dataplane::{HeapFrames, NoTrace, PortConfig, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::serene::{Job, Late, Quorum, Serene, SereneConfig, Strategy};
use symphony::wire::aggregation::{
    Align, CONTROL_LEN, Code, Control, Flags, HEADER_LEN, LANE_GROUP, Packet, Repr, Type,
};
use symphony::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};

const WORKERS: u8 = 3;
const SEGMENTS: u32 = 2;
const LANES: u16 = LANE_GROUP as u16;
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];
/// The last port: only there control packets are heard.
const CPU_PORT: u16 = WORKERS as u16;
const PAYLOAD_AT: usize = 42;
const STEP: usize = 16;

const STRATEGIES: [Strategy; 6] = [
    Strategy::Bsp,
    Strategy::Partial { k: Quorum::AllBut(1), late: Late::Return },
    Strategy::Partial { k: Quorum::Exactly(1), late: Late::Drop },
    Strategy::Ssp { slack: 2 },
    Strategy::Asp,
    Strategy::Timed { deadline_ns: 30_000_000, kmin: Quorum::AllBut(1), late: Late::Drop },
];

fn job() -> Job {
    let members = (1..=WORKERS).map(|host| SocketAddrV4::new([10, 0, 0, host].into(), 7001)).collect();
    Job { id: 1, members, segments: SEGMENTS, lanes: LANES, scale_log2: 24, start: Strategy::Bsp, policies: Vec::new() }
}

fn switch() -> Switch<(Serene, Forward), Vec<u8>> {
    let port = PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 20_000, red: None, pfc: None, fault: None };
    let config = SwitchConfig { buffer_bytes: 50_000, seed: 1, ports: vec![port; usize::from(CPU_PORT) + 1] };
    let serene = SereneConfig { address: SERVICE, mac: MAC, cpu_port: Some(CPU_PORT), incarnation: 7 };
    Switch::new(&config, (Serene::new(serene), Forward::new(&ForwardConfig::Learning, usize::from(WORKERS), 1)))
}

/// A request as a step describes it.
fn frame(worker: u8, step: &[u8; STEP]) -> Vec<u8> {
    let [_, _, _, kind, flags, round, segment, norm, frontier, incarnation, swap_id, boundary, choice, cut, at, damage] =
        *step;
    let small_or_huge = |number: u8| i32::from(number as i8) as u32;
    let kind = Type::ALL[usize::from(kind) % Type::ALL.len()];
    let header = Repr {
        flags: Flags(flags),
        worker,
        round: small_or_huge(round),
        segment: if kind == Type::Join { SEGMENTS } else { u32::from(segment % 4) },
        lane_count: if kind == Type::Push { LANES } else { 0 },
        norm,
        frontier: small_or_huge(frontier),
        incarnation_or_included: u32::from(incarnation),
        ..Repr::new(kind, 1)
    };
    let payload_len = header.payload_len();
    let mut bytes = vec![0; PAYLOAD_AT + payload_len];
    ethernet::Repr { dst: MAC, src: [2, 0, 0, 0, 0, worker], tags: [None; 2], ethertype: ethernet::IPV4 }
        .emit(&mut bytes)
        .expect("fits");
    let src = Ipv4Addr::new(10, 0, 0, worker.wrapping_add(1));
    ipv4::Repr::udp(src, SERVICE, 0, 64, udp::HEADER_LEN + payload_len).emit(&mut bytes[14..]).expect("fits");
    udp::Repr { src_port: 7001, dst_port: AGGREGATION_PORT, payload_len }.emit(&mut bytes[34..]).expect("fits");
    header.emit(&mut bytes[PAYLOAD_AT..]).expect("fits");
    let body = &mut bytes[PAYLOAD_AT + HEADER_LEN..];
    if kind.has_control_body() {
        assert_eq!(body.len(), CONTROL_LEN);
        let control = Control {
            swap_id: swap_id.into(),
            boundary: small_or_huge(boundary),
            from_version: u16::from(choice),
            to_version: u16::from(choice) + 1,
            align: if choice & 1 == 0 { Align::Jump } else { Align::Drain },
            code: Code::Done,
        };
        control.emit(body).expect("fits");
    } else {
        body.fill(norm);
    }
    if let Some(byte) = bytes.get_mut(usize::from(at)) {
        *byte ^= damage;
    }
    if cut > 0 && usize::from(cut) < bytes.len() {
        bytes.truncate(cut.into());
    }
    bytes
}

/// The payload of a frame that the service sent.
fn answer(frame: &[u8]) -> Option<&[u8]> {
    let from_service =
        frame.get(26..30) == Some(&SERVICE.octets()) && frame.get(34..36)? == AGGREGATION_PORT.to_be_bytes();
    from_service.then(|| &frame[PAYLOAD_AT..])
}

fuzz_target!(|input: &[u8]| {
    let (mut switch, mut frames, mut now) = (switch(), HeapFrames, 0);
    let mut controllers = Controllers::new(Some(CPU_PORT));
    controllers.load(&job(), &mut switch).expect("a sound job");
    for step in input.as_chunks::<STEP>().0 {
        let [what, worker, pause, kind, ..] = *step;
        now += u64::from(pause).pow(3) * 1000; // up to 17 s
        let worker = worker % (WORKERS + 1);
        match what % 8 {
            // By its number a stranger is behind the CPU port.
            0..6 => switch.receive(worker.into(), now, frame(worker, step), &mut frames, &mut NoTrace),
            6 => {
                let strategy = STRATEGIES[usize::from(kind) % STRATEGIES.len()];
                if let Some(controller) = controllers.job_mut(1) {
                    controller.swap(now, strategy);
                }
            }
            _ if kind == 0 => {
                controllers.unload(1, &mut switch);
                controllers.load(&job(), &mut switch).expect("there is none");
            }
            _ => {
                if let Some(controller) = controllers.job_mut(1) {
                    controller.drop_member(now, worker);
                }
            }
        }
        controllers.drive(now, &mut switch, &mut frames, &mut NoTrace);
        while controllers.pop_event().is_some() {}
        for port in 0..CPU_PORT {
            while let Some(departure) = switch.dequeue(port, now, &mut frames, &mut NoTrace) {
                if let Some(payload) = answer(&departure.frame) {
                    assert!(Packet::new_checked(payload).is_ok(), "{payload:x?}");
                }
            }
        }
        assert!(switch.counters().conservation.holds());
    }
});
