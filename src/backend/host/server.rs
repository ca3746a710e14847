//! One server: a thread that moves packets between its ranks' endpoints and its sockets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::socket::{ReceiveBuffers, Receiver, Sender};
use super::{Error, RankReport, ServerSpec, Starvation, netns};
use crate::backend::clock::{self, now};
use crate::dataplane::Nanos;
use crate::roce::{Config, Endpoint, Outcome};
use crate::wire::roce::Repr;
use crate::wire::{Ecn, ethernet};

/// How often the thread looks at what others tell it, with nothing to do.
const LOOK_AROUND_NS: Nanos = 20_000_000;

/// Most that packets wait for each other on their way in or out, as a NIC's interrupt moderation has it: a wake-up costs as
/// much processor time as a packet. Never more than two packets' time at line rate, so that bursts stay small.
const MODERATION_NS: Nanos = 100_000;

/// A rank that has neighbours in other processes answers them for so many retransmission timeouts after it last heard of
/// them: its last acknowledgement may have been lost.
const LINGER_TIMEOUTS: u64 = 4;

/// What all servers of a run share.
pub struct Shared<'a> {
    /// Somebody outside wants an end.
    pub stop: &'a AtomicBool,
    /// A server could not be set up, or a rank failed.
    pub failed: AtomicBool,
    /// Ranks that are not finished.
    pub unfinished: AtomicUsize,
    /// When the time is up.
    pub end: Nanos,
    /// Addresses of the run's ranks.
    pub local: Vec<IpAddr>,
}

struct Rank {
    endpoint: Endpoint,
    receiver: Receiver,
    linger_ns: Nanos,
    last_heard: Nanos,
    done: bool,
    malformed: BTreeMap<String, u64>,
}

/// A server ready to run.
pub struct Server {
    ranks: Vec<Rank>,
    senders: [Option<Sender>; 2],
    buffers: ReceiveBuffers,
    payload: Vec<u8>,
    poll: Vec<libc::pollfd>,
    moderation_ns: Nanos,
}

