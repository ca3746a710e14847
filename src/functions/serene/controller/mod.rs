//! The control plane of one job: a pure state machine that swaps strategies and membership.
//!
//! It is told what happens ([`Controller::handle_digest`], [`Controller::handle_packet`]) and says what to do
//! ([`Controller::poll`]): table writes, and packets to put in at the CPU port. There is a rule that is wanted and one that
//! is in force; whenever they differ, a swap is under way.

mod close;
mod evaluate;
mod event;
mod observe;
mod packets;
mod policy;
mod silence;
mod swap;
#[cfg(test)]
mod tests;

pub use close::CLOSE_RETRY_NS;
pub use event::{Cause, Event, Outcome, SwapRecord, Target};
pub use observe::Sample;
pub use policy::{Action, Comparison, Condition, Metric, Policy, Relation, Unit, WINDOW_ROUNDS};
pub use swap::{MARGIN, RETRY_NS};

use std::collections::VecDeque;

use close::{Closer, Expected};
use observe::Observer;
use packets::payload;
use swap::{Progress, Step, Swap};

use super::config::SereneConfig;
use super::digest::{Digest, DigestKind};
use super::job::Job;
use super::strategy::{Rule, Strategy, Visibility};
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Control, MAX_WORKERS, Packet, Repr, Type};

/// Swaps that are remembered.
const SWAPS: usize = 1024;
/// Events that wait to be read; the oldest go first.
const EVENTS: usize = 1024;

/// What the driver is to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// [`Serene::set_rule`](super::Serene::set_rule).
    Rule {
        /// The job.
        job: u8,
        /// 0 or 1.
        bank: usize,
        /// The entry.
        rule: Rule,
    },
    /// [`Switch::set_group`](crate::dataplane::Switch::set_group) with [`Serene::replicas`](super::Serene::replicas).
    Regroup {
        /// The job, and the number of its group.
        job: u8,
    },
    /// A frame to put in at the CPU port.
    Inject(Vec<u8>),
}

/// A worker as the controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Wanted as a member.
    pub live: bool,
    /// It is no member because it left.
    pub left: bool,
    /// When it was heard of last.
    pub heard_at: Option<Nanos>,
    /// Its latest round on the last segment.
    pub round: u32,
}

/// A job as the controller sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// What is in force.
    pub in_force: Target,
    /// Version of its rule.
    pub version: u16,
    /// What is wanted; the same, when no swap is under way.
    pub wanted: Target,
    /// The swap under way.
    pub swap: Option<SwapRecord>,
    /// The highest round pushed so far, as far as is known.
    pub max_round: u32,
    /// The last round released on the last segment.
    pub released: u32,
    /// The latest round's metrics; `None` after a swap, until there is one.
    pub latest: Option<Sample>,
    /// By number.
    pub workers: Vec<WorkerStatus>,
}

/// The controller of one job.
#[derive(Clone, Debug)]
pub struct Controller {
    service: SereneConfig,
    job: Job,
    in_force: Target,
    rule: Rule,
    bank: usize,
    /// First round of the rule in force.
    start: u32,
    wanted: Target,
    /// Why it is wanted.
    cause: Cause,
    /// A bit for each worker that left and has not come back.
    left: u32,
    swap: Option<Swap>,
    swaps: VecDeque<SwapRecord>,
    next_id: u32,
    next_version: u16,
    max_round: u32,
    observer: Observer,
    /// A round is over whose metrics no policy has seen.
    unjudged: bool,
    /// When policies were last asked about silence.
    silence_judged_at: Option<Nanos>,
    /// A bit for each worker whose silence the log was told of.
    silent: u32,
    /// By policy: not before this round.
    cooled_at: Vec<u32>,
    closer: Closer,
    /// Under `timed`: a round, and when it is to be closed.
    deadline: Option<(u32, Nanos)>,
    commands: Vec<Command>,
    events: VecDeque<Event>,
}

