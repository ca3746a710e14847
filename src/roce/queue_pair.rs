//! One end of a reliable connection: requester, responder, and the rate at which the requester may send.

use std::net::IpAddr;

use super::config::{Config, SourcePort};
use super::counters::Counters;
use super::dcqcn::NotificationPoint;
use super::pacer::Pacer;
use super::rate::RateControl;
use super::requester::{Message, Requester, Segment};
use super::responder::{Arrival, Grant, Responder};
use super::{Failure, psn};
use crate::dataplane::Nanos;
use crate::wire::Opcode;
use crate::wire::extension::{Aeth, Reth};
use crate::wire::roce::Repr;

/// Which neighbour a rank's queue pair is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To rank + 1: data goes out, clear-to-send comes back.
    Next,
    /// To rank - 1: data comes in, clear-to-send goes back.
    Prev,
}

/// The number of a rank's queue pair, which both ends can tell without talking: bits 23..16 the run (1 to 255, in turn),
/// 15..7 job and rank, 6..1 the channel, 0 the side.
pub fn queue_pair_number(job: u32, rank: u32, channel: u32, run: u32, side: Side) -> u32 {
    let run = run % 255 + 1;
    let who = job.wrapping_mul(64).wrapping_add(rank) & 0x1ff;
    run << 16 | who << 7 | (channel & 0x3f) << 1 | u32::from(side == Side::Prev)
}

/// The UDP source port that Linux verbs choose for flow label 0 (`rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`);
/// the same for both directions.
pub fn source_port(local_qpn: u32, remote_qpn: u32) -> u16 {
    let mut label = u64::from(local_qpn) * u64::from(remote_qpn);
    label ^= label >> 20;
    label ^= label >> 40;
    let label = (label & 0xf_ffff) as u32;
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}

/// What a packet meant to the owner of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    None,
    /// `len` bytes of the granted message came; `end` completes it.
    Written {
        /// Bytes before.
        offset: u32,
        /// Bytes in this packet.
        len: u32,
        /// The message is complete.
        end: bool,
    },
    /// So many own messages are known to have arrived.
    Acknowledged(u32),
}

/// One end of a connection.
#[derive(Debug)]
pub struct QueuePair {
    /// Own number.
    pub qpn: u32,
    /// Number at the other end.
    pub peer_qpn: u32,
    /// Address of the other end.
    pub peer: IpAddr,
    /// The other end has answered at least once.
    pub heard: bool,
    sport: u16,
    requester: Requester,
    responder: Responder,
    pacer: Pacer,
    /// `None`: at line rate.
    rate: Option<Box<dyn RateControl>>,
    notification: NotificationPoint,
    cnp_due: bool,
}

impl QueuePair {
    /// The queue pair of `config`'s rank to one neighbour.
    pub fn new(config: &Config, channel: u32, side: Side) -> Self {
        let (peer, peer_rank, peer_side) = match side {
            Side::Next => (config.next_addr, (config.rank + 1) % config.ranks, Side::Prev),
            Side::Prev => (config.prev_addr, (config.rank + config.ranks - 1) % config.ranks, Side::Next),
        };
        let qpn = queue_pair_number(config.job, config.rank, channel, config.run, side);
        let peer_qpn = queue_pair_number(config.job, peer_rank, channel, config.run, peer_side);
        QueuePair {
            qpn,
            peer_qpn,
            peer,
            heard: false,
            sport: source_port(qpn, peer_qpn),
            requester: Requester::new(config.path_mtu),
            responder: Responder::default(),
            pacer: Pacer::default(),
            rate: config.rate_control(),
            notification: NotificationPoint::default(),
            cnp_due: false,
        }
    }

    /// Sends an RDMA WRITE of `length` bytes to `va`. `step` goes into the source port where the job wants it so.
    pub fn post(&mut self, now: Nanos, config: &Config, write: Write) {
        if !self.requester.has_work() {
            self.pacer.wake(now);
        }
        let sport = match config.source_port {
            SourcePort::StepTag => 0xc000 | (write.step & 0x3fff) as u16,
            SourcePort::Verbs => self.sport,
        };
        let Write { length, va, immediate, source, .. } = write;
        self.requester.post(Message { length, va, immediate, sport, source });
    }

