use std::collections::VecDeque;

use proptest::prelude::*;
use rand_chacha::rand_core::Rng;

use super::*;
use crate::dataplane::{Bridged, Pfc, Red, Roce, Service};
use crate::wire::Opcode;

fn phv(bytes: u32, priority: bool) -> Phv {
    let roce = priority.then(|| Roce { opcode: Opcode::CNP, ..Roce::default() });
    Phv { frame_bytes: bytes, roce, ..Phv::default() }
}

fn aggregation(bytes: u32) -> Phv {
    Phv { bridged: Bridged { service: Service::Aggregation, ..Bridged::default() }, ..phv(bytes, false) }
}

/// 8 Gbit/s: one nanosecond a byte.
fn port(rate_bps: Option<u64>) -> PortConfig {
    PortConfig { name: "p".into(), rate_bps, buffer_bytes: 1_000_000, red: None, pfc: None, fault: None }
}

fn manager(ports: Vec<PortConfig>) -> TrafficManager<u32> {
    TrafficManager::new(&SwitchConfig { buffer_bytes: 2_000_000, seed: 1, ports })
}

const RATE: Option<u64> = Some(8_000_000_000);

#[test]
fn a_packet_departs_at_the_end_of_the_one_before_or_when_it_came_in() {
    let mut tm = manager(vec![port(RATE)]);
    tm.enqueue(0, 100, &phv(1000, false), 1);
    tm.enqueue(0, 150, &phv(500, false), 2);
    tm.enqueue(0, 5000, &phv(500, false), 3);
    assert_eq!(tm.next_departure(0), Some(100));
    assert!(tm.dequeue(0, 99).is_none());
    // Polled very late: the rate is kept, not lowered.
    let departures: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at, d.ends_at)).collect();
    assert_eq!(departures, [(1, 100, 1100), (2, 1100, 1600), (3, 5000, 5500)]);
    assert_eq!(tm.next_departure_any(), None);
    // And an idle line gives no credit for the past.
    tm.enqueue(0, 9000, &phv(100, false), 4);
    tm.enqueue(0, 9000, &phv(100, false), 5);
    assert_eq!(tm.dequeue(0, 9000).map(|d| d.at), Some(9000));
    assert_eq!(tm.next_departure(0), Some(9100));
}

#[test]
fn rates_that_do_not_divide_a_nanosecond_lose_nothing_over_many_packets() {
    let mut tm = manager(vec![port(Some(7_000_000_000))]);
    let mut end = 0;
    for n in 0..70_000 {
        tm.enqueue(0, 0, &phv(100, false), n);
        end = tm.dequeue(0, Nanos::MAX).map_or(0, |d| d.ends_at);
    }
    assert_eq!(end, 8_000_000, "7 MB at 7 Gbit/s");
}

#[test]
fn a_priority_packet_overtakes_what_has_not_departed_before_it_came() {
    let mut tm = manager(vec![port(RATE)]);
    tm.enqueue(0, 0, &phv(1000, false), 1);
    tm.enqueue(0, 0, &phv(1000, false), 2);
    tm.enqueue(0, 0, &phv(1000, false), 3);
    tm.enqueue(0, 1500, &phv(64, true), 9);
    let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at)).collect();
    // At 1000 the CNP had not come yet, however late the driver asks.
    assert_eq!(order, [(1, 0), (2, 1000), (9, 2000), (3, 2064)]);
}

#[test]
fn a_paused_port_holds_its_data_back_until_the_resume_and_lets_priority_packets_go() {
    let mut tm = manager(vec![port(RATE), port(None)]);
    tm.enqueue(0, 0, &phv(1000, false), 1);
    tm.enqueue(0, 0, &phv(1000, false), 2);
    assert_eq!(tm.dequeue(0, 0).map(|d| (d.frame, d.ends_at)), Some((1, 1000)));
    tm.pause(0, 500, true);
    assert_eq!((tm.next_departure(0), tm.next_departure_any()), (None, None));
    assert!(tm.dequeue(0, Nanos::MAX).is_none());
    assert!(tm.backlog().contains(0), "it waits all the same");
    tm.enqueue(0, 600, &phv(64, true), 9);
    assert_eq!(tm.next_departure(0), Some(1000), "the pause does not stop the packet on the line");
    assert_eq!(tm.dequeue(0, 5000).map(|d| (d.frame, d.at, d.depth_bytes)), Some((9, 1000, 1000)));
    tm.pause(0, 3000, true); // again: as before
    tm.pause(0, 4000, false);
    tm.pause(0, 6000, false); // not paused: changes nothing
    tm.enqueue(0, 4500, &phv(1000, false), 3);
    let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at)).collect();
    assert_eq!(order, [(2, 4000), (3, 5000)], "no credit for the pause, no loss after it");
    // Without a rate, and for a port that goes down.
    tm.enqueue(1, 0, &phv(1000, false), 4);
    tm.pause(1, 0, true);
    assert!(tm.dequeue(1, 100).is_none());
    tm.pause(1, 200, false);
    assert_eq!(tm.next_departure(1), Some(200));
    tm.pause(1, 300, true);
    assert_eq!(tm.flush_one(1), Some(4), "a pause keeps nothing from being flushed");
    tm.pause(2, 0, true); // no such port
}