impl Controller {
    /// The controller of a job that the switch was just given.
    pub fn new(service: &SereneConfig, job: &Job) -> Self {
        let start = Target { strategy: job.start, members: job.all_members() };
        Controller {
            service: *service,
            in_force: start,
            rule: job.start.compile(start.members, 1, Visibility::Deferred),
            bank: 0,
            start: 1,
            wanted: start,
            cause: Cause::Operator,
            left: 0,
            swap: None,
            swaps: VecDeque::new(),
            next_id: 1,
            next_version: 2,
            max_round: 0,
            observer: Observer::default(),
            unjudged: false,
            silence_judged_at: None,
            silent: 0,
            cooled_at: vec![0; job.policies.len()],
            closer: Closer::new(job.segments),
            deadline: None,
            commands: Vec::new(),
            events: VecDeque::new(),
            job: job.clone(),
        }
    }

    /// Goes over to a strategy, as soon as that is possible. The latest wish counts.
    pub fn swap(&mut self, now: Nanos, strategy: Strategy) {
        self.want(now, Target { strategy, ..self.wanted }, Cause::Operator);
    }

    /// Goes on without a worker. Says whether it was a member.
    pub fn drop_member(&mut self, now: Nanos, worker: u8) -> bool {
        self.without(now, worker, Cause::Dropped(worker), Event::Dropped { worker, silent_ns: None })
    }

    /// Takes a digest of the job in.
    pub fn handle_digest(&mut self, now: Nanos, digest: &Digest) {
        let Digest { round, worker, .. } = *digest;
        let rule = self.rule_of(round);
        match digest.kind {
            DigestKind::Joined { restarted, .. } => self.on_joined(now, worker, restarted),
            DigestKind::Left => {
                self.left |= 1u32.checked_shl(worker.into()).unwrap_or(0);
                self.without(now, worker, Cause::Left(worker), Event::Left { worker });
            }
            DigestKind::Reached => self.on_reached(now, round),
            DigestKind::Arrived { .. } => self.on_round(now, round),
            DigestKind::Late | DigestKind::Again | DigestKind::Alive | DigestKind::Released { .. } => {}
        }
        self.unjudged |= self.observer.observe(digest, &rule, self.wanted.members);
        match digest.kind {
            DigestKind::Arrived { .. } => self.start_deadline(digest),
            DigestKind::Released { .. } if self.deadline.is_some_and(|(pending, _)| pending <= round) => {
                self.deadline = None;
            }
            _ => {}
        }
    }

    /// Takes a frame in that came out of the CPU port. What is none of the job's answers is ignored.
    pub fn handle_packet(&mut self, now: Nanos, frame: &[u8]) {
        let Some(packet) = payload(frame).and_then(|payload| Packet::new_checked(payload).ok()) else { return };
        let header = Repr::parse(&packet);
        if header.job != self.job.id {
            return;
        }
        match (header.kind, packet.control()) {
            (Type::ArmResponse, Some(control)) => self.on_answer(now, &header, &control),
            (Type::Status, _) => {
                let Repr { segment, round, frontier, .. } = header;
                let next = self.closer.on_status(segment, round, frontier, self.max_round);
                self.commands.extend(next.map(|close| self.close_command(close)));
            }
            _ => {}
        }
    }

    /// Appends what is to be done now to `out`. Time may have passed, or something may have been handled.
    pub fn poll(&mut self, now: Nanos, out: &mut Vec<Command>) {
        if self.deadline.is_some_and(|(_, at)| at <= now)
            && let Some((round, _)) = self.deadline.take()
            && let Strategy::Timed { kmin, .. } = self.in_force.strategy
        {
            self.closer.set_due(now, round, kmin.of(self.in_force.members.count_ones() as u8));
        }
        self.judge(now);
        self.tell_of_silence(now);
        self.pursue(now);
        self.resend(now);
        let mut closes = Vec::new();
        self.closer.poll(now, self.max_round, &mut closes);
        out.append(&mut self.commands);
        out.extend(closes.into_iter().map(|close| self.close_command(close)));
    }

    /// When to poll although nothing was handled.
    pub fn next_wakeup(&self) -> Option<Nanos> {
        let request = self.swap.as_ref().filter(|swap| swap.request().is_some()).map(|swap| swap.send_at);
        let deadline = self.deadline.map(|(_, at)| at);
        let ready = (!self.commands.is_empty() || self.unjudged).then_some(0);
        let times =
            [request, deadline, ready, self.closer.next_wakeup(), self.next_silence(), self.next_long_silence()];
        times.into_iter().flatten().min()
    }

