//! How a worker gets in, and back in after the switch has turned it away: JOIN_ACK, the answers to PULL, and NOTICE.

use super::super::config::Config;
use super::super::report::{Event, Failure};
use super::{Phase, Worker, timestamp};
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Notice, Packet};

impl Worker {
    pub(super) fn on_join_ack(&mut self, now: Nanos, packet: &Packet<&[u8]>, resume: bool) {
        let Config { job, segments, .. } = self.config;
        let theirs = packet.segment();
        if theirs != segments {
            return self.fail(Failure::Shape { job, what: "segments", theirs, ours: segments });
        }
        let epoch = packet.incarnation();
        if self.epoch.replace(epoch).is_some_and(|known| known != epoch) {
            return self.fail(Failure::StoreLost { job, round: self.base });
        }
        self.counters.joins += 1;
        self.heard_at = now;
        if resume {
            self.phase = Phase::Pushing;
            return self.transfer.resume();
        }
        self.norm = packet.norm().max(1);
        self.members = self.members.max(self.norm);
        self.rule_version = packet.rule_version();
        // From which round on is for the answers to PULL to say: the swap that this one counts on may be taken back until then.
        self.exchange(now, Phase::Pulling);
    }

    /// An answer to PULL. One to an earlier process of this rank may still be under way, but has another timestamp.
    pub(super) fn on_pulled(&mut self, now: Nanos, packet: &Packet<&[u8]>) {
        if !self.transfer.is_latest(packet.segment(), packet.ts_us()) {
            self.counters.stale += 1;
            return;
        }
        if !self.take(now, packet) || self.transfer.open() > 0 {
            return;
        }
        let interrupted = std::mem::take(&mut self.interrupted);
        if !interrupted.is_empty() {
            return self.go_on(now, &interrupted);
        }
        self.advance(self.base + 1);
        if self.phase != Phase::Over {
            self.phase = Phase::Ready;
            self.event = Some(Event::Joined { round: self.round });
        }
    }

    /// A round was interrupted, and what is in of it is in. If others are in it still, as the swap without us was taken back,
    /// the rest is pushed again; else it is lost.
    fn go_on(&mut self, now: Nanos, open: &[u32]) {
        if self.next_round.is_some_and(|next| next <= self.report.round) {
            self.exchange(now, Phase::Pushing);
            return self.transfer.restrict(open);
        }
        self.report.forgotten += open.len() as u32;
        self.finish(now);
    }

    pub(super) fn on_notice(&mut self, now: Nanos, packet: &Packet<&[u8]>) {
        let Config { job, worker, .. } = self.config;
        let answers_request = self.request.sent_at.is_some_and(|sent_at| packet.ts_us() == timestamp(sent_at));
        match (Notice::from_number(packet.norm()), self.phase) {
            (_, Phase::Leaving) if answers_request => self.end(Event::Left),
            (Some(Notice::Dropped), Phase::Joining { .. }) if answers_request => {
                self.fail(Failure::Dropped { job, worker });
            }
            // A worker that comes before its job waits for it; to one that was there before, its sums are gone.
            (Some(Notice::UnknownJob), Phase::Joining { .. }) if answers_request && self.epoch.is_none() => {
                if !std::mem::replace(&mut self.job_unknown, true) {
                    self.event = Some(Event::JobUnknown);
                }
            }
            (Some(Notice::UnknownJob), Phase::Joining { .. }) if answers_request => {
                self.fail(Failure::StoreLost { job, round: self.base });
            }
            // Not to a JOIN from before the job was there, which names no segment.
            (Some(Notice::UnknownJob), Phase::Pulling | Phase::Pushing) if packet.segment() < self.config.segments => {
                self.fail(Failure::StoreLost { job, round: self.base });
            }
            (Some(Notice::UnknownJob), _) => self.counters.stale += 1,
            (Some(Notice::Rejoin), Phase::Pushing) => self.ask(now, Phase::Joining { resume: true }),
            (Some(Notice::Dropped), Phase::Pushing) => {
                // The others go on without us. We come back with the model as it is then.
                self.interrupted = self.transfer.open_segments();
                self.ask(now, Phase::Joining { resume: false });
            }
            (Some(_), Phase::Pulling) => self.ask(now, Phase::Joining { resume: false }),
            // To a packet before; or nothing is under way, and the next packet will bring the same notice.
            _ => self.counters.stale += 1,
        }
    }
}
