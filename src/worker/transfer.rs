//! One exchange of all segments with the switch: what is due, when it is sent again, and how many packets are on their way.
//!
//! A packet without an answer is either lost, or its segment waits for other workers. The first retransmission finds out:
//! the switch answers it with the result or with WAIT. After WAIT there is no hurry, as the result comes by itself; but once
//! results of the round flow, one that stays out when the flow has ended is as likely lost.

use std::collections::VecDeque;

use crate::dataplane::Nanos;

/// Least time until a packet is sent again.
const MIN_RTO_NS: Nanos = 5_000_000;
/// Most, and what holds after WAIT.
const MAX_RTO_NS: Nanos = 200_000_000;
/// A packet is on its way for at least so long, as far as the window is concerned.
const MIN_FLIGHT_NS: Nanos = 1_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Fresh,
    Sent,
    Done,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    state: State,
    /// Answered with WAIT.
    waits: bool,
    /// The segment has moved on at the switch, so that an answer must be there: ask for it soon.
    hinted: bool,
    /// Transmissions less one.
    retries: u8,
    sent_at: Nanos,
    ts_us: u32,
}

/// The smoothed round trip (RFC 6298's gain).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    pub smoothed_ns: Option<Nanos>,
}

impl RoundTrip {
    fn sample(&mut self, ns: Nanos) {
        self.smoothed_ns = Some(self.smoothed_ns.map_or(ns, |old| old - old / 8 + ns / 8));
    }

    pub fn rto_ns(&self, retries: u8) -> Nanos {
        let base = self.smoothed_ns.map_or(MIN_RTO_NS, |rtt| (4 * rtt).clamp(MIN_RTO_NS, MAX_RTO_NS));
        (base << retries.min(8)).min(MAX_RTO_NS)
    }

