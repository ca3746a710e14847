//! The protocol: join, learn the model, push a round, leave.

mod admission;
mod transmit;

use super::config::{Config, ConfigError};
use super::counters::Counters;
use super::report::{Event, Failure, Report};
use super::store::Store;
use super::transfer::Transfer;
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Flags, Packet, ROUND_LIMIT, Type};

/// What the worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Asks for admission. With `resume`, in the middle of a round.
    Joining {
        resume: bool,
    },
    /// Asks for the sum of all segments.
    Pulling,
    /// Has the sum; nothing under way.
    Ready,
    /// Contributes.
    Pushing,
    Leaving,
    /// Left or failed.
    Over,
}

/// Why a vector can't be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// A contribution that is no number would spoil the model of all workers.
    #[error("value {index} is NaN or infinite: refused, as it would spoil everybody's model")]
    NotFinite {
        /// Which.
        index: usize,
    },
    /// More values than the job has lanes.
    #[error("{given} values do not fit the job's {capacity} (segments x lanes)")]
    TooLong {
        /// Values given.
        given: usize,
        /// Values of the job.
        capacity: usize,
    },
    /// The worker has not joined, or the last round is not over.
    #[error("a vector can be pushed only when the worker has joined and its last round is over")]
    NotReady,
}

/// A time as packets carry it.
fn timestamp(now: Nanos) -> u32 {
    (now / 1000) as u32
}

/// Where to go on behind rounds that nobody releases.
#[derive(Clone, Copy, Debug)]
struct Jump {
    to: u32,
    norm: u8,
    rule_version: u16,
}

/// A request of one packet, JOIN or LEAVE.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    begun_at: Nanos,
    sent_at: Option<Nanos>,
    retries: u8,
}

/// One rank. See the module's head.
#[derive(Clone, Debug)]
pub struct Worker {
    config: Config,
    phase: Phase,
    request: Request,
    transfer: Transfer,
    store: Store,
    /// Label of the open round, or of the next.
    round: u32,
    /// Greatest frontier seen of each segment.
    frontiers: Vec<u32>,
    /// The least of `frontiers`.
    base: u32,
    /// Segments whose frontier is `base`.
    at_base: u32,
    /// Least, or by mutation greatest, `next_round` among the answers of this exchange.
    next_round: Option<u32>,
    norm: u8,
    rule_version: u16,
    /// As many members as the greatest norm tells.
    members: u8,
    /// The switch's own incarnation.
    epoch: Option<u32>,
    jump: Option<Jump>,
    report: Report,
    /// Segments without an answer when the round was interrupted to join again.
    interrupted: Vec<u32>,
    /// The switch said so to a JOIN.
    job_unknown: bool,
    heard_at: Nanos,
    counters: Counters,
    event: Option<Event>,
}

