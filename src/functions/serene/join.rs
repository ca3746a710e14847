//! The passes of JOIN, PULL and LEAVE.

use super::boundary::Generation;
use super::digest::DigestKind;
use super::member::Link;
use super::request::Request;
use super::state::{Around, JobState};
use super::store::Access;
use super::strategy::Visibility;
use crate::dataplane::{Cx, DropReason, Phv, Tracer, Verdict};
use crate::wire::aggregation::{Flags, Notice, Repr, Type};

impl JobState {
    /// JOIN: the process asks for its worker's place in the member table, wherever it is. One that no rule counts among its
    /// members has no answer until the controller has armed one that does.
    pub(super) fn join<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        let Repr { job, worker, incarnation_or_included: incarnation, .. } = request.header;
        self.counters.joins += 1;
        let link = Link { port: request.port, mac: request.mac, incarnation };
        if !self.members.get(worker, request.source).is_some_and(|member| member.join(link)) {
            return self.notice(cx, phv, around, request, Notice::Dropped);
        }
        around.say(cx.now, job, 0, worker, DigestKind::Joined { incarnation, restarted: false });
        let generation = self.boundary.look(cx);
        let Some(first) = self.first_round(&generation, 1 << worker) else { return Ok(Verdict::Consume) };
        let rule = self.rule(cx, &generation, first);
        let header = Repr {
            kind: Type::JoinAck,
            flags: Flags::default().with(Flags::SWAP_ARMED, generation.armed.is_some()),
            segment: self.job.segments,
            norm: rule.norm,
            rule_version: rule.version,
            incarnation_or_included: self.incarnation,
            next_round: first,
            ..request.header
        };
        request.answer(cx, phv, around.config, &header, None)?;
        Ok(Verdict::Forward(phv.ingress_port))
    }

    /// The first round that a worker may take part in: of the bank in force, or of the one that is armed. A worker that the
    /// armed rule leaves out has none: it would be turned away in the middle of its work.
    fn first_round(&self, generation: &Generation, bit: u32) -> Option<u32> {
        let takes_part = |bank: usize| self.rules[bank & 1].members & bit != 0;
        match generation.armed {
            None => takes_part(generation.bank).then_some(generation.start),
            Some(_) if !takes_part(generation.bank ^ 1) => None,
            Some(_) if takes_part(generation.bank) => Some(generation.start),
            Some(armed) => Some(armed.boundary),
        }
    }

    /// PULL: a segment's sum, and from which round on the worker may contribute to it.
    pub(super) fn pull<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        let Repr { segment, worker, .. } = request.header;
        if request.header.lane_count != 0 {
            return Err(DropReason::BadLanes);
        }
        if segment >= self.job.segments {
            return Err(DropReason::BadSegment);
        }
        self.counters.pulls += 1;
        cx.stage("ingress", "boundary");
        let generation = self.boundary.look(cx);
        let Some(first) = self.first_round(&generation, 1 << worker) else {
            return self.notice(cx, phv, around, request, Notice::Dropped);
        };
        cx.stage("ingress", "round");
        let clock = self.rounds.look(cx, segment, worker);
        cx.stage("ingress", "store");
        request.make_room(cx, self.job.lanes.into())?;
        let frontier = self.store.pass(cx, segment, request.lanes_at(), Access::Read, None);

        cx.stage("ingress", "answer");
        let open = (frontier + 1).max(generation.start);
        let rule = self.rule(cx, &generation, open);
        // A worker that is yet to come begins when nobody has to wait in a round before its first: once it is there, those
        // who are behind jump to it and release no round on their way. Without slack it has the sum of all rounds before.
        if open.saturating_add(rule.slack) < first {
            return Ok(Verdict::Consume);
        }
        // An earlier process of this worker may have been further ahead; those labels are used up. Not beyond what the
        // base guard lets pass, though, nor beyond the boundary of a swap: what it had pushed there waits for its answer.
        let unused = match rule.visibility {
            Visibility::Deferred => 0,
            Visibility::Immediate => {
                let furthest = (frontier + 1).saturating_add(rule.slack);
                let boundary = generation.armed.map(|armed| armed.boundary).filter(|boundary| *boundary > open);
                clock.saturating_add(1).min(furthest).min(boundary.unwrap_or(u32::MAX))
            }
        };
        let next_round = open.max(unused).max(first);
        let next = self.rule(cx, &generation, next_round);
        let answered = Repr { round: frontier, ..request.header };
        let header = Repr {
            norm: next.norm,
            rule_version: next.version,
            next_round,
            ..self.result(&generation, &rule, &answered, frontier, Flags::default(), 0)
        };
        request.answer(cx, phv, around.config, &header, None)?;
        Ok(Verdict::Forward(phv.ingress_port))
    }

    /// LEAVE: the controller makes a rule without the worker.
    pub(super) fn leave<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        self.counters.leaves += 1;
        around.say(cx.now, request.header.job, 0, request.header.worker, DigestKind::Left);
        self.notice(cx, phv, around, request, Notice::Dropped)
    }
}
