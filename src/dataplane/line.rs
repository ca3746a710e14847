//! A port's emulated line: how long packets take at a rate.

use super::Nanos;

/// The emulated line of a port. Counts frame bytes as they are in memory: no preamble, FCS or gap between frames.
#[derive(Debug)]
pub(super) struct Line {
    /// 1/2^32 ns a byte, so that sending takes a multiplication and no division.
    per_byte: u64,
    /// When the line is free, in 1/2^32 ns: no rate is lost to rounding.
    free_at: u128,
}

impl Line {
    pub(super) fn new(rate_bps: u64) -> Self {
        // 0 bit/s and other rates below 2 bit/s become 2^32 ns a byte, a little below 2 bit/s.
        let per_byte = (8_000_000_000u128 << 32) / u128::from(rate_bps.max(1));
        Line { per_byte: u64::try_from(per_byte).unwrap_or(u64::MAX), free_at: 0 }
    }

    /// First whole nanosecond at which the line is free.
    #[inline]
    pub(super) fn free_at(&self) -> Nanos {
        ((self.free_at + u128::from(u32::MAX)) >> 32) as Nanos
    }

    /// Sends `bytes` from `at` on, which is not before [`Line::free_at`]; returns when the last bit has left.
    #[inline]
    pub(super) fn send(&mut self, at: Nanos, bytes: u32) -> Nanos {
        // Back to back, the fraction of a nanosecond by which `at` was rounded up is not lost.
        let start = if at == self.free_at() { self.free_at } else { u128::from(at) << 32 };
        self.free_at = start + u128::from(self.per_byte) * u128::from(bytes);
        self.free_at()
    }
}
