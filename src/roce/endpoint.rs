//! One rank: its NIC (pacing, fairness between queue pairs, control first) and the collective that runs on it.
//!
//! A driver calls [`Endpoint::on_packet`] for what came, [`Endpoint::poll_transmit`] until it gives nothing more, and comes
//! back at [`Endpoint::next_timeout`] at the latest.

use super::buffer::{Buffer, WrongValue};
use super::channel::{Channel, clear_to_send};
use super::config::{Config, ConfigError};
use super::counters::Counters;
use super::pacer::Pacer;
use super::queue_pair::{Event, QueuePair, Side};
use super::{Failure, Outcome};
use crate::dataplane::Nanos;
use crate::wire::roce::{CNP_RESERVED, Repr};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its headers.
    pub repr: Repr,
    /// Its payload, for [`Endpoint::read_payload`].
    pub data: DataRef,
}

/// Names the payload of a packet without holding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRef {
    source: Source,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nothing, or the reserved zeros of a CNP.
    Zeros,
    Buffer,
    ClearToSend,
}

/// One rank of a job. See the module's head.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    channels: Vec<Channel>,
    buffer: Option<Buffer>,
    line: Pacer,
    /// Index of the queue pair whose turn it is.
    turn: usize,
    /// It computes, or waits for its start, until then.
    waits_until: Option<Nanos>,
    /// Every neighbour that must answer has.
    acquainted: bool,
    /// Collectives completed.
    iterations: u32,
    steps: Vec<Nanos>,
    outcome: Outcome,
    counters: Counters,
}