#[test]
fn data_and_aggregation_get_as_many_bytes_sent_while_both_wait_and_priority_goes_before_both() {
    let mut tm = manager(vec![port(RATE)]);
    for n in 0..100 {
        tm.enqueue(0, 0, &phv(1500, false), n);
    }
    for n in 100..900 {
        tm.enqueue(0, 0, &aggregation(100), n);
    }
    let sent = |tm: &mut TrafficManager<u32>, bytes: u64| {
        let (mut data, mut other) = (0, 0);
        while data + other < bytes {
            let packet = tm.dequeue(0, Nanos::MAX).expect("more waits");
            let sum = if packet.frame < 100 { &mut data } else { &mut other };
            *sum += u64::from(packet.phv.frame_bytes);
        }
        (data, other)
    };
    // Never more apart than a packet.
    for _ in 0..20 {
        let (data, other) = sent(&mut tm, 6000);
        assert!(data.abs_diff(other) <= 1500, "{data} and {other}");
    }
    tm.enqueue(0, 0, &phv(64, true), 9999);
    assert_eq!(tm.dequeue(0, Nanos::MAX).map(|d| d.frame), Some(9999));
    // 60000 of 80000 bytes of aggregation are sent: the rest, and then data alone.
    let (data, other) = sent(&mut tm, 110_000);
    assert!((19_900..=20_100).contains(&other), "{data} and {other}");
    assert_eq!(tm.backlog(), PortSet::default());
}

#[test]
fn time_alone_on_the_line_gives_neither_credit_nor_debt() {
    let mut tm = manager(vec![port(RATE)]);
    for n in 0..50 {
        tm.enqueue(0, 0, &phv(1000, false), n);
    }
    for _ in 0..20 {
        tm.dequeue(0, Nanos::MAX);
    }
    for n in 100..110 {
        tm.enqueue(0, 20_000, &aggregation(1000), n);
    }
    let order: Vec<_> = (0..6).filter_map(|_| tm.dequeue(0, Nanos::MAX)).map(|d| d.frame).collect();
    assert_eq!(order, [20, 100, 21, 101, 22, 102]);
}

#[test]
fn what_departs_is_of_those_that_were_there_in_time_however_late_the_driver_asks() {
    let mut tm = manager(vec![port(RATE)]);
    for n in 0..3 {
        tm.enqueue(0, 0, &phv(1000, false), n);
    }
    tm.enqueue(0, 1500, &aggregation(1000), 9);
    let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.at)).collect();
    // At 2000 both wait, and they are even; at 3000 data is ahead.
    assert_eq!(order, [(0, 0), (1, 1000), (2, 2000), (9, 3000)]);
}

#[test]
fn aggregation_is_no_depth_of_the_data_queue_and_red_leaves_it_alone() {
    let red = Red { kmin_bytes: 500, kmax_bytes: 500, pmax: 1.0 };
    let mut tm = manager(vec![PortConfig { red: Some(red), ..port(RATE) }]);
    for n in 0..4 {
        assert_eq!(tm.enqueue(0, 0, &aggregation(1000), n), 0);
    }
    assert_eq!(tm.enqueue(0, 0, &phv(1000, false), 8), 1000);
    assert_eq!(tm.enqueue(0, 0, &phv(1000, false), 9), 2000);
    let seen: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 9000)).map(|d| (d.frame, d.depth_bytes, d.red)).collect();
    assert_eq!(seen, [(8, 1000, true), (0, 1000, false), (9, 0, false), (1, 0, false), (2, 0, false), (3, 0, false)]);
    assert_eq!(tm.max_depth_bytes(0), 2000);
}

