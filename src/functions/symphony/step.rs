//! Track, part two: which step of its ring a flow is in. Each action is a pure function on one register cell.
//!
//! Cells hold the job's generation in 16 bits. Where it differs, the job's counters have restarted and the cell starts
//! over; that is how all flows of a job restart together without a loop over them.

use super::compiled::CompiledJob;
use super::config::StepSource;
use crate::dataplane::Roce;

/// What a flow's messages have shown it to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// No message has ended yet.
    #[default]
    Unknown = 0,
    /// A message ended with an immediate.
    Ring = 1,
    /// Messages end without one: clear-to-send, control, or the first half of a message that adaptive routing split.
    Plain = 2,
}

/// Register `requests`: with-immediate messages of the step in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestsCell {
    /// Generation that `requests` counts in.
    pub generation: u16,
    /// With-immediate ends since the last step's end.
    pub requests: u16,
    /// Outlives generations.
    pub kind: Kind,
}

impl From<RequestsCell> for u64 {
    fn from(cell: RequestsCell) -> u64 {
        (cell.kind as u64) << 32 | u64::from(cell.requests) << 16 | u64::from(cell.generation)
    }
}

/// What register `requests` says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The packet is ring traffic.
    pub takes_part: bool,
    /// The flow was taken for ring traffic until now, and is not.
    pub withdraw: bool,
    /// The packet ends a with-immediate message, for the first time.
    pub end: bool,
    /// It ends a step, as far as messages tell ([`StepSource::Psn`] is told by packets).
    pub step_end: bool,
}

/// One data packet's action on register `requests`.
#[inline]
pub fn requests_action(
    cell: &mut RequestsCell,
    job: &CompiledJob,
    generation: u16,
    roce: &Roce,
    advance: bool,
) -> Request {
    if cell.generation != generation {
        cell.generation = generation;
        cell.requests = 0;
    }
    let with_immediate = roce.opcode.is_end_with_immediate();
    let plain_end = roce.opcode.is_message_end() && !with_immediate;
    let only_plain = roce.opcode.is_only() && !with_immediate;
    let takes_part = !only_plain
        && match cell.kind {
            Kind::Ring => true,
            Kind::Unknown => !plain_end,
            Kind::Plain => with_immediate,
        };
    let withdraw = advance && plain_end && !only_plain && cell.kind == Kind::Unknown;
    let end = advance && with_immediate;
    if end {
        cell.kind = Kind::Ring;
    } else if withdraw {
        cell.kind = Kind::Plain;
    }
    let step_end = end
        && match job.step_source {
            StepSource::Message | StepSource::UdpSport => {
                cell.requests = cell.requests.wrapping_add(1);
                let last = cell.requests >= job.requests_per_step;
                if last {
                    cell.requests = 0;
                }
                last
            }
            StepSource::Imm => roce.immediate.wrapping_add(1) & (u32::from(job.requests_per_step) - 1) == 0,
            StepSource::Psn => false,
        };
    Request { takes_part, withdraw, end, step_end }
}

/// Register `packets`: data packets of the step in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketsCell {
    /// In order, since the last step's end.
    pub packets: u32,
    /// Generation that `packets` counts in.
    pub generation: u16,
    /// Step tag that `packets` counts in; [`StepSource::UdpSport`] only.
    pub tag: u16,
}

impl From<PacketsCell> for u64 {
    fn from(cell: PacketsCell) -> u64 {
        u64::from(cell.tag) << 48 | u64::from(cell.generation) << 32 | u64::from(cell.packets)
    }
}

/// The step tag of a packet: the low 14 bits of the UDP source port, as in the paper's prototype.
#[inline]
pub fn tag(job: &CompiledJob, sport: u16) -> u16 {
    if job.step_source == StepSource::UdpSport { sport & TAG_MASK } else { 0 }
}

const TAG_MASK: u16 = 0x3fff;

