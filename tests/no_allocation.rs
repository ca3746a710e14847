//! In its steady state the switch allocates nothing.

#![allow(unsafe_code)] // an allocator that counts has to be one

#[path = "../bench/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Rig, forward, symphony};
use symphony::dataplane::Function;

struct Counting;

thread_local! {
    /// By thread: the test harness allocates on threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is handed to `System`; the counter is a plain cell that does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `alloc`'s contract, which is `System`'s too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations during 100000 packets, and extra marks.
fn steady_state(functions: impl Function, flows: u32) -> (u64, u64) {
    let mut rig = Rig::new(functions, flows);
    for _ in 0..10_000 {
        rig.step();
    }
    let dropped = rig.switch.counters().conservation.dropped;
    let before = ALLOCATIONS.get();
    for _ in 0..100_000 {
        rig.step();
    }
    let counted = ALLOCATIONS.get() - before;
    assert!(rig.switch.counters().conservation.holds());
    assert_eq!(rig.switch.counters().conservation.dropped, dropped);
    assert!(rig.switch.counters().marks().red > 0, "RED is at work");
    (counted, rig.switch.counters().marks().symphony)
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1u8]));
    assert_eq!(ALLOCATIONS.get() - before, 1);
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
