//! The pass of a PUSH through all stages.

use super::boundary::Generation;
use super::counters::Counters;
use super::digest::DigestKind;
use super::request::Request;
use super::round::{Fate, Finding};
use super::state::{Around, JobState};
use super::store::Access;
use super::strategy::{Rule, Visibility};
use crate::dataplane::{Cx, DropReason, Phv, Tracer, Verdict};
use crate::wire::aggregation::{Flags, Notice, ROUND_LIMIT, Repr, Type};

/// Where a label stands before any register of its segment is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its round was over before the last completed swap.
    Old,
    /// Its worker does not take part in its round.
    Foreign,
    /// Its predecessor may be open on some segment.
    Premature,
    /// It may count.
    Sound,
}

impl JobState {
    /// Runs the stages on a contribution by a worker that has joined.
    pub(super) fn push<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        let Repr { segment, round, worker, .. } = request.header;
        self.check_shape(&request.header)?;
        self.counters.pushes += 1;
        self.counters.retransmissions += u64::from(request.header.flags.contains(Flags::RETX));

        cx.stage("ingress", "boundary");
        let bit = 1 << worker;
        let generation = self.boundary.push(cx, round, bit);
        self.say_reached(cx, around, &generation, segment, worker);
        let rule = self.rule(cx, &generation, round);
        let at = request.lanes_at();
        match self.standing(&generation, &rule, &request.header, bit) {
            Standing::Sound => {}
            Standing::Foreign => return self.notice(cx, phv, around, request, Notice::Dropped),
            Standing::Premature => return Err(DropReason::Premature),
            Standing::Old => {
                self.counters.old += 1;
                let frontier = self.store.pass(cx, segment, at, Access::Read, None);
                let header = self.result(&generation, &rule, &request.header, frontier, Flags::OLD, 0);
                request.answer(cx, phv, around.config, &header, None)?;
                return Ok(Verdict::Forward(phv.ingress_port));
            }
        }
        self.counters.norm_mismatches += u64::from(request.header.norm != rule.norm);

        cx.stage("ingress", "round");
        let finding = self.rounds.push(cx, &rule, segment, round, worker, self.guards.duplicate);
        count(&mut self.counters, &finding);

        cx.stage("ingress", "store");
        let released = (finding.fate == Fate::Releases).then_some(round);
        let access = access(rule.visibility, finding.fate);
        let frontier = self.store.pass(cx, segment, at, access, released);

