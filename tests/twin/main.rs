//! The XDP program and the Rust stages that it mirrors, held equal: the same frames through both, the same verdict,
//! metadata and register contents after every packet.
//!
//! The program runs by `BPF_PROG_TEST_RUN`; the Rust side gets the time that the program read. Needs root; says SKIPPED and
//! why otherwise.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod frames;
mod ring;
mod sequences;
mod twins;

use std::net::Ipv6Addr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony::backend::xdp::Bench;
use symphony::dataplane::{DropReason, Step};
use symphony::functions::symphony::{Job, StepSource, UNARMED};

use frames::Packet;
use twins::{DROP, IDLE_NEVER_NS, Twins, bench, job};

/// One test at a time: they are about timing.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_packet_of_the_captures_is_tracked_alike() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    let captures = common::captures();
    for (id, source) in [StepSource::Message, StepSource::Psn, StepSource::Imm, StepSource::UdpSport].iter().enumerate()
    {
        let mut known = 0;
        for name in &captures {
            let frames = common::frames(name);
            let jobs = twins.jobs_of(&frames, *source, id as u32 * 100);
            for frame in frames.iter().filter(|frame| frame.len() >= 14) {
                known += u32::from(twins.feed(frame).bridged.step == Step::Data);
            }
            twins.check_everything();
            jobs.iter().for_each(|job| twins.remove_job(*job));
        }
        assert!(known > 1000, "the captures hold ring traffic: {known} packets");
    }
}

#[test]
fn a_frame_without_a_socket_or_room_for_metadata_is_dropped_and_counted() {
    let _turn = turn();
    let Some(bench) = bench() else { return };
    let frame = Packet::default().bytes();
    let run = bench.run(&[0; 212], &frame).expect("the kernel takes the frame");
    assert_eq!((run.verdict, run.metadata), (DROP, None));
    bench.unplug().expect("the map takes it");
    let run = bench.run(&[], &frame).expect("the kernel takes the frame");
    assert_eq!((run.verdict, run.metadata), (DROP, None));
    let stats = bench.kernel.stats().expect("counters are readable");
    assert_eq!(stats.redirected, 0);
    assert_eq!(stats.drops, [(DropReason::NoSocket, 1), (DropReason::NoHeadroom, 1)]);
    assert_eq!(stats.outcomes, Default::default(), "a frame that is dropped is not tracked");
}

#[test]
fn a_full_flow_table_tracks_no_new_flow_and_aged_slots_come_back_in_order() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    twins.add_job(&job(1));
    let new_flow = |qpn| Packet { dest_qpn: qpn, ..Packet::default() }.bytes();
    for qpn in 0..16384 {
        twins.feed(&new_flow(qpn));
    }
    assert_eq!(twins.symphony.outcomes().flows_full, 0);
    twins.feed(&new_flow(16384));
    assert_eq!(twins.symphony.outcomes().flows_full, 1);
    assert_eq!(twins.feed(&new_flow(7)).bridged.flow, 7, "a known flow still is one");
    twins.check_everything();

    assert_eq!(twins.age(Duration::from_secs(59)), 0);
    assert_eq!(twins.age(Duration::from_secs(61)), 16384);
    twins.check_everything();
    assert_eq!(twins.feed(&new_flow(99)).bridged.flow, 0, "the slot that was given back first");
    twins.check_everything();
}

#[test]
fn flows_are_told_apart_where_a_hint_leads_to_another_flows_slot() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    twins.add_job(&job(1));
    // Scattered and many, so that several have one hint.
    let qpns: Vec<u32> = (0..16384u32).map(|n| n.wrapping_mul(0x9e37_79b1) >> 8).collect();
    let feed = |twins: &mut Twins, qpns: &mut dyn Iterator<Item = &u32>, psn| {
        for &dest_qpn in qpns {
            twins.feed(&Packet { dest_qpn, psn, ..Packet::default() }.bytes());
        }
        twins.check_everything();
    };
    feed(&mut twins, &mut qpns.iter(), 0);
    feed(&mut twins, &mut qpns.iter().rev(), 1);
    assert_eq!(twins.symphony.outcomes().in_order, 2 * 16384);

    // All slots go to other flows than before, while the hints are of old.
    assert_eq!(twins.age(Duration::from_secs(61)), 16384);
    feed(&mut twins, &mut qpns.iter().rev(), 0);
    feed(&mut twins, &mut qpns.iter(), 1);
    assert_eq!(twins.symphony.outcomes().in_order, 4 * 16384);
}

