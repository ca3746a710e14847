//! The conservation law over everything a switch can do to a packet, with frames that are counted one by one.

use proptest::prelude::*;
use symphony::dataplane::{
    Bridged, Cx, Direction, DropReason, Egress, Emission, Fault, Frames, Function, Nanos, NoTrace, Pfc, Phv,
    PortConfig, PortSet, Red, Replica, Service, Switch, SwitchConfig, Tracer, Verdict,
};

const PORTS: u16 = 4;

/// Does what the packet's last bytes ask for: consume, multicast, emit, drop, in ingress and in egress.
struct Toy;

impl Toy {
    fn emission(phv: &Phv) -> Emission {
        // The emitted packet asks for nothing in egress, else it would go round for ever.
        let phv = Phv { frame_bytes: 64, eth_src: [2, 0, 0, 0, 0, 0], ..*phv };
        Emission { phv, ports: PortSet(phv.eth_dst[4].into()), bytes: vec![0; 64] }
    }
}

impl Function for Toy {
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        let ports = phv.eth_dst[4];
        if phv.eth_dst[3] & 1 != 0 {
            cx.emissions.push(Toy::emission(phv));
        }
        if phv.eth_dst[3] & 2 != 0 {
            phv.bridged = Bridged { service: Service::Aggregation, ..phv.bridged };
        }
        match phv.eth_dst[5] % 7 {
            0 => Verdict::Continue,
            1 => Verdict::Consume,
            2 => Verdict::Multicast(PortSet(ports.into())),
            3 => Verdict::Drop(DropReason::Function),
            4 => Verdict::Group(u16::from(ports) % 3),
            _ => Verdict::Forward(u16::from(ports) % (PORTS + 1)),
        }
    }

    fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, _: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        if phv.eth_src[5] & 1 != 0 {
            cx.emissions.push(Toy::emission(phv));
        }
        (phv.eth_src[5] & 2 != 0).then_some(DropReason::Function)
    }
}

/// At most `capacity` frames at a time.
struct Pool {
    capacity: usize,
    used: usize,
}