        cx.stage("ingress", "answer");
        let parks = match rule.visibility {
            Visibility::Deferred => matches!(finding.fate, Fate::Counts | Fate::Again),
            Visibility::Immediate => round.saturating_sub(frontier) > rule.slack,
        };
        self.say_round(cx, around, &request.header, &finding, parks);
        if parks && finding.fate == Fate::Counts {
            return Ok(Verdict::Consume);
        }
        if parks && matches!(finding.fate, Fate::Again | Fate::Replay) {
            self.counters.waits += 1;
            let header = self.result(&generation, &rule, &request.header, frontier, Flags::default(), finding.included);
            let header = Repr { kind: Type::Wait, lane_count: 0, ..header };
            request.answer(cx, phv, around.config, &header, None)?;
            return Ok(Verdict::Forward(phv.ingress_port));
        }
        let multicast = released.is_some() && rule.multicast;
        let flags = flags(&rule, &finding, bit, multicast);
        let header = self.result(&generation, &rule, &request.header, frontier, flags, finding.included);
        if multicast {
            let header = Repr { ts_us: 0, ..header };
            request.answer(cx, phv, around.config, &header, None)?;
            return Ok(Verdict::Group(request.header.job.into()));
        }
        request.answer(cx, phv, around.config, &header, None)?;
        Ok(Verdict::Forward(phv.ingress_port))
    }

    /// What 2^31 and above, wrong numbers and wrong lengths would do to registers.
    fn check_shape(&self, header: &Repr) -> Result<(), DropReason> {
        if header.lane_count != self.job.lanes {
            Err(DropReason::BadLanes)
        } else if header.segment >= self.job.segments {
            Err(DropReason::BadSegment)
        } else if header.round == 0 || header.round >= ROUND_LIMIT {
            Err(DropReason::BadRound)
        } else {
            Ok(())
        }
    }

    fn standing(&self, generation: &Generation, rule: &Rule, header: &Repr, bit: u32) -> Standing {
        let round = header.round;
        if round < generation.start && self.guards.old {
            return Standing::Old;
        }
        if rule.members & bit == 0 {
            return Standing::Foreign;
        }
        // The first round after an immediate rule may be reached by a jump: there is nothing open before it.
        let jumps = rule.from_immediate && round == generation.start_of(round);
        let furthest = header.frontier.saturating_add(1).saturating_add(rule.slack);
        if round > furthest && !jumps && self.guards.base { Standing::Premature } else { Standing::Sound }
    }

    /// Digests about the round: of the last segment only.
    fn say_round<T: Tracer>(
        &self,
        cx: &mut Cx<'_, T>,
        around: &mut Around<'_>,
        header: &Repr,
        finding: &Finding,
        parked: bool,
    ) {
        if header.segment + 1 != self.job.segments {
            return;
        }
        let kind = match finding.fate {
            Fate::Counts => DigestKind::Arrived { parked },
            Fate::Releases => DigestKind::Arrived { parked: false },
            Fate::Late => DigestKind::Late,
            Fate::Again | Fate::Replay | Fate::Unknown => DigestKind::Again,
        };
        around.say(cx.now, header.job, header.round, header.worker, kind);
        if finding.fate == Fate::Releases {
            let kind = DigestKind::Released { included: finding.included, closed: false };
            around.say(cx.now, header.job, header.round, header.worker, kind);
        }
    }

    fn say_reached<T: Tracer>(
        &self,
        cx: &mut Cx<'_, T>,
        around: &mut Around<'_>,
        generation: &Generation,
        segment: u32,
        worker: u8,
    ) {
        let Some(armed) = generation.armed.filter(|_| segment + 1 == self.job.segments) else { return };
        let members = self.rules[generation.bank ^ 1].members;
        if armed.reached & members == members {
            around.say(cx.now, self.job.id, armed.boundary, worker, DigestKind::Reached);
        }
    }
}

fn access(visibility: Visibility, fate: Fate) -> Access {
    match (visibility, fate) {
        (Visibility::Immediate, Fate::Counts | Fate::Releases) => Access::Add,
        (Visibility::Deferred, Fate::Counts) => Access::Accumulate,
        (Visibility::Deferred, Fate::Releases) => Access::Release,
        (_, Fate::Again) => Access::None,
        (_, Fate::Late | Fate::Replay | Fate::Unknown) => Access::Read,
    }
}

/// Flags of a RESULT. In a multicast one, LATE is for those of its receivers that are not included: egress clears it for
/// the others.
fn flags(rule: &Rule, finding: &Finding, bit: u32, multicast: bool) -> Flags {
    let deferred = rule.visibility == Visibility::Deferred;
    let left_out = multicast || finding.included & bit == 0;
    let unknown = finding.fate == Fate::Unknown;
    Flags::default()
        .with(Flags::REPLAY, finding.fate == Fate::Replay)
        .with(Flags::LATE, deferred && left_out && !unknown)
        .with(Flags::MCAST, multicast)
        .with(Flags::CLOSED, finding.closed)
        .with(Flags::OLD, unknown)
}

fn count(counters: &mut Counters, finding: &Finding) {
    match finding.fate {
        Fate::Counts => {}
        Fate::Releases => counters.released += 1,
        Fate::Late => counters.late += 1,
        Fate::Again => counters.duplicates += 1,
        Fate::Replay => counters.duplicates += 1,
        Fate::Unknown => counters.unknown += 1,
    }
}