    /// The oldest event that has not been read.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The latest swaps, the oldest first; the one under way is the last.
    pub fn swaps(&self) -> impl Iterator<Item = SwapRecord> {
        self.swaps.iter().copied().chain(self.swap.map(|swap| swap.record))
    }

    /// How things stand.
    pub fn status(&self) -> Status {
        let worker = |worker: u8| WorkerStatus {
            live: self.wanted.members >> (worker & 31) & 1 != 0,
            left: self.left >> (worker & 31) & 1 != 0,
            heard_at: self.observer.heard_at(worker),
            round: self.observer.clock(worker),
        };
        Status {
            in_force: self.in_force,
            version: self.rule.version,
            wanted: self.wanted,
            swap: self.swap.map(|swap| swap.record),
            max_round: self.max_round,
            released: self.observer.released(),
            latest: self.observer.latest().copied(),
            workers: (0..self.job.members.len() as u8).map(worker).collect(),
        }
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    fn say(&mut self, event: Event) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The rule that a round goes by.
    fn rule_of(&self, round: u32) -> Rule {
        match &self.swap {
            Some(swap) if swap.step != Step::Arming && round >= swap.record.boundary => swap.rule,
            _ => self.rule,
        }
    }

    fn want(&mut self, now: Nanos, target: Target, cause: Cause) {
        (self.wanted, self.cause) = (target, cause);
        self.pursue(now);
    }

    fn on_joined(&mut self, now: Nanos, worker: u8, restarted: bool) {
        self.commands.push(Command::Regroup { job: self.job.id });
        let bit = 1u32.checked_shl(worker.into()).unwrap_or(0);
        self.left &= !bit;
        let members = self.wanted.members | bit;
        let admitted = members != self.wanted.members;
        if restarted || admitted || self.observer.heard_at(worker).is_none() {
            self.say(Event::Joined { worker, restarted, admitted });
        }
        if admitted {
            self.want(now, Target { members, ..self.wanted }, Cause::Joined(worker));
        }
    }

    /// Goes on without a worker: closes the rounds that wait for it, and swaps to a rule that does not count on it.
    fn without(&mut self, now: Nanos, worker: u8, cause: Cause, event: Event) -> bool {
        let members = self.wanted.members & !1u32.checked_shl(worker.into()).unwrap_or(0);
        if members == self.wanted.members {
            return false;
        }
        self.say(event);
        if members == 0 {
            self.say(Event::Deserted);
            (self.wanted.members, self.cause) = (0, cause);
            return true;
        }
        self.want(now, Target { members, ..self.wanted }, cause);
        true
    }

    /// Somebody has pushed for `round`.
    fn on_round(&mut self, now: Nanos, round: u32) {
        self.max_round = self.max_round.max(round);
        if let Some(swap) = &mut self.swap
            && swap.step != Step::Arming
            && round >= swap.record.boundary
            && swap.record.switching_at.is_none()
        {
            swap.record.switching_at = Some(now);
            let record = swap.record;
            self.say(Event::Switching(record));
        }
    }

    fn on_reached(&mut self, now: Nanos, boundary: u32) {
        if let Some(swap) = &mut self.swap
            && swap.step == Step::Armed
            && swap.record.boundary == boundary
        {
            swap.record.switching_at.get_or_insert(now);
            swap.go_to(Step::Completing, now);
        }
    }

    /// Under `timed`, the first contribution to a round sets its deadline.
    fn start_deadline(&mut self, digest: &Digest) {
        if let Strategy::Timed { deadline_ns, .. } = self.in_force.strategy
            && self.deadline.is_none()
            && digest.round > self.observer.released()
        {
            self.deadline = Some((digest.round, digest.at.saturating_add(deadline_ns)));
        }
    }

    fn on_answer(&mut self, now: Nanos, header: &Repr, control: &Control) {
        self.max_round = self.max_round.max(header.round);
        let Some(swap) = self.swap.as_mut().filter(|swap| swap.record.id == control.swap_id) else { return };
        let request = Type::from_number(header.norm);
        match swap.on_answer(now, request, control.code, header.round, control.boundary) {
            Progress::Nothing => {}
            Progress::Refused => {
                let SwapRecord { id, boundary, .. } = swap.record;
                self.say(Event::Refused { id, max_round: header.round, boundary });
            }
            Progress::Armed => {
                let record = swap.record;
                self.commands.push(Command::Regroup { job: self.job.id });
                self.say(Event::Armed(record));
            }
            Progress::Aborted => {
                let record = SwapRecord { outcome: Outcome::Superseded(self.cause), ..swap.record };
                self.end_swap(record);
                self.say(Event::Aborted(record));
            }
            Progress::Stable => {
                let record = SwapRecord { outcome: Outcome::Stable, ..swap.record };
                (self.rule, self.bank, self.in_force) = (swap.rule, self.bank ^ 1, record.to);
                self.start = record.boundary;
                self.end_swap(record);
                self.observer.restart(record.boundary + 1);
                self.unjudged = false;
                self.deadline = None;
                self.commands.push(Command::Regroup { job: self.job.id });
                self.say(Event::Stable(record));
            }
        }
        self.pursue(now);
    }

    fn end_swap(&mut self, record: SwapRecord) {
        if self.swaps.len() >= SWAPS {
            self.swaps.pop_front();
        }
        self.swaps.push_back(record);
        self.swap = None;
    }

    /// Does what gets from what is in force to what is wanted.
    fn pursue(&mut self, now: Nanos) {
        let live = self.wanted.members;
        match &mut self.swap {
            // A worker may have been taken out of the rule in force; its quorum is too large then.
            None if (self.wanted != self.in_force || self.rule.members != self.in_force.members) && live != 0 => {
                self.begin(now);
            }
            Some(swap) if swap.record.to != self.wanted && swap.may_abort() => swap.go_to(Step::Aborting, now),
            // Too late to take it back. Who is gone must not be waited for, though.
            Some(swap) if swap.record.switching_at.is_some() && swap.rule.members & !live != 0 => {
                swap.rule.members &= live;
                let (rule, bank) = (swap.rule, self.bank ^ 1);
                self.commands.push(Command::Rule { job: self.job.id, bank, rule });
            }
            _ => {}
        }
        // The pipeline says so at a contribution, of which there may be none after the last who was missing is gone.
        let observer = &self.observer;
        if let Some(swap) = self.swap.as_mut().filter(|swap| swap.step == Step::Armed)
            && swap.record.switching_at.is_some()
            && (0..MAX_WORKERS)
                .filter(|worker| swap.rule.members >> worker & 1 != 0)
                .all(|worker| observer.clock(worker) >= swap.record.boundary)
        {
            swap.go_to(Step::Completing, now);
        }
        self.closer.set_first(self.start);
        self.closer.set_expected(now, self.expected());
    }

    /// Who may still contribute, by the rule in force and by the one that is armed. A worker that the armed one leaves out
    /// has no place before its boundary either.
    fn expected(&self) -> [Expected; 2] {
        if self.wanted.members == 0 {
            return [Expected::ALL; 2]; // nobody waits
        }
        let armed = self.swap.filter(|swap| swap.record.armed_at.is_some());
        let expected = |rule: Rule, strategy: Strategy, before: u32| {
            let to_come = armed.map_or(u32::MAX, |swap| swap.rule.members);
            let workers = rule.members & self.wanted.members & to_come;
            let too_few = strategy != Strategy::Asp && workers.count_ones() < rule.need.into();
            Expected { before, workers, too_few }
        };
        let before = armed.map_or(u32::MAX, |swap| swap.record.boundary);
        let in_force = expected(self.rule, self.in_force.strategy, before);
        let next = armed.map(|swap| expected(swap.rule, swap.record.to.strategy, u32::MAX));
        [in_force, next.unwrap_or(Expected::ALL)]
    }

    fn begin(&mut self, now: Nanos) {
        let Target { strategy, members } = self.wanted;
        let rule = strategy.compile(members, self.next_version, self.rule.visibility);
        let record = SwapRecord {
            id: self.next_id,
            from: self.in_force,
            to: self.wanted,
            version: self.next_version,
            boundary: self.max_round.saturating_add(MARGIN),
            naks: 0,
            asked_at: now,
            armed_at: None,
            switching_at: None,
            stable_at: None,
            cause: self.cause,
            outcome: Outcome::Pending,
        };
        self.next_id += 1;
        self.next_version = self.next_version.wrapping_add(1);
        self.commands.push(Command::Rule { job: self.job.id, bank: self.bank ^ 1, rule });
        self.swap = Some(Swap { record, rule, step: Step::Arming, send_at: now });
    }
}