impl Pool {
    fn take(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        (self.used < self.capacity).then(|| {
            self.used += 1;
            bytes
        })
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

    fn replicate(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        self.take(frame.clone())
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.take(bytes.to_vec())
    }

    fn free(&mut self, _: Vec<u8>) {
        self.used -= 1;
    }
}

#[derive(Clone, Debug)]
enum Act {
    Receive { port: u16, bytes: Vec<u8> },
    Send { port: u16, refuse: Option<DropReason> },
    Up { port: u16, up: bool },
    Flush { port: u16 },
    Pause { port: u16, paused: bool },
    Release,
    Wait(Nanos),
}

fn fault() -> impl Strategy<Value = Fault> {
    let direction = proptest::sample::select(vec![Direction::In, Direction::Out, Direction::Both]);
    let often = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    (direction, (0.0..0.5), often(), 0..3_000u64, 0..3_000u64, often(), often()).prop_map(
        |(direction, loss, duplicate, delay_ns, jitter_ns, reorder, corrupt)| Fault {
            direction,
            loss,
            duplicate,
            delay_ns,
            delay_jitter_ns: jitter_ns.min(delay_ns),
            reorder,
            corrupt,
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let port = 0..PORTS;
    let refuse = prop_oneof![
        3 => Just(None),
        1 => proptest::sample::select(vec![DropReason::TxStalled, DropReason::TooLong]).prop_map(Some),
    ];
    prop_oneof![
        8 => (port.clone(), proptest::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(port, bytes)| Act::Receive { port, bytes }),
        4 => (port.clone(), refuse).prop_map(|(port, refuse)| Act::Send { port, refuse }),
        1 => (port.clone(), any::<bool>()).prop_map(|(port, up)| Act::Up { port, up }),
        1 => port.clone().prop_map(|port| Act::Flush { port }),
        1 => (port, any::<bool>()).prop_map(|(port, paused)| Act::Pause { port, paused }),
        1 => Just(Act::Release),
        2 => (0..2_000u64).prop_map(Act::Wait),
    ]
}

proptest! {
    #[test]
    fn every_packet_and_every_frame_is_accounted_for_at_all_times(
        acts in proptest::collection::vec(act(), 1..300),
        buffer_bytes in 100..3000u64,
        capacity in 1..40usize,
        pfc in proptest::option::of(prop_oneof![
            (0..1000u64).prop_map(|xoff_bytes| Pfc::fixed(xoff_bytes, xoff_bytes / 2, 200)),
            (0..4u8).prop_map(|shift| Pfc { reserve_bytes: 64, resume_offset_bytes: 48, ..Pfc::dynamic(shift, 200) }),
        ]),
        faults in prop_oneof![
            1 => Just([None; PORTS as usize]),
            2 => proptest::array::uniform4(proptest::option::of(fault())),
        ],
    ) {
        let port = |((rate_bps, pfc), fault)| PortConfig {
            name: String::new(),
            rate_bps,
            buffer_bytes: buffer_bytes / 2,
            red: Some(Red { kmin_bytes: 50, kmax_bytes: 300, pmax: 0.5 }),
            pfc,
            fault,
        };
        let config = SwitchConfig {
            buffer_bytes,
            seed: 1,
            ports: [(None, pfc), (Some(1_000_000_000), pfc), (Some(8_000_000_000), None), (None, None)]
                .into_iter()
                .zip(faults)
                .map(port)
                .collect(),
        };
        let mut switch = Switch::new(&config, Toy);
        switch.set_group(1, &[(0, 1), (2, 2), (2, 3), (PORTS, 4)].map(|(port, rid)| Replica { port, rid }));
        let mut pool = Pool { capacity, used: 0 };
        let (mut now, mut received, mut sent) = (0, 0, 0);
        let mut told = [false; PORTS as usize];
        for act in acts {
            match act {
                Act::Receive { port, bytes } => {
                    if let Some(frame) = pool.take(bytes) {
                        received += 1;
                        switch.receive(port, now, frame, &mut pool, &mut NoTrace);
                    }
                }
                Act::Send { port, refuse } => {
                    if let Some(departure) = switch.dequeue(port, now, &mut pool, &mut NoTrace) {
                        prop_assert!(departure.at <= now);
                        match refuse {
                            Some(reason) => switch.drop_departure(departure, reason, &mut pool, &mut NoTrace),
                            None => {
                                sent += 1;
                                pool.free(departure.frame);
                            }
                        }
                    }
                }
                Act::Up { port, up } => switch.set_port_up(port, up),
                Act::Flush { port } => switch.flush_port(port, &mut pool, &mut NoTrace),
                Act::Pause { port, paused } => switch.pause(port, now, paused),
                Act::Release => {
                    let due = switch.next_release().is_some_and(|at| at <= now);
                    prop_assert_eq!(switch.release(now, &mut pool, &mut NoTrace), due);
                    prop_assert!(switch.next_release().is_none_or(|at| at > now));
                }
                Act::Wait(ns) => now += ns,
            }
            for (port, paused) in switch.take_pauses() {
                told[usize::from(port)] = paused;
            }
            let counters = switch.counters();
            let law = counters.conservation;
            prop_assert!(law.holds(), "{:?}", law);
            prop_assert_eq!(law.rx, received);
            prop_assert_eq!(law.tx, sent);
            prop_assert_eq!(law.queued, pool.used as u64, "a frame is in a queue or it is free");
            prop_assert_eq!(law.dropped, counters.drops.iter().map(|(_, n)| n).sum::<u64>());
            prop_assert_eq!(law.queued == 0, switch.backlog().is_empty() && switch.next_release().is_none());
            prop_assert!(law.queued > 0 || told == [false; PORTS as usize], "nobody is paused for nothing");
        }
    }
}