#[test]
fn a_pause_does_not_stop_aggregation_nor_is_it_booked_for_pfc_and_it_counts_in_buffers() {
    let lossless = PortConfig { pfc: Some(Pfc::fixed(1000, 500, 0)), buffer_bytes: 2500, ..port(RATE) };
    let mut tm: TrafficManager<u32> =
        TrafficManager::new(&SwitchConfig { buffer_bytes: 4000, seed: 1, ports: vec![lossless, port(None)] });
    tm.pause(0, 0, true);
    tm.enqueue(0, 0, &aggregation(1000), 1);
    tm.enqueue(0, 0, &aggregation(1000), 2);
    assert_eq!(tm.take_pauses(), Default::default());
    assert_eq!(tm.admit(0, &aggregation(501)), Err(DropReason::TailDrop), "it has no headroom and no bound there");
    assert_eq!(tm.admit(0, &phv(2000, true)), Ok(()), "it does not keep acknowledgements out");
    assert_eq!(tm.admit(1, &Phv { ingress_port: 1, ..phv(2001, false) }), Err(DropReason::BufferFull));
    tm.enqueue(0, 0, &phv(900, false), 3);
    assert_eq!(tm.dequeue(0, 0).map(|d| d.frame), Some(1));
    assert_eq!(tm.next_departure(0), Some(1000));
    // Data is held back: nothing was even.
    assert_eq!(tm.dequeue(0, Nanos::MAX).map(|d| d.frame), Some(2));
    assert_eq!((tm.next_departure(0), tm.backlog()), (None, PortSet(1)));
    // A port without a rate departs at the time of asking, even at the end of time.
    tm.pause(1, 0, true);
    tm.enqueue(1, 0, &Phv { ingress_port: 1, ..phv(100, false) }, 4);
    tm.enqueue(1, 0, &aggregation(100), 5);
    assert_eq!(tm.dequeue(1, Nanos::MAX).map(|d| d.frame), Some(5));
    assert!(tm.dequeue(1, Nanos::MAX).is_none());
    // Flushed all the same, priority first and aggregation last.
    tm.enqueue(1, 0, &aggregation(100), 6);
    tm.enqueue(1, 0, &phv(100, true), 7);
    assert_eq!(std::array::from_fn(|_| tm.flush_one(1)), [Some(7), Some(4), Some(6), None]);
}

#[test]
fn pfc_limits_data_where_it_comes_in_and_nothing_else() {
    let pfc = Pfc::fixed(3000, 1000, 1000);
    let lossless = PortConfig { buffer_bytes: 500, pfc: Some(pfc), ..port(RATE) };
    let lossy = PortConfig { buffer_bytes: 500, ..port(RATE) };
    let mut tm: TrafficManager<u32> =
        TrafficManager::new(&SwitchConfig { buffer_bytes: 6000, seed: 1, ports: vec![lossless, lossy] });
    let from = |ingress_port, bytes, priority| Phv { ingress_port, ..phv(bytes, priority) };
    for n in 0..4 {
        assert_eq!(tm.admit(1, &from(0, 1000, false)), Ok(()), "far beyond the 500 bytes of port 1");
        tm.enqueue(1, 0, &from(0, 1000, false), n);
        assert_eq!(tm.take_pauses(), if n == 2 { (PortSet(1), PortSet(1)) } else { Default::default() });
    }
    assert_eq!(tm.admit(1, &from(0, 1000, false)), Err(DropReason::HeadroomFull));
    assert_eq!(tm.admit(0, &from(0, 1000, false)), Err(DropReason::HeadroomFull), "whatever port it leaves by");
    assert_eq!(tm.admit(0, &from(1, 501, false)), Err(DropReason::TailDrop), "port 1 is not lossless");
    assert_eq!(tm.admit(0, &from(7, 501, false)), Err(DropReason::TailDrop), "there is no port 7");
    assert_eq!(tm.admit(0, &from(0, 501, true)), Err(DropReason::TailDrop), "acknowledgements are not lossless");
    for n in 0..4 {
        tm.enqueue(0, 0, &from(0, 500, true), 10 + n);
    }
    assert_eq!(tm.admit(0, &from(0, 1, false)), Err(DropReason::BufferFull), "the whole buffer is a limit to all");
    assert_eq!(tm.take_pauses(), Default::default(), "acknowledgements are not accounted for");
    // 4000 bytes are held. Flushed or sent, 1000 are left after three.
    assert!(tm.flush_one(1).is_some() && tm.dequeue(1, 9000).is_some());
    assert_eq!(tm.take_pauses(), Default::default());
    assert!(tm.dequeue(1, 9000).is_some());
    assert_eq!(tm.take_pauses(), (PortSet(1), PortSet(0)));
}

