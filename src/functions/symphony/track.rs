//! Track, part one: what a packet's sequence number says. Each action is a pure function on one register cell.

use crate::wire::Opcode;

use crate::dataplane::Roce;
use crate::dataplane::pair;

/// Set in a word beside a PSN that was really seen.
const VALID: u32 = 1 << 31;
const PSN_MASK: u32 = 0xff_ffff;
/// Half of the serial number space: from here on a difference is negative (`wire.md` 1.6).
const HALF: u32 = 0x80_0000;
const GENERATION_SHIFT: u32 = 24;
const GENERATION_MASK: u32 = 0x7f;

/// A packet's place in its flow, as a go-back-N responder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that was expected, or the flow's first.
    InOrder,
    /// Seen before: a retransmission.
    Old,
    /// Some before it are missing. They will come again, and this one after them.
    Gap,
    /// Not the expected one, but taken as such: the flow is not going to send that one again.
    Resync,
}

impl Order {
    /// Whether the packet moves its flow on.
    pub const fn advances(self) -> bool {
        matches!(self, Order::InOrder | Order::Resync)
    }
}

/// Requests other than data that take PSNs: READ, COMPARE&SWAP, FETCH&ADD.
pub const fn takes_psn_without_data(opcode: Opcode) -> bool {
    matches!(opcode.0, 0x0c | 0x13 | 0x14)
}

/// PSNs that a request takes: one a packet, but a READ takes those of its responses.
#[inline]
fn psns_taken(roce: &Roce, path_mtu_shift: u8) -> u32 {
    if roce.opcode == Opcode::READ_REQUEST { roce.dma_len.div_ceil(1 << path_mtu_shift).max(1) } else { 1 }
}

pair! {
    /// Register `psn`: what comes next.
    PsnCell {
        /// Expected PSN, the low 7 bits of the generation that last sent data, and a valid bit.
        expected: u32,
        /// Tick (the lowest bit set) of the first packet behind a gap; 0 when there is none.
        gap_since: u32,
    }
}

/// One packet's action on register `psn`.
///
/// `generation` is the job's, `None` for requests without data: they are not a sign of life of the ring. A gap is given up
/// after `patience_ticks`; 0: at once.
#[inline]
pub fn psn_action(
    cell: &mut PsnCell,
    roce: &Roce,
    path_mtu_shift: u8,
    generation: Option<u32>,
    tick: u32,
    patience_ticks: u32,
) -> Order {
    let known = cell.expected & VALID != 0;
    let old_generation = cell.expected >> GENERATION_SHIFT & GENERATION_MASK;
    let generation = generation.map_or(old_generation, |generation| generation & GENERATION_MASK);
    let distance = roce.psn.wrapping_sub(cell.expected) & PSN_MASK;
    let order = if !known || distance == 0 {
        Order::InOrder
    } else if distance >= HALF {
        // The job was idle and the flow comes back with an old PSN: its queue pair was made anew.
        if generation != old_generation { Order::Resync } else { Order::Old }
    } else {
        let nobody_resends = roce.opcode.is_uc();
        let waited = tick.wrapping_sub(cell.gap_since) as i32;
        let given_up = patience_ticks == 0 || cell.gap_since != 0 && waited > patience_ticks as i32;
        if nobody_resends || given_up { Order::Resync } else { Order::Gap }
    };
    let expected = if order.advances() {
        cell.gap_since = 0;
        roce.psn.wrapping_add(psns_taken(roce, path_mtu_shift))
    } else {
        if order == Order::Gap && cell.gap_since == 0 {
            cell.gap_since = tick | 1;
        }
        cell.expected
    };
    cell.expected = VALID | generation << GENERATION_SHIFT | expected & PSN_MASK;
    order
}

impl PsnCell {
    /// The PSN that the flow's next packet should have; `None` before its first.
    pub fn expected_psn(self) -> Option<u32> {
        (self.expected & VALID != 0).then_some(self.expected & PSN_MASK)
    }
}

pair! {
    /// Register `newest`: for statistics only.
    NewestCell {
        /// Newest PSN seen and a valid bit.
        newest: u32,
        /// Packets whose PSN was not newer.
        retransmitted: u32,
    }
}

/// One data packet's action on register `newest`.
#[inline]
pub fn newest_action(cell: &mut NewestCell, psn: u32) {
    let distance = psn.wrapping_sub(cell.newest) & PSN_MASK;
    if cell.newest & VALID != 0 && (distance == 0 || distance >= HALF) {
        cell.retransmitted = cell.retransmitted.wrapping_add(1);
    } else {
        cell.newest = psn & PSN_MASK | VALID;
    }
}

pair! {
    /// Register `count`: for statistics only.
    CountCell {
        /// Data packets, retransmissions included.
        packets: u32,
        /// With-immediate message ends, each once.
        messages: u32,
    }
}

/// One data packet's action on register `count`.
#[inline]
pub fn count_action(cell: &mut CountCell, opcode: Opcode, order: Order) {
    cell.packets = cell.packets.wrapping_add(1);
    if order.advances() && opcode.is_end_with_immediate() {
        cell.messages = cell.messages.wrapping_add(1);
    }
}