/// One packet's action on register `packets`: packets in the step before this one, and whether it ends the step.
#[inline]
pub fn packets_action(
    cell: &mut PacketsCell,
    job: &CompiledJob,
    generation: u16,
    tag: u16,
    advance: bool,
    request: &Request,
) -> (u32, bool) {
    let tag = if advance { tag } else { cell.tag };
    if (cell.generation, cell.tag) != (generation, tag) {
        *cell = PacketsCell { packets: 0, generation, tag };
    }
    let before = cell.packets;
    let mut step_end = request.step_end;
    if advance && request.takes_part {
        let after = before.saturating_add(1);
        step_end |= job.step_source == StepSource::Psn && after >= job.packets_per_step;
        cell.packets = if step_end { 0 } else { after };
    }
    (before, step_end)
}

/// Register `steps`: completed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepsCell {
    /// Completed steps; runs on over collectives.
    pub steps_done: u32,
    /// Generation that it counts in.
    pub generation: u16,
    /// Completed steps of the collective in hand.
    pub in_collective: u16,
}

impl From<StepsCell> for u64 {
    fn from(cell: StepsCell) -> u64 {
        u64::from(cell.in_collective) << 48 | u64::from(cell.generation) << 32 | u64::from(cell.steps_done)
    }
}

/// What a packet is to its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEvent {
    /// It moves its flow on.
    pub advance: bool,
    /// It ends a with-immediate message.
    pub end: bool,
    /// It ends the step.
    pub step_end: bool,
}

/// One packet's action on register `steps`: steps completed before it, and whether it is the last of its collective.
#[inline]
pub fn steps_action(
    cell: &mut StepsCell,
    job: &CompiledJob,
    generation: u16,
    tag: u16,
    immediate: u32,
    event: StepEvent,
) -> (u32, bool) {
    let source = job.step_source;
    if cell.generation != generation {
        cell.generation = generation;
        cell.in_collective = 0;
        match source {
            StepSource::Message | StepSource::Psn => cell.steps_done = 0,
            StepSource::UdpSport => cell.steps_done = tag.into(),
            StepSource::Imm => {} // the immediate counts on, whatever the ring does
        }
    }
    let mut before = cell.steps_done;
    let mut delta = 0;
    match source {
        StepSource::Message | StepSource::Psn => {
            if event.step_end {
                delta = 1;
                cell.steps_done = before.wrapping_add(1);
            }
        }
        StepSource::Imm => {
            if event.end {
                cell.steps_done = immediate.wrapping_add(1) >> job.requests_per_step.trailing_zeros();
            }
            if event.step_end {
                // A collective's first step may follow a jump of the counter.
                delta = if cell.in_collective == 0 { 1 } else { cell.steps_done.wrapping_sub(before) as i32 };
            }
        }
        StepSource::UdpSport => {
            if event.advance {
                delta = sign_extend(tag.wrapping_sub(before as u16));
                before = before.wrapping_add_signed(delta);
                cell.steps_done = before;
            }
        }
    }
    if delta == 0 && !event.step_end {
        return (before, false); // as for most packets
    }
    let steps = i32::from(cell.in_collective).saturating_add(delta).clamp(0, u16::MAX.into()) as u32;
    let (steps, whole) = within(steps, job.steps_per_collective);
    cell.in_collective = steps as u16;
    // A tag names the step in hand, the other sources tell of completed ones.
    let last =
        event.step_end && if source == StepSource::UdpSport { steps + 1 == job.steps_per_collective } else { whole };
    (before, last)
}

/// `steps` less one collective where it has come so far; what is left over then is of no use and dropped.
#[inline]
fn within(steps: u32, steps_per_collective: u32) -> (u32, bool) {
    match steps.checked_sub(steps_per_collective) {
        None => (steps, false),
        Some(rest) if rest >= steps_per_collective => (0, true),
        Some(rest) => (rest, true),
    }
}

/// A difference of two 14-bit tags.
#[inline]
fn sign_extend(difference: u16) -> i32 {
    i32::from((difference << 2) as i16 >> 2)
}

/// Progress in 1/256 steps: `steps` completed ones, and `packets` of the step in hand where its size is known.
#[inline]
pub fn progress(job: &CompiledJob, steps: u32, packets: u32) -> u32 {
    let packets = u64::from(packets.min(job.packets_per_step));
    let fraction = ((packets * 256 * u64::from(job.reciprocal)) >> 32).min(255);
    steps.wrapping_mul(256).wrapping_add(fraction as u32)
}
