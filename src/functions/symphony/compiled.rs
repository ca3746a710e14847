//! A job in the form that the stages use: what the control plane works out once so that no packet has to. The kernel
//! side gets the same numbers as `struct job_config` (`ebpf/abi.h`).

use std::net::IpAddr;

use super::{Job, Parameters, StepSource};
use crate::dataplane::{IpAddress, Nanos};

/// Time in ticks of 1024 ns, modulo 2^32. Compared by wrapping subtraction.
pub const fn tick(now: Nanos) -> u32 {
    (now >> TICK_SHIFT) as u32
}

/// 2^10 ns a tick: what a 32-bit register holds of a Tofino's 48-bit timestamp.
const TICK_SHIFT: u32 = 10;

/// A gap in a flow's PSNs is given up after 2^4 epochs.
pub const PATIENCE_SHIFT: u32 = 4;

/// `ns` in whole ticks, saturating.
pub(super) fn ticks(ns: Nanos) -> u32 {
    u32::try_from(ns >> TICK_SHIFT).unwrap_or(u32::MAX)
}

/// One job's constants. The default is that of a slot without a job: disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledJob {
    /// Job and function are both on.
    pub enabled: bool,
    /// Its steps are long enough for marks to help, or of unknown length.
    pub may_mark: bool,
    /// Where steps come from.
    pub step_source: StepSource,
    /// An epoch is 2^`epoch_shift` ns; 10..=40.
    pub epoch_shift: u8,
    /// The path MTU is 2^`path_mtu_shift` bytes; 8..=12.
    pub path_mtu_shift: u8,
    /// With-immediate messages a step.
    pub requests_per_step: u16,
    /// Steps a collective.
    pub steps_per_collective: u32,
    /// Data packets a step; 0 when not known.
    pub packets_per_step: u32,
    /// `ceil(2^32 / packets_per_step)`, at most `u32::MAX`; 0 when `packets_per_step` is. Saves the division.
    pub reciprocal: u32,
    /// Idle time after which the counters restart together, at least one tick.
    pub idle_ticks: u32,
}

impl CompiledJob {
    /// Compiles `job`, which must be one that [`super::Symphony::add_job`] accepts.
    pub fn new(job: &Job, parameters: &Parameters) -> Self {
        let packets_per_step = job.packets_per_step.unwrap_or(0);
        let reciprocal = match packets_per_step {
            0 => 0,
            packets => u32::try_from((1u64 << 32).div_ceil(packets.into())).unwrap_or(u32::MAX),
        };
        CompiledJob {
            enabled: job.enabled && parameters.enabled,
            may_mark: job.step_ns.is_none_or(|ns| ns as f64 >= parameters.min_step * parameters.recovery_ns as f64),
            step_source: job.step_source,
            epoch_shift: parameters.epoch_ns.max(1).ilog2().clamp(TICK_SHIFT, 40) as u8,
            path_mtu_shift: job.path_mtu.max(1).ilog2() as u8,
            requests_per_step: job.requests_per_step,
            steps_per_collective: job.steps_per_collective,
            packets_per_step,
            reciprocal,
            idle_ticks: ticks(job.idle_ns).max(1),
        }
    }

    /// After how long a gap is given up: 16 epochs. Not waited for at all where packets tell their step: there, what is missing
    /// may have gone another way, as paths may change with the step.
    pub fn patience_ticks(&self) -> u32 {
        if self.step_source == StepSource::UdpSport {
            return 0;
        }
        let shift = self.epoch_shift as u32 + PATIENCE_SHIFT - TICK_SHIFT;
        1 << shift.min(30)
    }
}

/// An address as the tables hold it: IPv4 mapped into IPv6 (RFC 4291 2.5.5.2).
pub fn mapped(address: IpAddr) -> IpAddress {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The edges of a ring: (source, destination, rank of the source), each rank to the next, the last to the first.
pub fn edges(job: &Job) -> impl Iterator<Item = (IpAddress, IpAddress, u16)> + '_ {
    let next = job.ring.iter().cycle().skip(1);
    job.ring.iter().zip(next).enumerate().map(|(rank, (src, dst))| (mapped(*src), mapped(*dst), rank as u16))
}