    /// Takes a packet that came for this queue pair from its peer.
    ///
    /// # Errors
    /// When the connection is broken for good.
    pub fn on_packet(
        &mut self,
        now: Nanos,
        config: &Config,
        repr: &Repr,
        ce: bool,
        grant: Option<Grant>,
        counters: &mut Counters,
    ) -> Result<Event, Failure> {
        if !std::mem::replace(&mut self.heard, true) {
            self.requester.forgive_timeouts();
        }
        if repr.opcode.is_cnp() {
            counters.cnps_received += 1;
            if let Some(rate) = &mut self.rate {
                rate.on_cnp(now);
            }
            return Ok(Event::None);
        }
        if let (true, Some(aeth)) = (repr.opcode.is_acknowledge(), repr.aeth) {
            return self.on_acknowledge(now, config, repr.psn, aeth, counters);
        }
        if !repr.opcode.is_request_data() {
            counters.unexpected += 1;
            return Ok(Event::None);
        }
        if ce {
            counters.ce_received += 1;
            let interval = config.congestion_control.map_or(0, |p| p.cnp_interval_ns);
            self.cnp_due |= config.congestion_control.is_some() && self.notification.on_ce(now, interval);
        }
        match self.responder.on_request(repr, config.first_psn, config.path_mtu, grant) {
            Arrival::InOrder { offset, len, end } => Ok(Event::Written { offset, len, end }),
            Arrival::Duplicate => {
                counters.duplicates += 1;
                Ok(Event::None)
            }
            Arrival::Gap => {
                counters.out_of_order += 1;
                Ok(Event::None)
            }
            Arrival::Invalid => Err(Failure::Refused { peer: self.peer }),
        }
    }

    fn on_acknowledge(
        &mut self,
        now: Nanos,
        config: &Config,
        psn: u32,
        aeth: Aeth,
        counters: &mut Counters,
    ) -> Result<Event, Failure> {
        let sending = self.requester.has_work();
        let completed = match aeth.syndrome {
            _ if aeth.is_ack() => {
                counters.acks_received += 1;
                self.requester.on_ack(now, config.first_psn, psn)
            }
            Aeth::NAK_PSN_SEQUENCE => {
                counters.naks_received += 1;
                self.requester.on_sequence_nak(now, config.first_psn, psn)
            }
            syndrome if aeth.is_nak() => {
                counters.naks_received += 1;
                return Err(Failure::Rejected { peer: self.peer, syndrome });
            }
            _ => {
                counters.unexpected += 1;
                None
            }
        };
        if !sending && self.requester.has_work() {
            self.pacer.wake(now);
        }
        Ok(completed.filter(|&n| n > 0).map_or(Event::None, Event::Acknowledged))
    }

    /// An acknowledgement or CNP is waiting; these never wait for data.
    pub fn has_control(&self) -> bool {
        self.cnp_due || self.responder.has_work()
    }

    /// The CNP, acknowledgement or NAK to send now.
    pub fn next_control(&mut self, config: &Config, counters: &mut Counters) -> Option<Repr> {
        if std::mem::take(&mut self.cnp_due) {
            counters.cnps_sent += 1;
            let cnp = Repr::cnp(config.addr, self.peer, self.peer_qpn);
            return Some(Repr { tos: config.cnp_tos, ..cnp }); // source port 0, as ConnectX sends it
        }
        let (psn, aeth) = self.responder.next_acknowledgement(config.first_psn)?;
        if aeth.is_ack() {
            counters.acks_sent += 1;
        } else {
            counters.naks_sent += 1;
        }
        let repr = Repr::new(config.addr, self.peer, Opcode::ACKNOWLEDGE, self.peer_qpn);
        Some(Repr { tos: config.tos, sport: self.sport, psn, aeth: Some(aeth), ..repr })
    }

    /// When the next data packet may leave as far as this queue pair's rate is concerned; `None`: there is none.
    pub fn data_due(&self) -> Option<Nanos> {
        self.requester.has_work().then(|| self.pacer.next())
    }

