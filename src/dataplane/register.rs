//! Stateful memory with a Tofino's rules.

use super::function::Cx;
use super::trace::{Event, Tracer};

/// A register array: it lives in one stage, a cell is at most two 32-bit words (`T` is at most 8 bytes), and a packet
/// pass reads, modifies and writes at most one cell once (`wire.md`'s stateful ALU: one RegisterAction a pass).
/// Debug builds panic where a stage breaks this.
#[derive(Clone, Debug)]
pub struct Register<T> {
    name: &'static str,
    cells: Vec<T>,
    #[cfg(debug_assertions)]
    last_pass: u64,
}

impl<T: Copy + Default + Into<u64>> Register<T> {
    const FITS: () = assert!(size_of::<T>() <= 8, "a register cell is at most two 32-bit words");

    /// `len` cells of `T::default()`.
    pub fn new(name: &'static str, len: usize) -> Self {
        let () = Self::FITS;
        Register {
            name,
            cells: vec![T::default(); len],
            #[cfg(debug_assertions)]
            last_pass: u64::MAX,
        }
    }

    /// The one read-modify-write of this pass: `action` gets the cell and returns what goes into the packet.
    ///
    /// # Panics
    /// When `index` is out of range; in debug builds also on a second access in one pass.
    #[inline]
    pub fn execute<R, Tr: Tracer>(&mut self, cx: &mut Cx<'_, Tr>, index: usize, action: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        {
            assert_ne!(self.last_pass, cx.pass, "register {} accessed twice in one pass", self.name);
            self.last_pass = cx.pass;
        }
        let cell = &mut self.cells[index];
        let old = *cell;
        let result = action(cell);
        if Tr::ENABLED {
            let new = *cell;
            cx.trace.event(Event::Register { name: self.name, index: index as u32, old: old.into(), new: new.into() });
        }
        result
    }

    /// A cell as the control plane reads it.
    pub fn peek(&self, index: usize) -> Option<T> {
        self.cells.get(index).copied()
    }

    /// A cell as the control plane writes it, between packets. Out of range is ignored.
    pub fn poke(&mut self, index: usize, value: T) {
        if let Some(cell) = self.cells.get_mut(index) {
            *cell = value;
        }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether it has no cells.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}
