//! What must hold in every pass, whatever the network does.
//!
//! * I1: a worker's contribution to a round of a segment counts at most once.
//! * I2: all segments count a round under one version of the rules.
//! * I3: nothing is in an open round's sum when its first contribution comes.
//! * I4: sums change by what counts and by nothing else; answers say who is in, and who is out stays out.

use std::collections::{BTreeMap, BTreeSet};

use super::lab::JOB;
use crate::functions::serene::{Serene, Visibility};
use crate::wire::aggregation::{Flags, Repr, Type};

/// Contributions: worker, round, segment.
type Contributions = BTreeSet<(u8, u32, u32)>;

/// What a pass found, read before it.
pub struct Before {
    open: Vec<i32>,
    sum: Vec<i32>,
    version: u16,
    visibility: Visibility,
}

#[derive(Default)]
pub struct Oracle {
    /// Those that were counted.
    pub counted: Contributions,
    /// Those that workers were told are not in.
    left_out: Contributions,
    /// Versions that rounds were counted under.
    pub versions: BTreeMap<u32, u16>,
    /// Rounds of segments that have begun: (round, segment).
    begun: BTreeSet<(u32, u32)>,
}

fn add(a: &[i32], b: &[i32]) -> Vec<i32> {
    a.iter().zip(b).map(|(a, b)| a.wrapping_add(*b)).collect()
}

impl Oracle {
    /// Looks before the pass of `request`.
    pub fn look(&self, serene: &Serene, request: &Repr) -> Option<Before> {
        let (job, segment) = (serene.job(JOB)?, serene.segment(JOB, request.segment)?);
        let rule = match job.armed {
            Some((boundary, rule)) if request.round >= boundary => rule,
            _ => job.rule,
        };
        Some(Before { open: segment.open, sum: segment.sum, version: rule.version, visibility: rule.visibility })
    }

    /// Judges what the pass did.
    ///
    /// # Errors
    /// What does not hold.
    pub fn judge(
        &mut self,
        serene: &Serene,
        request: &Repr,
        lanes: &[i32],
        before: Option<Before>,
        answers: &[Repr],
    ) -> Result<(), String> {
        let (Some(before), Some(after)) = (before, serene.segment(JOB, request.segment)) else { return Ok(()) };
        let Repr { worker, round, segment, .. } = *request;
        let at = format!("worker {worker}, round {round}, segment {segment}");
        let (had, has) = (add(&before.open, &before.sum), add(&after.open, &after.sum));
        if has != had {
            if request.kind != Type::Push || has != add(&had, lanes) {
                return Err(format!("I4: sums changed by something else at {at}, {:?}", request.kind));
            }
            self.count(worker, round, segment, &before).map_err(|violation| format!("{violation} at {at}"))?;
        } else if after.open != before.open && after.open.iter().any(|lane| *lane != 0) {
            return Err(format!("I4: an open sum changed at {at}"));
        }
        for answer in answers {
            self.check_answer(request, answer)?;
        }
        Ok(())
    }

    fn count(&mut self, worker: u8, round: u32, segment: u32, before: &Before) -> Result<(), String> {
        if !self.counted.insert((worker, round, segment)) {
            return Err("I1: counted twice".into());
        }
        if self.left_out.contains(&(worker, round, segment)) {
            return Err("I4: counted after its worker was told that it is not".into());
        }
        let version = *self.versions.entry(round).or_insert(before.version);
        if version != before.version {
            return Err(format!("I2: counted under version {}, and under {version} elsewhere", before.version));
        }
        let first = self.begun.insert((round, segment));
        if first && before.visibility == Visibility::Deferred && before.open.iter().any(|lane| *lane != 0) {
            return Err("I3: the round began with a sum".into());
        }
        Ok(())
    }

    /// An answer to a contribution, or to the controller's CLOSE, says who is in the round, and who is not and stays out. A
    /// copy of another's answer may leave that open, under immediate rules.
    fn check_answer(&mut self, request: &Repr, answer: &Repr) -> Result<(), String> {
        let told = answer.kind == Type::Result && matches!(request.kind, Type::Push | Type::Close);
        if !told || answer.flags.contains(Flags::OLD) {
            return Ok(());
        }
        let key = (answer.worker, answer.round, answer.segment);
        let included = answer.incarnation_or_included & 1 << answer.worker != 0;
        let (left_out, counted) = (answer.flags.contains(Flags::LATE), self.counted.contains(&key));
        let open = !included && !left_out && answer.flags.contains(Flags::MCAST);
        if left_out {
            self.left_out.insert(key);
        }
        if open || (included && !left_out && counted) || (left_out && !included && !counted) {
            return Ok(());
        }
        Err(format!("I4: counted: {counted}, but {key:?} was told: {answer:?}"))
    }
}