    /// The data packet to send now and, for its payload, where that comes from.
    pub fn next_data(&mut self, now: Nanos, config: &Config, counters: &mut Counters) -> Option<(Repr, Segment)> {
        let segment = self.requester.next_segment(now)?;
        let message = segment.message;
        let starts = segment.offset == 0;
        let base = Repr::new(config.addr, self.peer, segment.opcode, self.peer_qpn);
        let repr = Repr {
            tos: config.tos,
            sport: message.sport,
            ack_req: segment.is_end(),
            psn: psn::to_wire(config.first_psn, segment.count),
            reth: starts.then_some(Reth { va: message.va, rkey: self.peer_qpn, dma_len: message.length }),
            immediate: message.immediate.filter(|_| segment.is_end()),
            payload_len: segment.len as usize,
            ..base
        };
        counters.data_packets_sent += 1;
        counters.data_bytes_sent += u64::from(segment.len);
        counters.retransmitted_packets += u64::from(segment.retransmission);
        counters.retransmitted_bytes += u64::from(if segment.retransmission { segment.len } else { 0 });
        let bytes = repr.frame_len() as u64;
        let rate = match &mut self.rate {
            Some(rate) => {
                rate.on_sent(now, bytes);
                rate.rate_bps(now)
            }
            None => config.line_rate_bps as f64,
        };
        self.pacer.on_sent(now, bytes, rate, config.burst_packets);
        Some((repr, segment))
    }

    /// The rate that the requester sends at now, bit/s.
    pub fn rate_bps(&mut self, now: Nanos, config: &Config) -> f64 {
        self.rate.as_mut().map_or(config.line_rate_bps as f64, |rate| rate.rate_bps(now))
    }

    /// When the retransmission timer fires.
    pub fn deadline(&self, config: &Config) -> Option<Nanos> {
        self.requester.deadline(config.retransmit_timeout_ns)
    }

    /// Runs the retransmission timer. Until the peer has been heard of, the retry limit does not count: it may not have
    /// started yet.
    ///
    /// # Errors
    /// When the retry limit is reached.
    pub fn run_timer(&mut self, now: Nanos, config: &Config, counters: &mut Counters) -> Result<(), Failure> {
        if self.deadline(config).is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        if self.heard && self.requester.timeouts() >= config.retry_limit {
            return Err(Failure::RetriesExceeded { peer: self.peer, retries: config.retry_limit });
        }
        counters.timeouts += 1;
        self.requester.on_timeout(now);
        self.pacer.wake(now);
        Ok(())
    }

    /// Nothing to send, nothing waiting for an acknowledgement.
    pub fn is_idle(&self) -> bool {
        self.requester.is_idle() && !self.has_control()
    }
}

/// An RDMA WRITE to post.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Bytes.
    pub length: u32,
    /// Remote address.
    pub va: u64,
    /// Ends with an immediate.
    pub immediate: Option<u32>,
    /// Ring step it belongs to.
    pub step: u32,
    /// Where the payload is, for the owner.
    pub source: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_derive_the_same_numbers_and_ports() {
        let ring: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|a| a.parse().unwrap()).to_vec();
        let ranks: Vec<Config> = (0..3).map(|rank| Config::new(7, &ring, rank).unwrap()).collect();
        for channel in 0..2 {
            for rank in 0..3 {
                let ours = QueuePair::new(&ranks[rank], channel, Side::Next);
                let theirs = QueuePair::new(&ranks[(rank + 1) % 3], channel, Side::Prev);
                assert_eq!((ours.qpn, ours.peer_qpn, ours.sport), (theirs.peer_qpn, theirs.qpn, theirs.sport));
                assert_eq!((ours.peer, theirs.peer), (ranks[(rank + 1) % 3].addr, ranks[rank].addr));
            }
        }
    }

    #[test]
    fn a_run_shares_no_number_with_the_254_before_it() {
        let of = |run| queue_pair_number(1, 2, 3, run, Side::Prev);
        assert!((1..255).all(|earlier| of(300 - earlier) != of(300)));
        assert_eq!(of(45), of(300));
        assert!(of(0) > 0xffff && of(254) <= psn::MASK);
    }

    #[test]
    fn source_ports_follow_linux() {
        // rdma_calc_flow_label(0x11, 0x12) = 0x132; folded: 0x132 | 0xC000.
        assert_eq!(source_port(0x11, 0x12), 0xc132);
        // 0x123456 * 0x654321 = 0x7336bf94116: ^ >>20 = 0x7336be1a20d.. folded by hand below.
        let mut label: u64 = 0x123456 * 0x654321;
        label ^= label >> 20;
        label ^= label >> 40;
        let label = label & 0xfffff;
        assert_eq!(u64::from(source_port(0x123456, 0x654321)), ((label & 0x3fff) ^ (label >> 14)) | 0xc000);
        assert_eq!(source_port(5, 9), source_port(9, 5));
    }
}
