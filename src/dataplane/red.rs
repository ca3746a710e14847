//! RED (Floyd and Jacobson 1993) as DCQCN uses it: on the instantaneous queue, marking only.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::config::Red;

/// RED as a stage computes it: a comparison and a multiplication.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedCurve {
    pub(super) kmin_bytes: u64,
    kmax_bytes: u64,
    /// Of 2^32, a byte above `kmin_bytes`.
    slope: f64,
}

impl RedCurve {
    pub(super) fn new(red: Red) -> Self {
        let width = red.kmax_bytes.saturating_sub(red.kmin_bytes).max(1);
        RedCurve {
            kmin_bytes: red.kmin_bytes,
            kmax_bytes: red.kmax_bytes,
            slope: red.pmax.clamp(0.0, 1.0) * 4_294_967_296.0 / width as f64,
        }
    }

    /// Draws once above Kmin, also where the answer is sure: so that the streams of two runs stay paired.
    #[inline]
    pub(super) fn hits(&self, depth_bytes: u64, rng: &mut ChaCha8Rng) -> bool {
        if depth_bytes <= self.kmin_bytes {
            return false;
        }
        let draw = rng.next_u32();
        depth_bytes > self.kmax_bytes || f64::from(draw) < (depth_bytes - self.kmin_bytes) as f64 * self.slope
    }
}