    fn flight_ns(&self) -> Nanos {
        self.smoothed_ns.map_or(MIN_RTO_NS, |rtt| (4 * rtt).clamp(MIN_FLIGHT_NS, MAX_RTO_NS))
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub segment: u32,
    pub retransmission: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Transfer {
    segments: Vec<Segment>,
    /// Segments on their way, oldest first: neither answered nor out for so long that they must have left the network.
    flying: VecDeque<u32>,
    window: usize,
    /// The first segment not sent.
    fresh: u32,
    open: u32,
    /// When the last answer of this exchange came.
    flowed_at: Option<Nanos>,
    /// No retransmission is due before.
    earliest: Nanos,
    pub round_trip: RoundTrip,
}

impl Transfer {
    pub fn new(segments: u32, window: usize) -> Self {
        Transfer {
            segments: vec![Segment::default(); segments as usize],
            flying: VecDeque::with_capacity(window),
            window,
            fresh: segments,
            open: 0,
            flowed_at: None,
            earliest: Nanos::MAX,
            round_trip: RoundTrip::default(),
        }
    }

    /// Begins an exchange of all segments.
    pub fn begin(&mut self) {
        self.segments.fill(Segment::default());
        self.open = self.segments.len() as u32;
        self.rewind();
    }

    /// Begins again with those that are not done, as if nothing of them had been sent.
    pub fn resume(&mut self) {
        for segment in self.segments.iter_mut().filter(|s| s.state != State::Done) {
            *segment = Segment::default();
        }
        self.rewind();
    }

    /// Leaves all segments but these out of an exchange that has just begun. They are in order.
    pub fn restrict(&mut self, to: &[u32]) {
        for (segment, state) in (0..).zip(&mut self.segments) {
            if to.binary_search(&segment).is_err() {
                state.state = State::Done;
            }
        }
        self.open = to.len() as u32;
        self.skip_done();
    }

    fn rewind(&mut self) {
        self.flying.clear();
        self.fresh = 0;
        self.flowed_at = None;
        self.earliest = Nanos::MAX;
        self.skip_done();
    }

    fn skip_done(&mut self) {
        while self.segments.get(self.fresh as usize).is_some_and(|s| s.state != State::Fresh) {
            self.fresh += 1;
        }
    }

    /// Segments without an answer.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Which these are.
    pub fn open_segments(&self) -> Vec<u32> {
        (0..).zip(&self.segments).filter(|(_, s)| s.state != State::Done).map(|(segment, _)| segment).collect()
    }

    /// Every segment was sent at least once.
    pub fn all_sent(&self) -> bool {
        self.fresh as usize == self.segments.len()
    }

    /// The segment was sent in this exchange and has no answer.
    pub fn awaits(&self, segment: u32) -> bool {
        self.segments.get(segment as usize).is_some_and(|s| s.state == State::Sent)
    }

    /// `ts_us` is what the segment's last packet carried.
    pub fn is_latest(&self, segment: u32, ts_us: u32) -> bool {
        self.segments.get(segment as usize).is_some_and(|s| s.state == State::Sent && s.ts_us == ts_us)
    }

    /// What to send now, if anything. It counts as sent.
    pub fn poll(&mut self, now: Nanos, ts_us: u32) -> Option<Due> {
        let due = self.poll_again(now).or_else(|| self.poll_fresh(now))?;
        let segment = self.segments.get_mut(due.segment as usize)?;
        segment.state = State::Sent;
        segment.hinted = false;
        segment.sent_at = now;
        segment.ts_us = ts_us;
        if due.retransmission {
            segment.retries = segment.retries.saturating_add(1);
        }
        let again = self.due_at(due.segment);
        self.earliest = self.earliest.min(again);
        Some(due)
    }

    fn poll_fresh(&mut self, now: Nanos) -> Option<Due> {
        if self.all_sent() {
            return None;
        }
        self.land(now);
        if self.flying.len() >= self.window {
            return None;
        }
        let segment = self.fresh;
        self.fresh += 1;
        self.skip_done();
        self.flying.push_back(segment);
        Some(Due { segment, retransmission: false })
    }

    /// Takes out of the window what is answered or must have left the network.
    fn land(&mut self, now: Nanos) {
        while let Some(landing) = self.landing()
            && landing <= now
        {
            self.flying.pop_front();
        }
    }

    /// When the oldest packet leaves the window.
    fn landing(&self) -> Option<Nanos> {
        let oldest = self.segments.get(*self.flying.front()? as usize)?;
        let answered = oldest.state == State::Done || oldest.waits;
        Some(if answered { 0 } else { oldest.sent_at + self.round_trip.flight_ns() })
    }

    fn poll_again(&mut self, now: Nanos) -> Option<Due> {
        if self.earliest > now {
            return None;
        }
        let mut earliest = Nanos::MAX;
        for segment in 0..self.segments.len() as u32 {
            let due = self.due_at(segment);
            if due <= now {
                return Some(Due { segment, retransmission: true });
            }
            earliest = earliest.min(due);
        }
        self.earliest = earliest;
        None
    }

    /// When the segment's packet is to be sent again.
    fn due_at(&self, segment: u32) -> Nanos {
        let Some(s) = self.segments.get(segment as usize).filter(|s| s.state == State::Sent) else { return Nanos::MAX };
        if s.hinted {
            return s.sent_at + 2 * self.round_trip.smoothed_ns.unwrap_or(MIN_RTO_NS);
        }
        match (s.waits, self.flowed_at) {
            (true, None) => s.sent_at + MAX_RTO_NS,
            (true, Some(flowed_at)) => s.sent_at.max(flowed_at) + self.round_trip.rto_ns(s.retries),
            (false, _) => s.sent_at + self.round_trip.rto_ns(s.retries),
        }
    }

    /// The segment has its answer. `ts_us` as echoed.
    pub fn on_answer(&mut self, now: Nanos, segment: u32, ts_us: u32) {
        self.sample(now, segment, ts_us);
        let Some(s) = self.segments.get_mut(segment as usize).filter(|s| s.state == State::Sent) else { return };
        s.state = State::Done;
        self.open -= 1;
        if self.flowed_at.replace(now).is_none() {
            // Those that wait are due earlier from now on.
            self.earliest = self.earliest.min(now + self.round_trip.rto_ns(0));
        }
    }

    /// The switch has the segment and waits for other workers.
    pub fn on_wait(&mut self, now: Nanos, segment: u32, ts_us: u32) {
        self.sample(now, segment, ts_us);
        let Some(s) = self.segments.get_mut(segment as usize).filter(|s| s.state == State::Sent) else { return };
        if !std::mem::replace(&mut s.waits, true) {
            s.retries = 0;
        }
    }

    /// The segment has moved on at the switch: whatever the answer is, it is there.
    pub fn hint(&mut self, segment: u32) {
        let Some(s) = self.segments.get_mut(segment as usize).filter(|s| s.state == State::Sent) else { return };
        s.hinted = true;
        self.earliest = self.earliest.min(self.due_at(segment));
    }

    /// Only the echo of the last packet tells a round trip.
    fn sample(&mut self, now: Nanos, segment: u32, ts_us: u32) {
        let Some(s) = self.segments.get(segment as usize) else { return };
        if s.state == State::Sent && s.ts_us == ts_us {
            self.round_trip.sample(now.saturating_sub(s.sent_at));
        }
    }

    /// When something is to be sent although nothing comes. May be too early, never too late.
    pub fn next_timeout(&self) -> Option<Nanos> {
        if self.open == 0 {
            return None;
        }
        let fresh = match self.all_sent() {
            true => Nanos::MAX,
            false if self.flying.len() < self.window => 0,
            false => self.landing().unwrap_or(0),
        };
        Some(self.earliest.min(fresh))
    }
}
