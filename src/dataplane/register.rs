//! Stateful memory with a Tofino's rules.

use super::function::Cx;
use super::trace::{Event, Tracer};

/// A cell of two 32-bit words. As a number, the second word is the high one.
macro_rules! pair {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident: u32, $(#[$second_doc:meta])* $second:ident: u32, }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[$first_doc])*
            pub $first: u32,
            $(#[$second_doc])*
            pub $second: u32,
        }

        impl From<$name> for u64 {
            fn from(cell: $name) -> u64 {
                u64::from(cell.$second) << 32 | u64::from(cell.$first)
            }
        }
    };
}
pub(crate) use pair;

/// The stateful ALU of a register, which lives in one stage: a cell is at most two 32-bit words, and a packet pass reads,
/// modifies and writes at most one cell once (one RegisterAction a pass). Debug builds panic where a stage breaks this.
///
/// It does not hold the cells: where several registers have one index, their cells of one index lie best side by side.
#[derive(Clone, Debug)]
pub struct StatefulAlu {
    name: &'static str,
    #[cfg(debug_assertions)]
    last_pass: u64,
}

impl StatefulAlu {
    /// That of the register `name`.
    pub const fn new(name: &'static str) -> Self {
        StatefulAlu {
            name,
            #[cfg(debug_assertions)]
            last_pass: u64::MAX,
        }
    }

    /// The one read-modify-write of this pass: `action` gets the register's cell number `index` and returns what goes into
    /// the packet.
    ///
    /// # Panics
    /// In debug builds, on a second access in one pass.
    #[inline]
    pub fn execute<T: Copy + Into<u64>, R, Tr: Tracer>(
        &mut self,
        cx: &mut Cx<'_, Tr>,
        index: usize,
        cell: &mut T,
        action: impl FnOnce(&mut T) -> R,
    ) -> R {
        const { assert!(size_of::<T>() <= 8, "a register cell is at most two 32-bit words") }
        #[cfg(debug_assertions)]
        {
            assert_ne!(self.last_pass, cx.pass, "register {} accessed twice in one pass", self.name);
            self.last_pass = cx.pass;
        }
        let old = *cell;
        let result = action(cell);
        if Tr::ENABLED {
            let new = *cell;
            cx.trace.event(Event::Register { name: self.name, index: index as u32, old: old.into(), new: new.into() });
        }
        result
    }
}

/// A register array with its stateful ALU.
#[derive(Clone, Debug)]
pub struct Register<T> {
    alu: StatefulAlu,
    cells: Vec<T>,
}

impl<T: Copy + Default + Into<u64>> Register<T> {
    /// `len` cells of `T::default()`.
    pub fn new(name: &'static str, len: usize) -> Self {
        Register { alu: StatefulAlu::new(name), cells: vec![T::default(); len] }
    }

    /// As [`StatefulAlu::execute`], on a cell of its own.
    ///
    /// # Panics
    /// When `index` is out of range; in debug builds also on a second access in one pass.
    #[inline]
    pub fn execute<R, Tr: Tracer>(&mut self, cx: &mut Cx<'_, Tr>, index: usize, action: impl FnOnce(&mut T) -> R) -> R {
        self.alu.execute(cx, index, &mut self.cells[index], action)
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