impl Worker {
    /// A worker that begins to join with the first call of [`Worker::poll_transmit`] from `now` on.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn new(config: Config, now: Nanos) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Worker {
            phase: Phase::Joining { resume: false },
            request: Request { begun_at: now, ..Request::default() },
            transfer: Transfer::new(config.segments, config.window),
            store: Store::new(&config),
            round: 0,
            frontiers: vec![0; config.segments as usize],
            base: 0,
            at_base: config.segments,
            next_round: None,
            norm: 1,
            rule_version: 0,
            members: 1,
            epoch: None,
            jump: None,
            report: Report::default(),
            interrupted: Vec::new(),
            job_unknown: false,
            heard_at: now,
            counters: Counters::default(),
            event: None,
            config,
        })
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// It may push.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Label of the open round, or of the next.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// By what the next contribution is divided.
    pub fn norm(&self) -> u8 {
        self.norm
    }

    /// Version of the rule that the worker believes in force.
    pub fn rule_version(&self) -> u16 {
        self.rule_version
    }

    /// Smoothed round trip; `None` until one was measured.
    pub fn rtt_ns(&self) -> Option<Nanos> {
        self.transfer.round_trip.smoothed_ns
    }

    /// The sum of all rounds as the switch has it: scaled, modulo 2^32, `segments * lanes` values.
    pub fn sum(&self) -> &[i32] {
        self.store.sum()
    }

    /// What was contributed to the open or the last round, as it travels.
    pub fn contribution(&self) -> &[i32] {
        &self.store.contribution
    }

    /// Writes the sum of all rounds, which is by how much the model has moved since the job began, in the unit of the
    /// vectors pushed. Fills as much of `out` as there are values.
    pub fn read_delta(&self, out: &mut [f32]) {
        self.store.read(out);
    }

    /// Begins a round with `values`, which it divides by the job's norm: the mean over the workers is what the model moves
    /// by. A vector that is shorter than the job's is filled up with zeros. Contributions that were late and returned are
    /// added.
    ///
    /// # Errors
    /// [`PushError`]; nothing has begun then.
    pub fn begin(&mut self, now: Nanos, values: &[f32]) -> Result<(), PushError> {
        self.check_ready()?;
        let clipped = self.store.contribute(values, self.norm, self.members)?;
        self.push(now, clipped);
        Ok(())
    }

    /// The same with integers, which are contributed as they are.
    ///
    /// # Errors
    /// [`PushError`]; nothing has begun then.
    pub fn begin_quantised(&mut self, now: Nanos, values: &[i32]) -> Result<(), PushError> {
        self.check_ready()?;
        let clipped = self.store.contribute_quantised(values, self.members)?;
        self.push(now, clipped);
        Ok(())
    }

    fn check_ready(&self) -> Result<(), PushError> {
        if self.phase == Phase::Ready { Ok(()) } else { Err(PushError::NotReady) }
    }

    fn push(&mut self, now: Nanos, clipped: u32) {
        self.report = Report { round: self.round, norm: self.norm, clipped, begun_at: now, ..Report::default() };
        self.counters.clipped += u64::from(clipped);
        self.exchange(now, Phase::Pushing);
    }

    fn exchange(&mut self, now: Nanos, phase: Phase) {
        self.phase = phase;
        (self.next_round, self.jump) = (None, None);
        self.heard_at = now;
        self.transfer.begin();
    }

    /// Says that the worker contributes no more. An open round is given up.
    pub fn leave(&mut self, now: Nanos) {
        if self.phase != Phase::Over {
            self.ask(now, Phase::Leaving);
        }
    }

    fn ask(&mut self, now: Nanos, phase: Phase) {
        self.phase = phase;
        self.request = Request { begun_at: now, ..Request::default() };
    }

    /// What happened, once.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    fn end(&mut self, event: Event) {
        self.phase = Phase::Over;
        self.event = Some(event);
    }

    fn fail(&mut self, failure: Failure) {
        self.end(Event::Failed(failure));
    }

    /// Takes the payload of a UDP datagram that came from the switch.
    pub fn handle(&mut self, now: Nanos, bytes: &[u8]) {
        let Ok(packet) = Packet::new_checked(bytes) else {
            self.counters.foreign += 1;
            return;
        };
        if packet.job() != self.config.job || packet.worker() != self.config.worker {
            self.counters.foreign += 1;
            return;
        }
        self.counters.packets_received += 1;
        self.heard_at = now;
        match (packet.kind(), self.phase) {
            (Type::JoinAck, Phase::Joining { resume }) => self.on_join_ack(now, &packet, resume),
            (Type::Result, Phase::Pulling) => self.on_pulled(now, &packet),
            (Type::Result, Phase::Pushing) => self.on_result(now, &packet),
            (Type::Wait, Phase::Pushing) if packet.round() == self.round => self.on_wait(now, &packet),
            (Type::Notice, _) if packet.incarnation() == self.config.incarnation => self.on_notice(now, &packet),
            _ => self.counters.stale += 1,
        }
    }

    fn on_result(&mut self, now: Nanos, packet: &Packet<&[u8]>) {
        let segment = packet.segment();
        let decides =
            self.is_included(packet) || packet.flags().contains(Flags::LATE) || packet.flags().contains(Flags::OLD);
        if packet.round() != self.round || !decides || !self.transfer.awaits(segment) {
            self.counters.stale += 1;
            // Another worker's answer. Where the segment has moved on, there is one for us too.
            if self.raise_frontier(segment, packet.frontier()) {
                self.transfer.hint(segment);
            }
            return;
        }
        if !self.take(now, packet) {
            return;
        }
        self.settle(packet);
        if self.transfer.open() == 0 {
            self.finish(now);
        }
    }

    /// The contribution is in. Its round is not over, or, under an immediate rule, too far ahead of others; these may be
    /// about to jump over it to the boundary of a swap, and so does this worker then: nobody would ever let it go on.
    fn on_wait(&mut self, now: Nanos, packet: &Packet<&[u8]>) {
        self.counters.waits += 1;
        let segment = packet.segment();
        if packet.next_round() <= self.round + 1 || !self.transfer.awaits(segment) {
            return self.transfer.on_wait(now, segment, packet.ts_us());
        }
        self.transfer.on_answer(now, segment, packet.ts_us());
        self.raise_frontier(segment, packet.frontier());
        self.report.included += 1;
        self.jump = Some(Jump { to: packet.next_round(), norm: packet.norm(), rule_version: packet.rule_version() });
        if self.transfer.open() == 0 {
            self.finish(now);
        }
    }

    fn is_included(&self, packet: &Packet<&[u8]>) -> bool {
        packet.included() & 1 << self.config.worker != 0
    }

    /// Whether the contribution is in, is to be pushed again, or is gone: as the answer says, whatever the worker believes.
    fn settle(&mut self, packet: &Packet<&[u8]>) {
        let flags = packet.flags();
        self.report.closed += u32::from(flags.contains(Flags::CLOSED));
        if flags.contains(Flags::OLD) {
            self.report.forgotten += 1;
        } else if self.is_included(packet) {
            self.report.included += 1;
        } else {
            self.report.late += 1;
            if flags.contains(Flags::RETURN) {
                self.report.returned += 1;
                self.store.return_segment(packet.segment());
            }
        }
    }

    /// Takes in the sum that an answer carries, and what it says of the rounds to come. False: it was of no use.
    fn take(&mut self, now: Nanos, packet: &Packet<&[u8]>) -> bool {
        let segment = packet.segment();
        if packet.lane_count() != self.config.lanes {
            let (theirs, ours) = (packet.lane_count() as u32, self.config.lanes as u32);
            self.fail(Failure::Shape { job: self.config.job, what: "lanes", theirs, ours });
            return false;
        }
        if let Err(index) = self.store.update(segment, packet.lane_bytes()) {
            self.fail(Failure::Overflow { round: self.round, index });
            return false;
        }
        self.transfer.on_answer(now, segment, packet.ts_us());
        self.raise_frontier(segment, packet.frontier());
        self.bound_next_round(packet);
        true
    }

    /// Returns whether the segment has moved on.
    fn raise_frontier(&mut self, segment: u32, frontier: u32) -> bool {
        let Some(known) = self.frontiers.get_mut(segment as usize).filter(|known| **known < frontier) else {
            return false;
        };
        let was_least = std::mem::replace(known, frontier) == self.base;
        self.at_base -= u32::from(was_least);
        if self.at_base == 0 {
            self.base = self.frontiers.iter().copied().min().unwrap_or(0);
            self.at_base = self.frontiers.iter().filter(|frontier| **frontier == self.base).count() as u32;
        }
        true
    }

    /// The worker goes on by the least `next_round`: a segment whose earlier round is still open must see that round first.
    fn bound_next_round(&mut self, packet: &Packet<&[u8]>) {
        let next = packet.next_round();
        let better = self.next_round.is_none_or(|bound| next <= bound);
        #[cfg(test)]
        let better =
            if self.config.by_greatest_next_round { self.next_round.is_none_or(|bound| next >= bound) } else { better };
        if better {
            self.next_round = Some(next);
            self.norm = packet.norm().max(1);
            self.members = self.members.max(self.norm);
            self.rule_version = packet.rule_version();
        }
    }

    fn advance(&mut self, least: u32) {
        self.round = self.round.max(least).max(self.next_round.unwrap_or(0));
        if self.round >= ROUND_LIMIT {
            self.fail(Failure::RoundsExhausted { job: self.config.job });
        }
    }

    fn finish(&mut self, now: Nanos) {
        self.advance(self.report.round.max(self.base) + 1);
        if let Some(jump) = self.jump.take().filter(|jump| jump.to > self.round) {
            self.round = jump.to;
            self.norm = jump.norm.max(1);
            self.rule_version = jump.rule_version;
        }
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Ready;
        self.report.done_at = now;
        self.report.next_round = self.round;
        self.report.rule_version = self.rule_version;
        self.report.rtt_ns = self.rtt_ns().unwrap_or(0);
        self.counters.rounds += 1;
        self.counters.late += u64::from(self.report.late);
        self.counters.returned += u64::from(self.report.returned);
        self.counters.forgotten += u64::from(self.report.forgotten);
        self.event = Some(Event::Round(self.report));
    }
}
