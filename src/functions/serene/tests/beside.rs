//! Serene beside Symphony on one switch.

use super::*;
use crate::functions::symphony::{self, Parameters, Policy, StepSource, Symphony};

type Switch3 = Switch<(Symphony, Serene, Forward), Vec<u8>>;

fn symphony_job() -> symphony::Job {
    symphony::Job {
        id: 1,
        name: "ring".into(),
        ring: (0..4).map(|worker| (*address(worker).ip()).into()).collect(),
        step_source: StepSource::Message,
        requests_per_step: 1,
        packets_per_step: None,
        path_mtu: 1024,
        steps_per_collective: 6,
        step_ns: None,
        idle_ns: 1_000_000,
        enabled: true,
    }
}

fn switch() -> Switch3 {
    let port =
        PortConfig { name: "p".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault: None };
    let config = SwitchConfig { buffer_bytes: 1 << 22, seed: 1, ports: vec![port; usize::from(CPU) + 1] };
    let mut symphony = Symphony::new(Parameters { policy: Policy::OwnerMin, ..Parameters::reference() }, 64, 8);
    symphony.add_job(&symphony_job(), 0).expect("a sound job");
    let serene = SereneConfig { address: SERVICE, mac: SERVICE_MAC, cpu_port: Some(CPU), incarnation: 1 };
    let mut serene = Serene::new(serene);
    serene.add_job(&job(2, 1, Strategy::Bsp)).expect("a sound job");
    Switch::new(&config, (symphony, serene, Forward::new(&ForwardConfig::Learning, usize::from(CPU), 1)))
}

/// RC WRITE Only with immediate from worker 0 to worker 1, ECT(0).
fn roce(psn: u8) -> Vec<u8> {
    let mut bytes = [&mac(1)[..], &mac(0), &[0x08, 0x00]].concat();
    let datagram_len = 8 + 12 + 16 + 4 + 4 + 4;
    bytes.resize(34, 0);
    ipv4::Repr::udp(*address(0).ip(), *address(1).ip(), 0x6a, 64, datagram_len).emit(&mut bytes[14..]).expect("fits");
    bytes.extend([0xc0, 0x01, 0x12, 0xb7, 0x00, datagram_len as u8, 0, 0]);
    bytes.extend([0x0b, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0, 0, psn]);
    bytes.extend([0; 16]);
    bytes.extend([0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 0xaa, 0xbb, 0xcc, 0xdd]);
    bytes
}

fn run(switch: &mut Switch3, port: u16, now: Nanos, frame: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
    switch.receive(port, now, frame, &mut HeapFrames, &mut NoTrace);
    let mut out = Vec::new();
    for port in 0..=CPU {
        while let Some(departure) = switch.dequeue(port, now, &mut HeapFrames, &mut NoTrace) {
            out.push((port, departure.frame));
        }
    }
    out
}

#[test]
fn neither_function_disturbs_the_other() {
    let (mut both, mut alone) = (switch(), switch());
    let request = |kind, worker: u8, round| {
        let header = Repr { worker, round, norm: 2, incarnation_or_included: 9, ..Repr::new(kind, JOB) };
        let lanes = if kind == Type::Push { &lanes(3)[..] } else { &[] };
        let header = Repr { lane_count: lanes.len() as u16, frontier: round.saturating_sub(1), ..header };
        frame(mac(worker), address(worker), &payload(&header, lanes))
    };
    let mut answers = 0;
    for step in 0..20u8 {
        let now = 1_000_000_000 + u64::from(step) * 10_000;
        for worker in 0..2 {
            let kind = if step == 0 { Type::Join } else { Type::Push };
            answers += run(&mut both, worker.into(), now, request(kind, worker, step.into())).len();
        }
        if step == 0 {
            let replicas = both.functions().1.replicas(JOB);
            both.set_group(JOB.into(), &replicas);
        }
        let frame = roce(step);
        let (with, without) = (run(&mut both, 0, now, frame.clone()), run(&mut alone, 0, now, frame.clone()));
        assert!(with.iter().all(|(_, bytes)| *bytes == frame), "not a byte is touched");
        let to = |out: &[(u16, Vec<u8>)]| out.iter().map(|(port, _)| *port).collect::<Vec<_>>();
        // Worker 1 is known by its requests where there are some, and flooded to where there are none.
        assert!(to(&with).contains(&1) && to(&without).contains(&1));
    }
    assert_eq!(answers, 2 + 19 * 2);
    assert_eq!(both.functions().0.flows(), alone.functions().0.flows(), "Symphony saw the same");
    assert_eq!(both.functions().0.flows()[0].messages, 20);
    let segment = both.functions().1.segment(JOB, 0).expect("it is there");
    assert_eq!((segment.frontier, segment.sum), (19, sum(&[3; 38])));
    assert!(both.counters().conservation.holds());
}
