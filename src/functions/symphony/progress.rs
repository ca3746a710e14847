//! Progress: how far a job's lagging flow is. Three registers by job, each action a pure function on one cell.

use crate::dataplane::Nanos;
use crate::dataplane::pair;

/// The generation of a job that was just added or switched on. Zeroed cells of flows hold 0, so they never match.
pub const UNARMED: u32 = 1;

pair! {
    /// Register `activity`: when the job last sent data, and how often its counters have restarted.
    ActivityCell {
        /// Of the job's last data packet.
        last_tick: u32,
        /// [`UNARMED`], then counts the restarts: 2..=65535, then 2 again.
        generation: u32,
    }
}

impl ActivityCell {
    /// Whether the job has been idle once since it was added, so that its flows count from a common start.
    pub const fn armed(self) -> bool {
        self.generation > UNARMED
    }
}

/// Elapsed ticks above this are a negative time of up to a second: on the kernel side a packet of another CPU that read the
/// clock later may come first. That is no idle job.
const OVERTAKEN_TICKS: u32 = u32::MAX - (1 << 20);

/// One data packet's action on register `activity`. Returns the cell: generation, and whether the job is armed.
#[inline]
pub fn activity_action(cell: &mut ActivityCell, tick: u32, idle_ticks: u32) -> ActivityCell {
    let elapsed = tick.wrapping_sub(cell.last_tick);
    if elapsed >= idle_ticks && elapsed <= OVERTAKEN_TICKS {
        cell.generation = if cell.generation >= u16::MAX.into() { UNARMED + 1 } else { cell.generation + 1 };
    }
    cell.last_tick = tick;
    *cell
}

pair! {
    /// Register `epoch`: E.
    EpochCell {
        /// Of the job's last packet that took part.
        epoch: u32,
        /// Of that packet.
        generation: u32,
    }
}

/// One packet's action on register `epoch`: whether the job's minimum is stale.
#[inline]
pub fn epoch_action(cell: &mut EpochCell, now: Nanos, epoch_shift: u8, generation: u32) -> bool {
    let new = EpochCell { epoch: (now >> epoch_shift) as u32, generation };
    std::mem::replace(cell, new) != new
}

pair! {
    /// Register `minimum`: M.
    MinimumCell {
        /// Progress of the lagging flow in 1/256 steps.
        min: u32,
        /// Whose it is: flow slot + 1; 0 nobody's, then the next packet takes over.
        owner: u32,
    }
}

/// One packet's action on register `minimum`: its lead in 1/256 steps, never negative.
///
/// The owner's own progress always replaces the minimum, so no flow is ever ahead of its own past.
#[inline]
pub fn minimum_action(cell: &mut MinimumCell, flow: u32, progress: u32, new_epoch: bool, last: bool) -> i32 {
    let lead = progress.wrapping_sub(cell.min) as i32;
    if new_epoch || cell.owner == 0 || lead < 0 || cell.owner == flow + 1 {
        *cell = MinimumCell { min: progress, owner: if last { 0 } else { flow + 1 } };
        return 0;
    }
    lead
}

/// The action on register `minimum` of a flow that turned out not to be ring traffic.
#[inline]
pub fn withdraw_action(cell: &mut MinimumCell, flow: u32, new_epoch: bool) {
    if new_epoch || cell.owner == flow + 1 {
        cell.owner = 0;
    }
}
