//! Stage `boundary`: which rule a round goes by, and the swap of rules.
//!
//! A job has two banks of rules. The `bank` register says which is in force and from which round on; while a swap is armed,
//! rounds from its boundary on go by the other. ARM compares the boundary with the highest round pushed so far, which the
//! register before it holds, in one pass: nobody can have used a label that changes its rule.

use crate::dataplane::{Cx, Register, Tracer, pair};
use crate::wire::aggregation::{Align, Code, Control};

pair! {
    /// Register `boundary`.
    BoundaryCell {
        /// B: first round of the other bank.
        boundary: u32,
        /// Number of the latest swap, then a bit each: workers walk to B; armed.
        tag: u32,
    }
}

pair! {
    /// Register `bank`.
    BankCell {
        /// First round of the bank in force. Rounds before it are over.
        start: u32,
        /// The bank in force: 0 or 1.
        bank: u32,
    }
}

const ARMED: u32 = 1;
const DRAIN: u32 = 2;
const ID_SHIFT: u32 = 2;

/// Swaps are numbered below this.
pub const SWAP_ID_LIMIT: u32 = 1 << 30;

impl BoundaryCell {
    fn id(self) -> u32 {
        self.tag >> ID_SHIFT
    }

    fn is_armed(self) -> bool {
        self.tag & ARMED != 0
    }
}

/// ARM. Says whether the swap is armed now and was not before, too.
pub fn arm_action(cell: &mut BoundaryCell, max_round: u32, swap: &Control, guard: bool) -> (Code, bool) {
    if cell.is_armed() {
        return (if cell.id() == swap.swap_id { Code::Done } else { Code::Busy }, false);
    }
    if swap.swap_id <= cell.id() || swap.swap_id >= SWAP_ID_LIMIT {
        return (Code::Unknown, false);
    }
    if swap.boundary <= max_round && guard {
        return (Code::Nak, false);
    }
    let drain = if swap.align == Align::Drain { DRAIN } else { 0 };
    *cell = BoundaryCell { boundary: swap.boundary, tag: swap.swap_id << ID_SHIFT | drain | ARMED };
    (Code::Done, true)
}

/// ABORT. Once it is taken back, its number is used up.
pub fn abort_action(cell: &mut BoundaryCell, max_round: u32, swap_id: u32) -> Code {
    match (cell.id() == swap_id, cell.is_armed()) {
        (false, _) => Code::Unknown,
        (true, false) => Code::Done,
        (true, true) if max_round >= cell.boundary => Code::TooLate,
        (true, true) => {
            cell.tag &= !ARMED;
            Code::Done
        }
    }
}

/// COMPLETE. Says whether this packet did it, too. That all members are past the boundary is for the controller to know:
/// the register that says so comes later in the pass.
pub fn complete_action(cell: &mut BoundaryCell, swap_id: u32) -> (Code, bool) {
    if cell.id() != swap_id {
        return (Code::Unknown, false);
    }
    let armed = cell.is_armed();
    cell.tag &= !ARMED;
    (Code::Done, armed)
}

/// An armed swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Armed {
    /// First round of the other bank.
    pub(super) boundary: u32,
    /// Workers that are behind are told to go on from there.
    pub(super) jump: bool,
    /// A bit for each worker that has pushed for the boundary or beyond.
    pub(super) reached: u32,
}

/// Which rule is for which round, as a pass finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// First round of the bank in force.
    pub(super) start: u32,
    /// The bank in force.
    pub(super) bank: usize,
    /// The swap under way.
    pub(super) armed: Option<Armed>,
}

impl Generation {
    fn new(cell: BoundaryCell, reached: u32, bank: BankCell) -> Self {
        let jump = cell.tag & DRAIN == 0;
        Generation {
            start: bank.start,
            bank: bank.bank as usize & 1,
            armed: cell.is_armed().then_some(Armed { boundary: cell.boundary, jump, reached }),
        }
    }

    /// The bank that a round goes by.
    pub(super) fn bank_of(&self, round: u32) -> usize {
        self.bank ^ usize::from(self.armed.is_some_and(|armed| round >= armed.boundary))
    }

    /// First round of the rule that a round goes by.
    pub(super) fn start_of(&self, round: u32) -> u32 {
        self.armed.filter(|armed| round >= armed.boundary).map_or(self.start, |armed| armed.boundary)
    }
}

/// The stage's registers, of one cell each a job.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    max_round: Register<u32>,
    boundary: Register<BoundaryCell>,
    reached: Register<u32>,
    bank: Register<BankCell>,
}

impl Boundary {
    /// Bank 0 is in force from round 1 on.
    pub(super) fn new() -> Self {
        let mut bank = Register::new("bank", 1);
        bank.poke(0, BankCell { start: 1, bank: 0 });
        Boundary {
            max_round: Register::new("max_round", 1),
            boundary: Register::new("boundary", 1),
            reached: Register::new("reached", 1),
            bank,
        }
    }