#[test]
fn without_a_rate_everything_is_due_at_once_and_departs_when_polled_priority_first() {
    let mut tm = manager(vec![port(None)]);
    tm.enqueue(0, 10, &phv(1000, false), 1);
    tm.enqueue(0, 20, &phv(64, true), 2);
    assert_eq!(tm.next_departure(0), Some(10));
    let order: Vec<_> = std::iter::from_fn(|| tm.dequeue(0, 500)).map(|d| (d.frame, d.at, d.ends_at)).collect();
    assert_eq!(order, [(2, 500, 500), (1, 500, 500)]);
}

#[test]
fn the_port_limit_is_a_tail_drop_and_the_shared_one_a_full_buffer() {
    let config = |own| PortConfig { buffer_bytes: own, ..port(RATE) };
    let mut tm: TrafficManager<u32> =
        TrafficManager::new(&SwitchConfig { buffer_bytes: 2500, seed: 1, ports: vec![config(1500), config(1500)] });
    assert_eq!(tm.admit(0, &phv(1501, false)), Err(DropReason::TailDrop));
    assert_eq!(tm.admit(0, &phv(1501, true)), Err(DropReason::TailDrop));
    assert_eq!(tm.admit(0, &phv(1500, false)), Ok(()));
    tm.enqueue(0, 0, &phv(1000, false), 1);
    tm.enqueue(0, 0, &phv(400, true), 2);
    assert_eq!(tm.admit(0, &phv(101, false)), Err(DropReason::TailDrop), "both queues count");
    assert_eq!(tm.admit(0, &phv(1100, true)), Ok(()), "data does not keep acknowledgements out");
    assert_eq!(tm.admit(0, &phv(100, false)), Ok(()));
    assert_eq!(tm.admit(1, &phv(1101, true)), Err(DropReason::BufferFull));
    assert_eq!(tm.admit(1, &phv(1100, false)), Ok(()));
    assert_eq!(tm.admit(2, &phv(1, false)), Err(DropReason::PortDown));
    assert_eq!((tm.depth_bytes(0), tm.max_depth_bytes(0)), (1000, 1000), "of the data queue");
    assert_eq!(tm.flush_one(0), Some(2));
    assert_eq!(tm.flush_one(0), Some(1));
    assert_eq!(tm.flush_one(0), None);
    assert_eq!(tm.admit(1, &phv(1500, false)), Ok(()), "room is given back");
    assert_eq!((tm.depth_bytes(0), tm.max_depth_bytes(0), tm.backlog()), (0, 1000, PortSet::default()));
}

/// Keeps `depth` packets of 1000 bytes behind each packet taken out, and says for how many of `n` RED hit.
fn red_hits(red: Red, depth: u32, n: u32) -> u32 {
    let mut tm = manager(vec![PortConfig { red: Some(red), ..port(RATE) }]);
    for _ in 0..depth {
        tm.enqueue(0, 0, &phv(1000, false), 0);
    }
    let mut hits = 0;
    for _ in 0..n {
        tm.enqueue(0, 0, &phv(1000, false), 0);
        let packet = tm.dequeue(0, Nanos::MAX).expect("queued");
        assert_eq!(packet.depth_bytes, u64::from(depth) * 1000);
        hits += u32::from(packet.red);
    }
    hits
}

#[test]
fn red_is_silent_up_to_kmin_linear_up_to_kmax_and_sure_above() {
    let red = Red { kmin_bytes: 10_000, kmax_bytes: 40_000, pmax: 0.2 };
    assert_eq!(red_hits(red, 0, 1000), 0);
    assert_eq!(red_hits(red, 10, 1000), 0);
    let half = red_hits(red, 25, 10_000);
    assert!((900..1100).contains(&half), "0.1 expected at half way, {half} of 10000 seen");
    let full = red_hits(red, 40, 10_000);
    assert!((1850..2150).contains(&full), "0.2 expected at Kmax, {full} of 10000 seen");
    assert_eq!(red_hits(red, 41, 1000), 1000);
}

