//! Stage `store`: the sums. `accumulator` holds what is in an open round under deferred rules, `cumulative` all that was
//! ever made visible, and `frontier` the last round released.

use super::lanes::LaneRegister;
use crate::dataplane::{Cx, Register, Tracer};

/// What a packet does to the sums of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    None,
    /// Its lanes go into the accumulator.
    Accumulate,
    /// Its lanes and the accumulator go into the cumulative sum, which it takes along. The accumulator is zero again.
    Release,
    /// Its lanes go into the cumulative sum, which it takes along.
    Add,
    /// It takes the cumulative sum along.
    Read,
}

/// The stage's registers, by segment.
#[derive(Clone, Debug)]
pub(super) struct Store {
    accumulator: LaneRegister,
    cumulative: LaneRegister,
    frontier: Register<u32>,
}

impl Store {
    pub(super) fn new(segments: usize, lanes: usize) -> Self {
        Store {
            accumulator: LaneRegister::new("accumulator", segments, lanes),
            cumulative: LaneRegister::new("cumulative", segments, lanes),
            frontier: Register::new("frontier", segments),
        }
    }

    /// One pass with the lanes at byte `at` of the frame. `released`: the round that this packet releases. Returns the
    /// frontier, that round included.
    #[inline]
    pub(super) fn pass<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        segment: u32,
        at: usize,
        access: Access,
        released: Option<u32>,
    ) -> u32 {
        let row = segment as usize;
        // Sums wrap, so that their order does not matter.
        match access {
            Access::Accumulate => self.accumulator.execute(cx, row, at, |cell, lane| {
                *cell = cell.wrapping_add(lane);
                lane
            }),
            Access::Release => {
                self.accumulator.execute(cx, row, at, |cell, lane| std::mem::take(cell).wrapping_add(lane));
            }
            Access::None | Access::Add | Access::Read => {}
        }
        match access {
            Access::Release | Access::Add => self.cumulative.execute(cx, row, at, |cell, lane| {
                *cell = cell.wrapping_add(lane);
                *cell
            }),
            Access::Read => self.cumulative.execute(cx, row, at, |cell, _| *cell),
            Access::None | Access::Accumulate => {}
        }
        self.frontier.execute(cx, row, |cell| {
            *cell = released.unwrap_or(0).max(*cell);
            *cell
        })
    }

    /// The sums of a segment as the control plane reads them: open, and cumulative.
    pub(super) fn peek(&self, segment: u32) -> Option<(&[i32], &[i32])> {
        Some((self.accumulator.peek(segment as usize)?, self.cumulative.peek(segment as usize)?))
    }

    /// The last round of a segment that was released, as the control plane reads it.
    pub(super) fn frontier(&self, segment: u32) -> u32 {
        self.frontier.peek(segment as usize).unwrap_or_default()
    }
}