#[test]
fn flows_that_share_a_hint_are_told_apart_by_every_part_of_their_key() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    const JOBS: u32 = 500; // of each kind
    const QUEUE_PAIRS: u32 = 8;
    let here = Ipv6Addr::from(0xfd00_u128 << 112 | 1);
    // Rings of two that differ in one half of one address, scattered: some of their flows share a hint by each half.
    let scattered = |n: u32| u128::from(n.wrapping_mul(0x85eb_ca6b));
    let there = |n: u32| {
        let shift = if n < JOBS { 16 } else { 80 };
        Ipv6Addr::from((0xfd01_u128 << 112 | 2) + (scattered(n) << shift))
    };
    for n in 0..2 * JOBS {
        twins.add_job(&Job { ring: vec![here.into(), there(n).into()], ..job(n) });
    }
    for dest_qpn in 0..QUEUE_PAIRS {
        for n in 0..2 * JOBS {
            for (src, dst) in [(here, there(n)), (there(n), here)] {
                twins.feed(&Packet { src: src.into(), dst: dst.into(), dest_qpn, ..Packet::default() }.bytes());
            }
        }
    }
    twins.check_everything();
    assert_eq!(twins.bench.kernel.flows().len(), (4 * JOBS * QUEUE_PAIRS) as usize);
}

#[test]
fn generations_wrap_past_those_of_unarmed_jobs() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    let restless = Job { idle_ns: 1024, ..job(1) };
    let slot = twins.add_job(&restless);
    let mut wrapped = false;
    let mut before = 0;
    for n in 0..80_000 {
        twins.feed(&Packet { psn: n, ..Packet::default() }.bytes());
        let generation = twins.symphony.job_state(slot).activity.generation;
        wrapped |= generation < before;
        assert!(!wrapped || generation > UNARMED);
        before = generation;
    }
    assert!(wrapped, "a packet takes longer than a tick: {before}");
}

#[test]
fn a_new_flow_that_comes_in_on_several_cpus_at_once_gets_one_slot() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    const FLOWS: u32 = 4000;
    twins.add_job(&job(1));
    let bench: &Bench = &twins.bench;
    let feed =
        |qpn| bench.run(&[], &Packet { dest_qpn: qpn, ..Packet::default() }.bytes()).expect("it takes the frame");
    let come = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for qpn in 0..FLOWS {
                    come.fetch_add(1, Relaxed);
                    while come.load(Relaxed) < 2 * (qpn + 1) {
                        std::hint::spin_loop();
                    }
                    feed(qpn);
                }
            });
        }
    });
    let flows = bench.kernel.flows();
    assert_eq!(flows.len(), FLOWS as usize);
    assert!(flows.iter().all(|flow| flow.dest_qpn < FLOWS && flow.last_tick != 0));

    // No slot was lost on the way.
    let full = || bench.kernel.stats().expect("counters are readable").outcomes.flows_full;
    (FLOWS..16384).for_each(|qpn| drop(feed(qpn)));
    assert_eq!((bench.kernel.flows().len(), full()), (16384, 0));
    feed(16384);
    assert_eq!(full(), 1);
}

#[test]
fn a_flow_is_never_seen_without_its_key_and_the_time_of_its_packet() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    const FLOWS: u32 = 16384;
    for id in 0..16 {
        let slot = twins.add_job(&job(id));
        let bench: &Bench = &twins.bench;
        std::thread::scope(|scope| {
            let feeder = scope.spawn(|| {
                for dest_qpn in 1..=FLOWS {
                    bench.run(&[], &Packet { dest_qpn, ..Packet::default() }.bytes()).expect("it takes the frame");
                }
            });
            while !feeder.is_finished() {
                for flow in bench.kernel.flows() {
                    assert!(flow.last_tick != 0 && flow.dest_qpn != 0 && flow.job == slot, "{flow:?}");
                }
            }
        });
        assert_eq!(bench.kernel.flows().len(), FLOWS as usize);
        twins.remove_job(id);
    }
}

#[test]
fn flows_of_one_job_on_several_cpus_lose_no_packet_and_leave_a_minimum_with_an_owner() {
    let _turn = turn();
    let Some(mut twins) = Twins::new() else { return };
    const PACKETS: u32 = 20_000;
    let slot = twins.add_job(&Job { idle_ns: IDLE_NEVER_NS, ..job(1) });
    let bench: &Bench = &twins.bench;
    std::thread::scope(|scope| {
        for cpu in 0..4u32 {
            scope.spawn(move || {
                for psn in 0..PACKETS {
                    let packet = Packet { dest_qpn: cpu, psn, opcode: 0x09, ..Packet::default() };
                    bench.run(&[], &packet.bytes()).expect("the kernel takes the frame");
                }
            });
        }
    });
    let flows = bench.kernel.flows();
    assert_eq!(flows.len(), 4);
    for flow in &flows {
        assert_eq!(flow.state.count.packets, PACKETS);
        assert_eq!(flow.state.steps.steps_done, PACKETS);
    }
    let owner = bench.kernel.job_state(slot).expect("in range").minimum.owner;
    assert!(owner <= 4, "{owner}");
    let stats = bench.kernel.stats().expect("counters are readable");
    assert_eq!(stats.outcomes.in_order, u64::from(4 * PACKETS));
    println!("compare-and-swap lost: {}", stats.cas_lost);
}