impl Endpoint {
    /// A rank that begins at `config.start_at`.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            channels: (0..config.channels).map(|channel| Channel::new(&config, channel)).collect(),
            buffer: config.data.then(|| Buffer::new(&config)),
            line: Pacer::default(),
            turn: 0,
            waits_until: Some(config.start_at),
            acquainted: false,
            iterations: 0,
            steps: Vec::with_capacity(
                config.collective.steps(config.ranks).saturating_mul(config.iterations).min(1 << 16) as usize,
            ),
            outcome: Outcome::Running,
            counters: Counters::default(),
            config,
        })
    }

    /// What it was told.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it is over, and how.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// When each step was completed: received on all channels, or, at the sender of a stream, acknowledged.
    pub fn progress(&self) -> &[Nanos] {
        &self.steps
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The rate of the data queue pair of `channel`, bit/s.
    pub fn rate_bps(&mut self, now: Nanos, channel: u32) -> Option<f64> {
        let channel = self.channels.get_mut(channel as usize)?;
        Some(channel.next.rate_bps(now, &self.config))
    }

    /// Nothing is left to send and everything sent is acknowledged. A rank that is finished may still have to answer its
    /// neighbours.
    pub fn is_idle(&self) -> bool {
        self.queue_pairs().all(QueuePair::is_idle)
    }

    /// Compares the values with what the collective must leave. Right only once the rank has finished.
    ///
    /// # Errors
    /// The first wrong element.
    pub fn verify(&mut self) -> Result<(), WrongValue> {
        match &mut self.buffer {
            Some(buffer) => buffer.verify(&self.config),
            None => Ok(()),
        }
    }

    /// Takes a packet that came for this rank's address; `ce` tells whether it was marked. `payload` may be empty when the
    /// job runs without data.
    pub fn on_packet(&mut self, now: Nanos, repr: &Repr, payload: &[u8], ce: bool) {
        if matches!(self.outcome, Outcome::Failed(_)) {
            return;
        }
        let index = (repr.dest_qpn >> 1 & 0x3f) as usize;
        let side = if repr.dest_qpn & 1 == 0 { Side::Next } else { Side::Prev };
        let known = self.channels.get_mut(index).filter(|c| {
            let qp = c.queue_pair(side);
            qp.qpn == repr.dest_qpn && qp.peer == repr.src
        });
        let Some(channel) = known else {
            self.counters.unknown += 1;
            return;
        };
        self.counters.packets_received += 1;
        self.counters.bytes_received += repr.frame_len() as u64;
        let grant = channel.grant(&self.config, side);
        let qp = channel.queue_pair_mut(side);
        let event = match qp.on_packet(now, &self.config, repr, ce, grant, &mut self.counters) {
            Ok(event) => event,
            Err(failure) => return self.outcome = Outcome::Failed(failure),
        };
        match event {
            Event::None => return,
            Event::Acknowledged(messages) if side == Side::Next => channel.acknowledged += u64::from(messages),
            Event::Acknowledged(_) => {}
            Event::Written { offset, len, end } => {
                self.counters.data_packets_received += 1;
                self.counters.data_bytes_received += u64::from(len);
                match side {
                    Side::Next => channel.granted += u64::from(end),
                    Side::Prev => {
                        if let Some(buffer) = &mut self.buffer {
                            let (at, reduce) = channel.destination(&self.config);
                            buffer.write(at + u64::from(offset), payload, reduce);
                        }
                        channel.received += u64::from(end);
                    }
                }
            }
        }
        self.advance(now);
    }

    /// The packet to send now, if there is one. Call again until there is none.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        // Control goes out of a failed rank too: a refusal must be told.
        if let Some(control) = self.poll_control(now) {
            return Some(control);
        }
        if self.line.next() > now || matches!(self.outcome, Outcome::Failed(_)) {
            return None;
        }
        let queue_pairs = self.channels.len() * 2;
        for i in 0..queue_pairs {
            let index = (self.turn + i) % queue_pairs;
            let Some(channel) = self.channels.get_mut(index / 2) else { continue };
            let (qp, source) = match index % 2 {
                0 => (&mut channel.next, Source::Buffer),
                _ => (&mut channel.prev, Source::ClearToSend),
            };
            let Some(due) = qp.data_due().filter(|&due| due <= now) else { continue };
            let Some((repr, segment)) = qp.next_data(now, &self.config, &mut self.counters) else { continue };
            // The line was free while the queue pair's own rate held it back: that time is gone.
            let due = due.max(self.line.next());
            self.line.wake(due);
            let (bytes, line_bps) = (repr.frame_len() as u64, self.config.line_rate_bps as f64);
            let credit_ns = bytes as f64 * 8e9 / qp.rate_bps(now, &self.config) * f64::from(self.config.burst_packets);
            self.counters.late_max_ns = self.counters.late_max_ns.max(now - due);
            self.counters.late_lost_ns += (now - due).saturating_sub(credit_ns as Nanos);
            self.line.on_sent(now, bytes, line_bps, self.config.burst_packets);
            self.turn = index + 1;
            let offset = match source {
                Source::Buffer => segment.message.source + u64::from(segment.offset),
                _ => segment.message.source,
            };
            return Some(self.sent(Transmit { repr, data: DataRef { source, offset } }));
        }
        None
    }

    /// The acknowledgement or CNP to send now, if there is one: for a driver that must not send data.
    pub fn poll_control(&mut self, now: Nanos) -> Option<Transmit> {
        self.run_timers(now);
        let repr = self.next_control()?;
        self.line.on_sent(now, repr.frame_len() as u64, self.config.line_rate_bps as f64, self.config.burst_packets);
        Some(self.sent(Transmit { repr, data: DataRef { source: Source::Zeros, offset: 0 } }))
    }

    /// Fills `out`, which is as long as the packet's `payload_len`.
    pub fn read_payload(&self, data: DataRef, out: &mut [u8]) {
        match (data.source, &self.buffer) {
            (Source::Buffer, Some(buffer)) => buffer.read(data.offset, out),
            (Source::ClearToSend, _) => {
                let slot = clear_to_send(&self.config, data.offset);
                out.iter_mut().zip(slot).for_each(|(out, byte)| *out = byte);
            }
            _ => out.fill(CNP_RESERVED[0]),
        }
    }

    /// When to come back although nothing came: a packet may leave or a timer fires. May lie in the past.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let mut next = self.waits_until.unwrap_or(Nanos::MAX);
        for qp in self.queue_pairs() {
            if qp.has_control() {
                return Some(0);
            }
            let due = qp.data_due().map_or(Nanos::MAX, |due| due.max(self.line.next()));
            next = next.min(due).min(qp.deadline(&self.config).unwrap_or(Nanos::MAX));
        }
        if matches!(self.outcome, Outcome::Failed(_)) {
            return None;
        }
        next = next.min(self.connect_deadline().unwrap_or(Nanos::MAX));
        (next < Nanos::MAX).then_some(next)
    }

    fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.channels.iter().flat_map(|c| [&c.next, &c.prev])
    }

    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += transmit.repr.frame_len() as u64;
        transmit
    }

    fn next_control(&mut self) -> Option<Repr> {
        for channel in &mut self.channels {
            for qp in [&mut channel.next, &mut channel.prev] {
                if let Some(repr) = qp.next_control(&self.config, &mut self.counters) {
                    return Some(repr);
                }
            }
        }
        None
    }

    /// Until when a neighbour that must answer and has not may be silent.
    fn connect_deadline(&self) -> Option<Nanos> {
        if self.acquainted {
            return None;
        }
        self.silent_neighbour()?;
        Some(self.config.start_at.saturating_add(self.config.connect_timeout_ns))
    }

    fn silent_neighbour(&self) -> Option<&QueuePair> {
        let Config { collective, rank, ranks, .. } = self.config;
        self.channels.iter().find_map(|c| {
            let next = (collective.sends(rank, ranks) && !c.next.heard).then_some(&c.next);
            next.or((collective.receives(rank) && !c.prev.heard).then_some(&c.prev))
        })
    }

    fn run_timers(&mut self, now: Nanos) {
        if matches!(self.outcome, Outcome::Failed(_)) {
            return;
        }
        if self.waits_until.is_some_and(|until| now >= until) {
            self.waits_until = None;
            self.advance(now);
        }
        for qp in self.channels.iter_mut().flat_map(|c| [&mut c.next, &mut c.prev]) {
            if let Err(failure) = qp.run_timer(now, &self.config, &mut self.counters) {
                self.outcome = Outcome::Failed(failure);
                return;
            }
        }
        if self.acquainted {
            return;
        }
        match self.silent_neighbour().map(|silent| silent.peer) {
            None => self.acquainted = true,
            Some(peer) if self.connect_deadline().is_some_and(|deadline| now >= deadline) => {
                self.outcome = Outcome::Failed(Failure::Silent { peer });
            }
            Some(_) => {}
        }
    }

    /// Moves the collective on: posts what may be posted, notes completed steps, begins the next collective.
    fn advance(&mut self, now: Nanos) {
        while self.waits_until.is_none() {
            for channel in &mut self.channels {
                channel.post(now, &self.config, self.iterations);
            }
            let completed = self.channels.iter().map(|c| c.completed_steps(&self.config)).min().unwrap_or(0);
            while (self.steps.len() as u64) < completed {
                self.steps.push(now);
            }
            let steps = u64::from(self.config.collective.steps(self.config.ranks));
            if completed < (u64::from(self.iterations) + 1) * steps {
                break;
            }
            if self.iterations + 1 >= self.config.iterations {
                if self.outcome == Outcome::Running {
                    self.outcome = Outcome::Finished { at: now };
                }
                break;
            }
            // The values may change only when nobody will ask for them again.
            if !self.channels.iter().all(|c| c.is_sent(&self.config, self.iterations)) {
                break;
            }
            if let Err(wrong) = self.verify() {
                self.outcome = Outcome::Failed(Failure::WrongValue(wrong));
                break;
            }
            if let Some(buffer) = &mut self.buffer {
                buffer.refill(&self.config);
            }
            self.iterations += 1;
            self.waits_until = (self.config.compute_ns > 0).then(|| now.saturating_add(self.config.compute_ns));
        }
    }
}
