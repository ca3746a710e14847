//! All that the pipeline holds of one job, and what passes have in common.

use super::boundary::{Boundary, Generation};
use super::config::{Guards, SereneConfig};
use super::counters::Counters;
use super::digest::{Digest, DigestKind, Digests};
use super::job::Job;
use super::member::{Link, Members, Sender};
use super::request::Request;
use super::round::Rounds;
use super::store::Store;
use super::strategy::{Rule, Visibility};
use crate::dataplane::{Cx, DropReason, Nanos, Phv, Replica, Tracer, Verdict};
use crate::wire::aggregation::{Flags, Notice, Repr, Type};

/// Tables and registers of a job, by stage, in the order in which a pass touches them.
#[derive(Clone, Debug)]
pub(super) struct JobState {
    pub(super) job: Job,
    /// What JOIN_ACK says: the switch's own number, and how many jobs it was given before.
    pub(super) incarnation: u32,
    pub(super) guards: Guards,
    pub(super) counters: Counters,
    pub(super) members: Members,
    pub(super) boundary: Boundary,
    pub(super) rules: [Rule; 2],
    pub(super) rounds: Rounds,
    pub(super) store: Store,
}

/// What a pass uses besides its job's state.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) config: &'a SereneConfig,
    pub(super) digests: &'a mut Digests,
}

impl Around<'_> {
    pub(super) fn say(&mut self, at: Nanos, job: u8, round: u32, worker: u8, kind: DigestKind) {
        self.digests.push(Digest { job, round, worker, at, kind });
    }
}

impl JobState {
    pub(super) fn new(job: &Job, incarnation: u32) -> Self {
        let segments = job.segments as usize;
        let rule = job.start.compile(job.all_members(), 1, Visibility::Deferred);
        JobState {
            job: job.clone(),
            incarnation,
            guards: Guards::ALL,
            counters: Counters::default(),
            members: Members::new(&job.members),
            boundary: Boundary::new(),
            rules: [rule; 2],
            rounds: Rounds::new(segments),
            store: Store::new(segments, job.lanes.into()),
        }
    }

    /// Runs a worker's packet through the stages.
    pub(super) fn serve<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &mut Around<'_>,
        request: &Request,
    ) -> Result<Verdict, DropReason> {
        let Repr { kind, job, worker, .. } = request.header;
        let member = self.members.get(worker, request.source);
        cx.table("member", member.is_some());
        let member = member.ok_or(DropReason::NotMember)?;
        if kind == Type::Join {
            return self.join(cx, phv, around, request);
        }
        match member.sender(&request.header) {
            Sender::Current => {}
            Sender::Successor(Link { incarnation, .. }) => {
                around.say(cx.now, job, 0, worker, DigestKind::Joined { incarnation, restarted: true });
            }
            Sender::Unjoined => return self.notice(cx, phv, around, request, Notice::Rejoin),
            Sender::Stale => return self.notice(cx, phv, around, request, Notice::Dropped),
        }
        if self.members.hear(cx, worker) {
            around.say(cx.now, job, 0, worker, DigestKind::Alive);
        }
        match kind {
            Type::Push => self.push(cx, phv, around, request),
            Type::Pull => self.pull(cx, phv, around, request),
            Type::Leave => self.leave(cx, phv, around, request),
            _ => Err(DropReason::NotControl),
        }
    }

    /// A copy for each worker that has joined and takes part by the rule in force or by the one that is armed.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let generation = self.boundary.peek();
        let armed = generation.armed.map_or(0, |_| self.rules[generation.bank ^ 1].members);
        let members = self.rules[generation.bank].members | armed;
        let joined = self.members.joined().filter(|(worker, _)| members >> (worker & 31) & 1 != 0);
        joined.map(|(worker, link)| Replica { port: link.port, rid: worker }).collect()
    }

    /// Table `rule`: that of a round.
    pub(super) fn rule<T: Tracer>(&self, cx: &mut Cx<'_, T>, generation: &Generation, round: u32) -> Rule {
        cx.table("rule", true);
        self.rules[generation.bank_of(round)]
    }

    /// [`Request::notice`], counted.
    pub(super) fn notice<T: Tracer>(
        &mut self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        around: &Around<'_>,
        request: &Request,
        notice: Notice,
    ) -> Result<Verdict, DropReason> {
        self.counters.notices += 1;
        request.notice(cx, phv, around.config, notice)
    }

    /// A RESULT for `request` whose round goes by `rule`, with what holds from the next round on.
    pub(super) fn result(
        &self,
        generation: &Generation,
        rule: &Rule,
        request: &Repr,
        frontier: u32,
        flags: Flags,
        included: u32,
    ) -> Repr {
        let next_round = next_round(generation, rule, request.round, frontier);
        let next = &self.rules[generation.bank_of(next_round)];
        let armed = generation.armed;
        Repr {
            kind: Type::Result,
            flags: flags
                .with(Flags::BOUNDARY, armed.is_some_and(|armed| next_round >= armed.boundary))
                .with(Flags::SWAP_ARMED, armed.is_some())
                .with(Flags::RETURN, rule.returns_late()),
            lane_count: self.job.lanes,
            norm: next.norm,
            rule_version: next.version,
            frontier,
            incarnation_or_included: included,
            next_round,
            ..*request
        }
    }
}

/// The lowest label that a worker may use after `round`, as far as this segment is concerned.
fn next_round(generation: &Generation, rule: &Rule, round: u32, frontier: u32) -> u32 {
    let next = match rule.visibility {
        Visibility::Deferred => round.max(frontier) + 1,
        Visibility::Immediate => match generation.armed {
            Some(armed) if round < armed.boundary && armed.jump && armed.reached != 0 => armed.boundary,
            _ => round + 1,
        },
    };
    next.max(generation.start)
}
