//! The passes of the controller's packets: ARM, ABORT, COMPLETE, CLOSE.

use super::boundary::Generation;
use super::digest::DigestKind;
use super::request::Request;
use super::state::{Around, JobState};
use super::store::Access;
use super::strategy::{Rule, Visibility};
use crate::dataplane::{Cx, DropReason, Phv, Tracer, Verdict};
use crate::wire::aggregation::{Code, Control, Flags, ROUND_LIMIT, Repr, Type};

impl JobState {
    /// Runs a controller's packet through the stages. Its answer goes back out of the CPU port.
    pub(super) fn control<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        let control = request.control.ok_or(DropReason::AggregationMalformed)?;
        cx.stage("ingress", "boundary");
        let (code, max_round, boundary) = match request.header.kind {
            Type::Arm if control.boundary >= ROUND_LIMIT => return Err(DropReason::BadRound),
            Type::Arm => self.boundary.arm(cx, &control, self.guards.boundary),
            Type::Abort => self.boundary.abort(cx, control.swap_id),
            Type::Complete => self.boundary.complete(cx, control.swap_id),
            Type::Close => return self.close(cx, phv, around, request, control),
            _ => return Err(DropReason::NotControl),
        };
        cx.stage("ingress", "answer");
        let boundary = if code == Code::Nak { control.boundary } else { boundary };
        let header =
            Repr { kind: Type::ArmResponse, round: max_round, norm: request.header.kind as u8, ..request.header };
        request.answer(cx, phv, around.config, &header, Some(Control { boundary, code, ..control }))?;
        Ok(Verdict::Forward(phv.ingress_port))
    }

    /// CLOSE: releases a segment's round if all that `included` names are in, and at least `norm` contributions; with 0, an
    /// empty one, too. Else the answer says where the segment stands.
    fn close<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
        control: Control,
    ) -> Result<Verdict, DropReason> {
        let Repr { job, round, segment, norm, incarnation_or_included: required, .. } = request.header;
        if segment >= self.job.segments {
            return Err(DropReason::BadSegment);
        }
        if round == 0 || round >= ROUND_LIMIT {
            return Err(DropReason::BadRound);
        }
        let generation = self.boundary.look(cx);
        let rule = self.rule(cx, &generation, round);

        cx.stage("ingress", "round");
        let closed = if round < generation.start {
            None
        } else {
            self.rounds.close(cx, &rule, segment, round, required & rule.members, norm)
        };

        cx.stage("ingress", "store");
        let multicast = closed.is_some() && rule.multicast;
        let access = match rule.visibility {
            _ if closed.is_none() => Access::None,
            Visibility::Deferred => Access::Release,
            Visibility::Immediate if multicast => Access::Read,
            Visibility::Immediate => Access::None,
        };
        if access != Access::None {
            request.make_room(cx, self.job.lanes.into())?;
        }
        let frontier = self.store.pass(cx, segment, request.lanes_at(), access, closed.map(|_| round));

        cx.stage("ingress", "answer");
        if let Some(included) = closed {
            self.counters.closed += 1;
            if segment + 1 == self.job.segments {
                around.say(cx.now, job, round, 0, DigestKind::Released { included, closed: true });
            }
        }
        let included = closed.unwrap_or(0);
        if !multicast {
            let header = self.answer_status(&generation, &rule, &request.header, frontier, included);
            request.answer(cx, phv, around.config, &header, Some(control))?;
            return Ok(Verdict::Forward(phv.ingress_port));
        }
        let flags = Flags::MCAST.with(Flags::CLOSED, true).with(Flags::LATE, rule.visibility == Visibility::Deferred);
        let header = self.result(&generation, &rule, &request.header, frontier, flags, included);
        request.answer(cx, phv, around.config, &header, None)?;
        Ok(Verdict::Group(job.into()))
    }

    fn answer_status(
        &self,
        generation: &Generation,
        rule: &Rule,
        request: &Repr,
        frontier: u32,
        included: u32,
    ) -> Repr {
        let result = self.result(generation, rule, request, frontier, Flags::default(), included);
        Repr { kind: Type::Status, lane_count: 0, ..result }
    }
}