    /// A contribution's pass.
    #[inline]
    pub(super) fn push<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, round: u32, bit: u32) -> Generation {
        self.max_round.execute(cx, 0, |max| *max = round.max(*max));
        let cell = self.boundary.execute(cx, 0, |cell| *cell);
        let reaches = cell.is_armed() && round >= cell.boundary;
        let reached = self.reached.execute(cx, 0, |mask| {
            *mask |= if reaches { bit } else { 0 };
            *mask
        });
        Generation::new(cell, reached, self.bank.execute(cx, 0, |cell| *cell))
    }

    /// The pass of a packet that changes nothing.
    pub(super) fn look<T: Tracer>(&mut self, cx: &mut Cx<'_, T>) -> Generation {
        let cell = self.boundary.execute(cx, 0, |cell| *cell);
        let reached = self.reached.execute(cx, 0, |mask| *mask);
        Generation::new(cell, reached, self.bank.execute(cx, 0, |cell| *cell))
    }

    /// The pass of ARM: how it fared, the highest round pushed so far, and the boundary in force.
    pub(super) fn arm<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, swap: &Control, guard: bool) -> (Code, u32, u32) {
        let max_round = self.max_round.execute(cx, 0, |max| *max);
        let (code, fresh, boundary) = self.boundary.execute(cx, 0, |cell| {
            let (code, fresh) = arm_action(cell, max_round, swap, guard);
            (code, fresh, cell.boundary)
        });
        self.reached.execute(cx, 0, |mask| *mask &= if fresh { 0 } else { u32::MAX });
        (code, max_round, boundary)
    }

    /// The pass of ABORT.
    pub(super) fn abort<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, swap_id: u32) -> (Code, u32, u32) {
        let max_round = self.max_round.execute(cx, 0, |max| *max);
        self.boundary.execute(cx, 0, |cell| (abort_action(cell, max_round, swap_id), max_round, cell.boundary))
    }

    /// The pass of COMPLETE.
    pub(super) fn complete<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, swap_id: u32) -> (Code, u32, u32) {
        let max_round = self.max_round.execute(cx, 0, |max| *max);
        let (code, done, boundary) = self.boundary.execute(cx, 0, |cell| {
            let (code, done) = complete_action(cell, swap_id);
            (code, done, cell.boundary)
        });
        self.bank.execute(cx, 0, |cell| {
            if done {
                *cell = BankCell { start: boundary, bank: cell.bank ^ 1 };
            }
        });
        (code, max_round, boundary)
    }

    /// As the control plane reads it.
    pub(super) fn peek(&self) -> Generation {
        let cell = |register: &Register<u32>| register.peek(0).unwrap_or_default();
        let (boundary, bank) = (self.boundary.peek(0).unwrap_or_default(), self.bank.peek(0).unwrap_or_default());
        Generation::new(boundary, cell(&self.reached), bank)
    }

    /// The highest round pushed so far, as the control plane reads it.
    pub(super) fn max_round(&self) -> u32 {
        self.max_round.peek(0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(swap_id: u32, boundary: u32) -> Control {
        Control { swap_id, boundary, from_version: 1, to_version: 2, align: Align::Jump, code: Code::Done }
    }

    #[test]
    fn a_boundary_that_somebody_has_pushed_for_is_refused() {
        let mut cell = BoundaryCell::default();
        assert_eq!(arm_action(&mut cell, 10, &swap(1, 10), true), (Code::Nak, false));
        assert_eq!(cell, BoundaryCell::default());
        assert_eq!(arm_action(&mut cell, 10, &swap(1, 11), true), (Code::Done, true));
        assert_eq!(cell, BoundaryCell { boundary: 11, tag: 0b101 });
    }

    #[test]
    fn copies_of_a_request_are_answered_alike_and_do_nothing() {
        let mut cell = BoundaryCell::default();
        arm_action(&mut cell, 10, &swap(1, 12), true);
        let armed = cell;
        assert_eq!(arm_action(&mut cell, 15, &swap(1, 12), true), (Code::Done, false));
        assert_eq!(arm_action(&mut cell, 15, &swap(1, 11), true), (Code::Done, false), "a NAKed copy comes late");
        assert_eq!((arm_action(&mut cell, 15, &swap(2, 20), true), cell), ((Code::Busy, false), armed));
        assert_eq!(complete_action(&mut cell, 1), (Code::Done, true));
        assert_eq!(complete_action(&mut cell, 1), (Code::Done, false));
        assert_eq!(complete_action(&mut cell, 2), (Code::Unknown, false));
        assert_eq!(arm_action(&mut cell, 15, &swap(1, 99), true), (Code::Unknown, false), "its turn is over");
        assert_eq!(arm_action(&mut cell, 15, &swap(2, 16), true), (Code::Done, true));
    }

    #[test]
    fn a_swap_is_taken_back_until_somebody_is_past_its_boundary() {
        let mut cell = BoundaryCell::default();
        assert_eq!(abort_action(&mut cell, 0, 1), Code::Unknown);
        arm_action(&mut cell, 10, &swap(1, 12), true);
        assert_eq!(abort_action(&mut cell, 12, 1), Code::TooLate);
        assert_eq!(abort_action(&mut cell, 11, 2), Code::Unknown);
        assert_eq!(abort_action(&mut cell, 11, 1), Code::Done);
        assert_eq!(abort_action(&mut cell, 99, 1), Code::Done, "a copy");
        assert_eq!(arm_action(&mut cell, 11, &swap(1, 12), true), (Code::Unknown, false), "a copy that comes late");
    }

    #[test]
    fn rounds_go_by_the_bank_in_force_until_the_boundary_and_by_the_other_from_there() {
        let bank = BankCell { start: 5, bank: 1 };
        let calm = Generation::new(BoundaryCell { boundary: 12, tag: 0b100 }, 3, bank);
        assert_eq!((calm.bank_of(11), calm.bank_of(12), calm.start_of(99), calm.armed), (1, 1, 5, None));
        let armed = Generation::new(BoundaryCell { boundary: 12, tag: 0b101 }, 3, bank);
        assert_eq!([5, 11, 12, 13].map(|round| armed.bank_of(round)), [1, 1, 0, 0]);
        assert_eq!([5, 11, 12, 13].map(|round| armed.start_of(round)), [5, 5, 12, 12]);
        assert_eq!(armed.armed, Some(Armed { boundary: 12, jump: true, reached: 3 }));
    }
}
