//! The worker's numbers: what it contributes, what was returned to it, and the sum of all rounds.
//!
//! Contributions are integers, so that their sum is the same in any order. The switch's sum wraps at 32 bits; here its
//! changes go into 64 bits, which are exact as long as no change is beyond 2^30.

use super::config::Config;
use super::protocol::PushError;

/// Beyond this a change can't be told from one the other way.
const MAX_DELTA: u32 = 1 << 30;

/// The numbers of all segments.
#[derive(Clone, Debug)]
pub(super) struct Store {
    lanes: usize,
    scale: f64,
    /// The contribution of the round, divided and scaled.
    pub contribution: Vec<i32>,
    /// Contributions that were too late and are to be returned, as they were sent.
    residual: Vec<i32>,
    /// The sum at the switch, as last seen.
    sum: Vec<i32>,
    /// The same without wrapping.
    total: Vec<i64>,
    /// The first look at the sum moves it by any amount.
    seen: Vec<bool>,
}

impl Store {
    pub fn new(config: &Config) -> Self {
        let len = config.capacity();
        Store {
            lanes: config.lanes,
            scale: f64::from(1u32 << config.scale_log2),
            contribution: vec![0; len],
            residual: vec![0; len],
            sum: vec![0; len],
            total: vec![0; len],
            seen: vec![false; config.segments as usize],
        }
    }

    /// Quantises `values / norm` and adds the residual; returns how many values were clipped. Nothing changes on an error.
    pub fn contribute(&mut self, values: &[f32], norm: u8, members: u8) -> Result<u32, PushError> {
        self.check_len(values.len())?;
        if let Some(index) = values.iter().position(|v| !v.is_finite()) {
            return Err(PushError::NotFinite { index });
        }
        let factor = self.scale / f64::from(norm.max(1));
        // `as` saturates, which is beyond the bound and so is clipped.
        Ok(self.add(members, values.iter().map(|&v| (f64::from(v) * factor).round_ties_even() as i64)))
    }

    /// The same for values that are divided and scaled already.
    pub fn contribute_quantised(&mut self, values: &[i32], members: u8) -> Result<u32, PushError> {
        self.check_len(values.len())?;
        Ok(self.add(members, values.iter().map(|&v| i64::from(v))))
    }

    fn check_len(&self, given: usize) -> Result<(), PushError> {
        let capacity = self.contribution.len();
        if given > capacity { Err(PushError::TooLong { given, capacity }) } else { Ok(()) }
    }

    fn add(&mut self, members: u8, values: impl Iterator<Item = i64>) -> u32 {
        // All members together stay within a quarter of the range in one round.
        let bound = (1i64 << 29) / i64::from(members.max(1));
        let mut clipped = 0;
        let padded = values.chain(std::iter::repeat(0));
        for ((out, residual), value) in self.contribution.iter_mut().zip(&mut self.residual).zip(padded) {
            let wanted = value.saturating_add(i64::from(std::mem::take(residual)));
            let kept = wanted.clamp(-bound, bound);
            clipped += u32::from(kept != wanted);
            *out = kept as i32;
        }
        clipped
    }

    /// The contribution to one segment.
    pub fn segment(&self, segment: u32) -> &[i32] {
        let at = segment as usize * self.lanes;
        self.contribution.get(at..at + self.lanes).unwrap_or(&[])
    }

    /// Keeps the contribution to a segment for the next one.
    pub fn return_segment(&mut self, segment: u32) {
        let at = segment as usize * self.lanes;
        let range = at..at + self.lanes;
        let (Some(residual), Some(sent)) = (self.residual.get_mut(range.clone()), self.contribution.get(range)) else {
            return;
        };
        residual.iter_mut().zip(sent).for_each(|(residual, sent)| *residual = residual.saturating_add(*sent));
    }

    /// Takes in the switch's sum of a segment.
    ///
    /// # Errors
    /// The index of a value that moved by more than 2^30.
    pub fn update(&mut self, segment: u32, lanes: &[[u8; 4]]) -> Result<(), u32> {
        let at = segment as usize * self.lanes;
        let range = at..at + self.lanes;
        let (Some(sum), Some(total)) = (self.sum.get_mut(range.clone()), self.total.get_mut(range)) else {
            return Ok(());
        };
        let first = self.seen.get_mut(segment as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        let mut moved_too_far = None;
        for (index, ((sum, total), bytes)) in sum.iter_mut().zip(total).zip(lanes).enumerate() {
            let new = i32::from_be_bytes(*bytes);
            let delta = new.wrapping_sub(*sum);
            if delta.unsigned_abs() > MAX_DELTA && !first && moved_too_far.is_none() {
                moved_too_far = Some(at as u32 + index as u32);
            }
            *sum = new;
            *total += i64::from(delta);
        }
        moved_too_far.map_or(Ok(()), Err)
    }

    /// The sum as the switch has it, modulo 2^32.
    pub fn sum(&self) -> &[i32] {
        &self.sum
    }

    /// The sum in the values' own unit.
    pub fn read(&self, out: &mut [f32]) {
        out.iter_mut().zip(&self.total).for_each(|(out, total)| *out = (*total as f64 / self.scale) as f32);
    }
}
