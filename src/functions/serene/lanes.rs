//! A row of registers that a packet's lanes go through.

use crate::dataplane::{Cx, Event, Tracer};

/// One register a lane, all with the same index: a pass reads, modifies and writes each of them at most once, and always
/// at the same row. Debug builds panic where a stage breaks this.
#[derive(Clone, Debug)]
pub(super) struct LaneRegister {
    name: &'static str,
    lanes: usize,
    cells: Vec<i32>,
    #[cfg(debug_assertions)]
    last_pass: u64,
}

impl LaneRegister {
    /// `rows` rows of `lanes` zeros.
    pub(super) fn new(name: &'static str, rows: usize, lanes: usize) -> Self {
        LaneRegister {
            name,
            lanes,
            cells: vec![0; rows * lanes],
            #[cfg(debug_assertions)]
            last_pass: u64::MAX,
        }
    }

    /// The one read-modify-write of this pass: `action` gets each cell of the row with the packet's lane, and returns what
    /// goes into the packet. The lanes begin at byte `at` of the frame; those that it does not hold are left alone.
    ///
    /// # Panics
    /// In debug builds, on a second access in one pass.
    #[inline]
    pub(super) fn execute<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        row: usize,
        at: usize,
        action: impl Fn(&mut i32, i32) -> i32,
    ) {
        #[cfg(debug_assertions)]
        {
            assert_ne!(self.last_pass, cx.pass, "lane register {} accessed twice in one pass", self.name);
            self.last_pass = cx.pass;
        }
        let Some(cells) = self.cells.get_mut(row * self.lanes..(row + 1) * self.lanes) else { return };
        let first = |cells: &[i32]| cells.first().map_or(0, |cell| u64::from(*cell as u32));
        let old = if T::ENABLED { first(cells) } else { 0 };
        let lanes = cx.frame.bytes_mut().get_mut(at..).unwrap_or_default().as_chunks_mut::<4>().0;
        for (cell, lane) in cells.iter_mut().zip(lanes) {
            *lane = action(cell, i32::from_be_bytes(*lane)).to_be_bytes();
        }
        if T::ENABLED {
            cx.trace.event(Event::Register { name: self.name, index: row as u32, old, new: first(cells) });
        }
    }

    /// A row as the control plane reads it.
    pub(super) fn peek(&self, row: usize) -> Option<&[i32]> {
        self.cells.get(row * self.lanes..(row + 1) * self.lanes)
    }
}