impl Server {
    /// Enters the namespace and opens the sockets.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(spec: &ServerSpec, shared: &Shared) -> Result<Self, Error> {
        if let Some(name) = &spec.netns {
            netns::enter(name).map_err(|source| Error::Namespace { name: name.clone(), source })?;
        }
        let mut senders = [None, None];
        let mut ranks = Vec::new();
        for config in &spec.ranks {
            let addr = config.addr;
            let sender = &mut senders[usize::from(addr.is_ipv6())];
            if sender.is_none() {
                *sender = Some(Sender::new(addr).map_err(|source| Error::RawSocket { source })?);
            }
            let remote = !(shared.local.contains(&config.next_addr) && shared.local.contains(&config.prev_addr));
            ranks.push(Rank {
                receiver: Receiver::new(addr).map_err(|source| Error::Bind { addr, source })?,
                linger_ns: if remote { LINGER_TIMEOUTS * config.retransmit_timeout_ns } else { 0 },
                last_heard: 0,
                done: false,
                malformed: BTreeMap::new(),
                endpoint: Endpoint::new(config.clone())?,
            });
        }
        let fd = |rank: &Rank| libc::pollfd { fd: rank.receiver.raw_fd(), events: libc::POLLIN, revents: 0 };
        let poll = ranks.iter().map(fd).collect();
        let two_packets = |c: &Config| u64::from(c.path_mtu) * 16_000_000_000 / c.line_rate_bps;
        let moderation_ns = spec.ranks.iter().map(two_packets).min().unwrap_or(0).min(MODERATION_NS);
        let (buffers, payload) = (ReceiveBuffers::new(), vec![0; 4096]);
        Ok(Server { ranks, senders, buffers, payload, poll, moderation_ns })
    }

    /// Runs until every rank of the run is done, one failed, time is up or somebody stops it.
    ///
    /// # Errors
    /// [`Error::PathMtu`].
    pub fn run(mut self, shared: &Shared) -> Result<Vec<RankReport>, Error> {
        clock::be_punctual(clock::HOST_PRIORITY); // where it may not, packets leave later, which is reported
        let cpu_before = clock::thread_cpu();
        loop {
            self.receive();
            let next = self.transmit();
            if self.senders.iter().flatten().any(Sender::found_too_long) {
                shared.failed.store(true, Ordering::Relaxed);
                return Err(self.path_mtu_error());
            }
            self.settle(shared);
            let time = now();
            let over = shared.unfinished.load(Ordering::Relaxed) == 0
                || shared.failed.load(Ordering::Relaxed)
                || shared.stop.load(Ordering::Relaxed)
                || time >= shared.end;
            if over {
                break;
            }
            clock::sleep(self.moderation_ns);
            let wait = next.unwrap_or(Nanos::MAX).saturating_sub(now()).min(LOOK_AROUND_NS);
            // A kernel that refuses leaves us looking at the sockets after each pause.
            let _ = clock::wait(&mut self.poll, wait);
        }
        let cpu_ns = clock::thread_cpu().saturating_sub(cpu_before);
        Ok(self.report(cpu_ns))
    }

    fn path_mtu_error(&self) -> Error {
        // IP, UDP, BTH, RETH, immediate, ICRC.
        let needed = |c: &Config| c.path_mtu + if c.addr.is_ipv4() { 20 } else { 40 } + 8 + 12 + 16 + 4 + 4;
        let configs = self.ranks.iter().map(|rank| rank.endpoint.config());
        let (needed, path_mtu) = configs.map(|c| (needed(c), c.path_mtu)).max().unwrap_or_default();
        Error::PathMtu { path_mtu, needed }
    }

    fn receive(&mut self) {
        for (rank, poll) in self.ranks.iter_mut().zip(&mut self.poll) {
            // Looking costs a system call a rank; poll has told who has something.
            if std::mem::take(&mut poll.revents) == 0 {
                continue;
            }
            let Rank { endpoint, receiver, last_heard, malformed, .. } = rank;
            let addr = receiver.addr;
            let time = now();
            receiver.receive(&mut self.buffers, |origin, bytes| {
                match Repr::parse_udp_payload(origin.src, addr, origin.tos, origin.sport, bytes) {
                    Ok((repr, payload)) => {
                        *last_heard = time;
                        endpoint.on_packet(time, &repr, payload, Ecn::from_tos(origin.tos) == Ecn::Ce);
                    }
                    Err(error) => *malformed.entry(error.to_string()).or_default() += 1,
                }
            });
        }
    }

    /// Sends what is due, and says when the next thing is.
    fn transmit(&mut self) -> Option<Nanos> {
        for rank in &mut self.ranks {
            let Some(sender) = &mut self.senders[usize::from(rank.receiver.addr.is_ipv6())] else { continue };
            let time = now();
            while let Some(transmit) = rank.endpoint.poll_transmit(time) {
                let repr = transmit.repr;
                let Some(payload) = self.payload.get_mut(..repr.payload_len) else { continue };
                rank.endpoint.read_payload(transmit.data, payload);
                sender.push(repr.dst, |room| repr.emit_frame([0; 6], [0; 6], payload, room).unwrap_or(0));
                if sender.is_full() {
                    sender.flush(ethernet::HEADER_LEN);
                }
            }
        }
        for sender in self.senders.iter_mut().flatten().filter(|sender| !sender.is_empty()) {
            sender.flush(ethernet::HEADER_LEN);
        }
        self.ranks.iter().filter_map(|rank| rank.endpoint.next_timeout()).min()
    }

    /// Tells the others which ranks are done.
    fn settle(&mut self, shared: &Shared) {
        for rank in self.ranks.iter_mut().filter(|rank| !rank.done) {
            let answered = || rank.linger_ns == 0 || now() >= rank.last_heard + rank.linger_ns;
            match rank.endpoint.outcome() {
                Outcome::Failed(_) => shared.failed.store(true, Ordering::Relaxed),
                Outcome::Finished { .. } if rank.endpoint.is_idle() && answered() => {
                    rank.done = true;
                    shared.unfinished.fetch_sub(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    fn report(self, cpu_ns: Nanos) -> Vec<RankReport> {
        let refused = self.senders.iter().flatten().map(|sender| sender.refused).sum();
        let mut errors = self.senders.iter().flatten().filter_map(|sender| sender.last_error.as_ref());
        let last_refusal = errors.next().map(ToString::to_string);
        let report = |mut rank: Rank| {
            let (config, outcome) = (rank.endpoint.config(), *rank.endpoint.outcome());
            let (job, number, start) = (config.job, config.rank, config.start_at);
            let finish = if let Outcome::Finished { at } = outcome { Some(at) } else { None };
            let counters = rank.endpoint.counters().clone();
            let lasted = finish.unwrap_or_else(now).saturating_sub(start).max(1);
            RankReport {
                job,
                rank: number,
                start,
                finish,
                steps: rank.endpoint.progress().to_vec(),
                verified: finish.map(|_| rank.endpoint.verify()),
                outcome,
                starvation: Starvation {
                    late_max_ns: counters.late_max_ns,
                    share_lost: counters.late_lost_ns as f64 / lasted as f64,
                    receive_overflows: rank.receiver.overflows.into(),
                    cpu_ns,
                },
                counters,
                malformed: rank.malformed,
                refused,
                last_refusal: last_refusal.clone(),
            }
        };
        self.ranks.into_iter().map(report).collect()
    }
}