#[test]
fn red_draws_once_for_each_data_packet_above_kmin_and_never_else() {
    let red = Red { kmin_bytes: 1000, kmax_bytes: 2000, pmax: 0.5 };
    let mut tm = manager(vec![PortConfig { red: Some(red), ..port(RATE) }; 2]);
    let mut expected = ChaCha8Rng::seed_from_u64(1);
    expected.set_stream(1);
    let next = |tm: &mut TrafficManager<u32>| tm.marking(1).map(|(_, rng)| rng.clone().next_u32());
    for bytes in [1000, 500, 500, 600, 400, 1000] {
        tm.enqueue(1, 0, &phv(bytes, false), 0);
    }
    tm.enqueue(1, 0, &phv(64, true), 0);
    // Behind the CNP 4000, no draw; then 3000 and 2500 (above Kmax), 2000, 1400, 1000, 0.
    for (depth, draws) in [(4000, 0), (3000, 1), (2500, 1), (2000, 1), (1400, 1), (1000, 0), (0, 0)] {
        let packet = tm.dequeue(1, Nanos::MAX).expect("queued");
        assert_eq!(packet.depth_bytes, depth);
        for _ in 0..draws {
            expected.next_u32();
        }
        assert_eq!(next(&mut tm), Some(expected.clone().next_u32()), "at depth {depth}");
    }
}

#[test]
fn every_port_has_a_random_stream_of_its_own_and_the_seed_decides_it() {
    let config = SwitchConfig { buffer_bytes: 1, seed: 7, ports: vec![port(None), port(None)] };
    let draw =
        |config: &SwitchConfig, port| TrafficManager::<u32>::new(config).marking(port).map(|(_, rng)| rng.next_u64());
    assert_ne!(draw(&config, 0), draw(&config, 1));
    assert_eq!(draw(&config, 0), draw(&config, 0));
    assert_ne!(draw(&config, 0), draw(&SwitchConfig { seed: 8, ..config.clone() }, 0));
}

/// What a port does, said in the plainest way.
#[derive(Default)]
struct Model {
    /// Data, aggregation, priority.
    queues: [VecDeque<(Nanos, u32, u32)>; 3],
    paused: bool,
    resumed_at: Nanos,
    free_at: Nanos,
    /// What data and aggregation were sent while both could have been.
    shares: [u64; 2],
}

impl Model {
    fn dequeue(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        let data = self.queues[0].front().filter(|_| !self.paused).map(|p| p.0.max(self.resumed_at));
        let [aggregation, priority] = [1, 2].map(|class| self.queues[class].front().map(|p| p.0));
        let at = [data, aggregation, priority].into_iter().flatten().min()?.max(self.free_at);
        if at > now {
            return None;
        }
        let can = |queue: Option<Nanos>| queue.is_some_and(|from| from <= at);
        let even = can(data) && can(aggregation);
        let class = match () {
            () if can(priority) => 2,
            () if even => usize::from(self.shares[0] > self.shares[1]),
            () if can(data) => 0,
            () => 1,
        };
        let (_, bytes, frame) = self.queues[class].pop_front()?;
        if even && class < 2 {
            self.shares[class] += u64::from(bytes);
        }
        self.free_at = at + Nanos::from(bytes);
        Some((frame, at))
    }
}

proptest! {
    #[test]
    fn queues_behave_as_the_plain_model_says(
        steps in proptest::collection::vec((0..2u16, 0..3000u64, 60..1500u32, any::<bool>(), 0..11), 1..200)
    ) {
        let mut tm = manager(vec![port(RATE), port(RATE)]);
        let mut models = [Model::default(), Model::default()];
        let mut now = 0;
        for (frame, (port, wait, bytes, flag, act)) in (0..).zip(steps) {
            now += wait;
            let model = &mut models[usize::from(port)];
            match act {
                0 => {
                    tm.pause(port, now, flag);
                    if model.paused && !flag {
                        model.resumed_at = now;
                    }
                    model.paused = flag;
                }
                1..6 => {
                    let packet = if act < 4 { phv(bytes, flag) } else { aggregation(bytes) };
                    prop_assert_eq!(tm.admit(port, &packet), Ok(()));
                    tm.enqueue(port, now, &packet, frame);
                    model.queues[packet.class() as usize].push_back((now, bytes, frame));
                }
                _ => {
                    let due = tm.next_departure(port);
                    let got = tm.dequeue(port, now).map(|d| (d.frame, d.at));
                    prop_assert_eq!(got, model.dequeue(now));
                    prop_assert_eq!(due.filter(|due| *due <= now), got.map(|(_, at)| at));
                }
            }
            for (port, model) in (0..).zip(&models) {
                let bytes: u64 = model.queues[0].iter().map(|p| u64::from(p.1)).sum();
                prop_assert_eq!(tm.depth_bytes(port), bytes);
                prop_assert!(model.shares[0].abs_diff(model.shares[1]) <= 1500);
                let waits = model.queues.iter().any(|queue| !queue.is_empty());
                prop_assert_eq!(tm.backlog().contains(port), waits);
            }
        }
    }
}
