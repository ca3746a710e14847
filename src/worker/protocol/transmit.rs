//! What a worker sends, and when.

use super::super::config::Config;
use super::super::report::{Event, Failure};
use super::super::transfer::RoundTrip;
use super::{Phase, Worker, timestamp};
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Flags, HEADER_LEN, Repr, Type};

/// A LEAVE without an answer is sent so often; the switch finds out by itself if need be.
const LEAVE_RETRIES: u8 = 5;

impl Worker {
    /// Writes the payload of the next packet to send into `out` and returns its length, which is at most
    /// `HEADER_LEN + 4 * lanes`. Call again until there is none.
    pub fn poll_transmit(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        self.run_timers(now);
        let ts_us = timestamp(now);
        let (mut repr, lanes) = match self.phase {
            Phase::Joining { .. } | Phase::Leaving => {
                let kind = if self.phase == Phase::Leaving { Type::Leave } else { Type::Join };
                if self.request_due() > now {
                    return None;
                }
                let again = self.request.sent_at.replace(now).is_some();
                self.request.retries = self.request.retries.saturating_add(u8::from(again));
                let flags = Flags(0).with(Flags::RETX, again);
                (Repr { flags, segment: self.config.segments, ..self.header(kind) }, &[][..])
            }
            Phase::Pulling | Phase::Pushing => {
                let due = self.transfer.poll(now, ts_us)?;
                let flags = Flags(0).with(Flags::RETX, due.retransmission);
                let (kind, flags, lanes) = if self.phase == Phase::Pulling {
                    (Type::Pull, flags, &[][..])
                } else {
                    self.report.retransmissions += u32::from(due.retransmission);
                    if self.report.pushed_at == 0 && self.transfer.all_sent() {
                        self.report.pushed_at = now;
                    }
                    let flags = flags.with(Flags::OVERFLOW, self.report.clipped > 0);
                    (Type::Push, flags, self.store.segment(due.segment))
                };
                (Repr { flags, segment: due.segment, lane_count: lanes.len() as u16, ..self.header(kind) }, lanes)
            }
            Phase::Ready | Phase::Over => return None,
        };
        repr.ts_us = ts_us;
        repr.emit(out).ok()?;
        let body = out.get_mut(HEADER_LEN..HEADER_LEN + 4 * lanes.len())?;
        body.as_chunks_mut().0.iter_mut().zip(lanes).for_each(|(bytes, lane)| *bytes = lane.to_be_bytes());
        self.counters.packets_sent += 1;
        self.counters.retransmissions += u64::from(repr.flags.contains(Flags::RETX));
        Some(HEADER_LEN + 4 * lanes.len())
    }

    fn header(&self, kind: Type) -> Repr {
        Repr {
            worker: self.config.worker,
            round: self.round,
            norm: self.norm,
            rule_version: self.rule_version,
            frontier: self.base,
            incarnation_or_included: self.config.incarnation,
            ..Repr::new(kind, self.config.job)
        }
    }

    fn request_due(&self) -> Nanos {
        let rto_ns = RoundTrip::default().rto_ns(self.request.retries.saturating_add(2));
        self.request.sent_at.map_or(0, |sent_at| sent_at + rto_ns)
    }

    /// When patience ends: with the switch, or with the answer to a LEAVE.
    fn deadline(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Joining { .. } => Some(self.request.begun_at + self.config.join_timeout_ns),
            Phase::Pulling | Phase::Pushing => Some(self.heard_at + self.config.silence_timeout_ns),
            Phase::Leaving if self.request.retries >= LEAVE_RETRIES => Some(self.request_due()),
            _ => None,
        }
    }

    fn run_timers(&mut self, now: Nanos) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let Config { job, worker, .. } = self.config;
        match self.phase {
            Phase::Leaving => self.end(Event::Left),
            Phase::Joining { .. } => {
                let waited_ms = self.config.join_timeout_ns / 1_000_000;
                let answered = self.request.sent_at.is_some_and(|sent_at| sent_at <= self.heard_at);
                self.fail(match self.job_unknown && answered {
                    true => Failure::UnknownJob { job, waited_ms },
                    false => Failure::JoinTimeout { job, worker, waited_ms },
                });
            }
            _ => {
                let waited_ms = self.config.silence_timeout_ns / 1_000_000;
                self.fail(Failure::Silent { job, round: self.round, waited_ms });
            }
        }
    }

    /// When to come back although nothing came: a packet may leave, or a timer fires. May lie in the past, or be too early.
    /// `None`: nothing is under way.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let next = match self.phase {
            Phase::Joining { .. } | Phase::Leaving => Some(self.request_due()),
            Phase::Pulling | Phase::Pushing => self.transfer.next_timeout(),
            Phase::Ready | Phase::Over => return None,
        };
        next.into_iter().chain(self.deadline()).min()
    }
}
