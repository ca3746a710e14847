//! In its steady state the switch allocates nothing.

#[path = "../bench/common/mod.rs"]
mod common;
#[path = "common/allocations.rs"]
mod counting;

use common::{Rig, forward, symphony};
use counting::allocations;
use symphony::dataplane::Function;

/// Allocations during 100000 packets, and extra marks.
fn steady_state(functions: impl Function, flows: u32) -> (u64, u64) {
    let mut rig = Rig::new(functions, flows, false);
    for _ in 0..10_000 {
        rig.arrive(1);
        rig.process();
    }
    let dropped = rig.switch.counters().conservation.dropped;
    let before = allocations();
    for _ in 0..100_000 {
        rig.arrive(1);
        rig.process();
    }
    let counted = allocations() - before;
    assert!(rig.switch.counters().conservation.holds());
    assert_eq!(rig.switch.counters().conservation.dropped, dropped);
    assert!(rig.switch.counters().marks().red > 0, "RED is at work");
    (counted, rig.switch.counters().marks().symphony)
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(vec![1u8]));
    assert_eq!(allocations() - before, 1);
}

#[test]
fn forwarding_allocates_nothing_per_packet() {
    assert_eq!(steady_state((forward(),), 64), (0, 0));
}

#[test]
fn symphony_allocates_nothing_per_packet_with_4096_flows() {
    let (allocations, extra_marks) = steady_state((symphony(), forward()), 4096);
    assert_eq!(allocations, 0);
    assert!(extra_marks > 0, "Symphony is at work");
}
