//! A parameter server with the switch's protocol: what aggregation costs when it is done at the edge. Every worker waits
//! for every other (BSP), and each packet passes one socket.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::client::draw;
use super::socket::{PAYLOAD_BYTES, Socket};
use crate::backend::host::netns;
use crate::dataplane::Nanos;
use crate::wire::aggregation::{Flags, HEADER_LEN, MAX_WORKERS, Notice, Packet, Repr, Type};
use crate::worker::{Config, ConfigError};

/// How often the server looks whether it is to stop.
const LOOK_AROUND_NS: Nanos = 100_000_000;

/// The only rule has this version.
const RULE_VERSION: u16 = 1;

/// A parameter server's job.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Namespace under `/run/netns` to run in; `None`: where we are.
    pub netns: Option<String>,
    /// Where it listens. Port 0: any.
    pub listen: SocketAddrV4,
    /// Job.
    pub job: u8,
    /// Number of workers, 1 to 32. Nobody gets a sum before all of them have joined and pushed.
    pub workers: u8,
    /// Packets that a vector takes.
    pub segments: u32,
    /// Values of a packet.
    pub lanes: usize,
}

/// Why a server can't run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Segments or lanes.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Number of workers.
    #[error("workers = {0}: must be 1 to 32")]
    Workers(u8),
    /// The namespace can't be entered.
    #[error(
        "cannot enter network namespace {name}: {reason}. `ip netns list` shows those that exist; entering needs root"
    )]
    Namespace {
        /// Its name.
        name: String,
        /// Why.
        reason: io::Error,
    },
    /// No socket.
    #[error("cannot listen on {listen}: {reason}. Is the address on an interface here, and the port not in use?")]
    Bind {
        /// The address.
        listen: SocketAddrV4,
        /// Why.
        reason: io::Error,
    },
    /// The thread is gone.
    #[error("the parameter server's thread ended before its time")]
    Died,
}

/// What a server counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Packets that came.
    pub received: u64,
    /// Packets that went.
    pub sent: u64,
    /// Packets that are none, for another job, or of no member.
    pub foreign: u64,
    /// Contributions that were in already.
    pub duplicates: u64,
    /// Rounds that were summed, counted at the last segment.
    pub rounds: u64,
    /// Packets that the kernel refused.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    address: Option<SocketAddrV4>,
    incarnation: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// Last round summed.
    frontier: u32,
    /// Workers whose contribution to the next is in.
    arrived: u32,
    /// Workers whose contribution is in `frontier`'s sum.
    included: u32,
}

/// See the file's head.
pub struct ParameterServer {
    config: ServerConfig,
    socket: Socket,
    epoch: u32,
    members: Vec<Member>,
    /// Workers that are waited for: those that have not left.
    need: u32,
    segments: Vec<Segment>,
    /// Of the open round.
    accumulator: Vec<i32>,
    sum: Vec<i32>,
    counters: ServerCounters,
    buffer: [u8; PAYLOAD_BYTES],
}

/// A server in a thread of its own. Dropping it stops the server.
pub struct ServerHandle {
    local: SocketAddrV4,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ServerCounters>>,
}

impl ServerHandle {
    /// Where it listens.
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Stops it.
    ///
    /// # Errors
    /// [`ServerError::Died`].
    pub fn stop(mut self) -> Result<ServerCounters, ServerError> {
        self.end().ok_or(ServerError::Died)
    }

    fn end(&mut self) -> Option<ServerCounters> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.end();
    }
}

impl ParameterServer {
    /// Listens. The namespace is entered by the calling thread.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let ServerConfig { job, workers, segments, lanes, listen, .. } = config;
        if workers == 0 || workers > MAX_WORKERS {
            return Err(ServerError::Workers(workers));
        }
        Config::new(job, 0, segments, lanes, 0).check()?;
        if let Some(name) = &config.netns {
            netns::enter(name).map_err(|reason| ServerError::Namespace { name: name.clone(), reason })?;
        }
        let socket = Socket::bind(listen).map_err(|reason| ServerError::Bind { listen, reason })?;
        let values = segments as usize * lanes;
        Ok(ParameterServer {
            socket,
            epoch: draw(),
            members: vec![Member::default(); usize::from(workers)],
            need: u32::MAX >> (32 - workers),
            segments: vec![Segment::default(); segments as usize],
            accumulator: vec![0; values],
            sum: vec![0; values],
            counters: ServerCounters::default(),
            buffer: [0; PAYLOAD_BYTES],
            config,
        })
    }

    /// Starts a server in a thread of its own, which alone enters the namespace. It listens when this returns.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn spawn(config: ServerConfig) -> Result<ServerHandle, ServerError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let listen = config.listen;
            match ParameterServer::bind(config) {
                Ok(server) => {
                    // The other end is gone only when nobody wants the server any more.
                    let _ = tell.send(Ok(server.socket.local().unwrap_or(listen)));
                    server.run(&until)
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                    ServerCounters::default()
                }
            }
        });
        let local = told.recv().map_err(|_| ServerError::Died)??;
        Ok(ServerHandle { local, stop, thread: Some(thread) })
    }

    /// Serves until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) -> ServerCounters {
        while !stop.load(Ordering::Relaxed) {
            // Where the kernel refuses to poll, reading is as good.
            let _ = self.socket.wait(LOOK_AROUND_NS);
            loop {
                match self.socket.receive(&mut self.buffer) {
                    Ok(Some((len, from))) => self.handle(len, from),
                    Ok(None) => break,
                    Err(_) => self.counters.refused += 1, // ICMP: a worker is gone
                }
            }
        }
        self.counters
    }

    fn handle(&mut self, len: usize, from: SocketAddrV4) {
        self.counters.received += 1;
        let parsed = Packet::new_checked(self.buffer.get(..len).unwrap_or(&[])).map(|packet| Repr::parse(&packet));
        let Ok(request) = parsed else { return self.counters.foreign += 1 };
        let known = request.job == self.config.job && usize::from(request.worker) < self.members.len();
        if !known {
            return self.counters.foreign += 1;
        }
        match request.kind {
            Type::Join => self.on_join(&request, from),
            _ if !self.is_member(&request, from) => self.notice(&request, from, Notice::Rejoin),
            Type::Leave => self.on_leave(&request, from),
            Type::Pull | Type::Push => self.on_segment(&request, from),
            _ => self.counters.foreign += 1,
        }
    }

    fn is_member(&self, request: &Repr, from: SocketAddrV4) -> bool {
        let member = self.members.get(usize::from(request.worker)).copied().unwrap_or_default();
        member.address == Some(from) && member.incarnation == request.incarnation_or_included
    }

    fn on_join(&mut self, request: &Repr, from: SocketAddrV4) {
        if let Some(member) = self.members.get_mut(usize::from(request.worker)) {
            *member = Member { address: Some(from), incarnation: request.incarnation_or_included };
        }
        self.need |= 1 << request.worker;
        let frontier = self.segments.iter().map(|s| s.frontier).min().unwrap_or(0);
        let answer = Repr {
            segment: self.config.segments,
            incarnation_or_included: self.epoch,
            frontier,
            next_round: frontier + 1,
            ..self.answer(Type::JoinAck, request)
        };
        self.send(answer, 0, from);
    }

    fn on_leave(&mut self, request: &Repr, from: SocketAddrV4) {
        self.notice(request, from, Notice::Dropped);
        self.need &= !(1 << request.worker);
        if let Some(member) = self.members.get_mut(usize::from(request.worker)) {
            *member = Member::default();
        }
        // It may have been the last that others waited for.
        for segment in 0..self.config.segments {
            self.release_if_complete(segment, request);
        }
    }

    fn on_segment(&mut self, request: &Repr, from: SocketAddrV4) {
        let Some(segment) = self.segments.get_mut(request.segment as usize) else {
            return self.counters.foreign += 1;
        };
        let (bit, open) = (1 << request.worker, segment.frontier.wrapping_add(1));
        let lanes = self.config.lanes;
        if request.kind == Type::Push && request.round == open {
            if usize::from(request.lane_count) != lanes {
                return self.counters.foreign += 1;
            }
            if segment.arrived & bit != 0 {
                self.counters.duplicates += 1;
                let answer = Repr { round: request.round, ..self.answer(Type::Wait, request) };
                return self.send(answer, 0, from);
            }
            segment.arrived |= bit;
            self.add(request.segment);
            self.release_if_complete(request.segment, request);
        } else if request.kind == Type::Pull || request.round < open {
            // An answer to PULL is of no round that somebody pushes for.
            let push = request.kind == Type::Push;
            let result = self.result(request.segment, request);
            let round = if push { request.round } else { result.frontier };
            let answer = Repr { flags: Flags(0).with(Flags::REPLAY, push), round, ..result };
            self.send(answer, request.segment, from);
        } else {
            self.counters.foreign += 1; // ahead of everybody: not of our protocol
        }
    }

    /// Adds the lanes of the packet in the buffer to the open round.
    fn add(&mut self, segment: u32) {
        let lanes = self.config.lanes;
        let at = segment as usize * lanes;
        let bytes = self.buffer.get(HEADER_LEN..HEADER_LEN + 4 * lanes).unwrap_or(&[]);
        let accumulator = self.accumulator.get_mut(at..at + lanes).unwrap_or(&mut []);
        for (sum, bytes) in accumulator.iter_mut().zip(bytes.as_chunks().0) {
            *sum = sum.wrapping_add(i32::from_be_bytes(*bytes));
        }
    }

    fn release_if_complete(&mut self, segment: u32, request: &Repr) {
        let need = self.need;
        let Some(state) = self.segments.get_mut(segment as usize) else { return };
        if need == 0 || state.arrived & need != need {
            return;
        }
        *state = Segment { frontier: state.frontier + 1, arrived: 0, included: state.arrived };
        let round = state.frontier;
        self.counters.rounds += u64::from(segment + 1 == self.config.segments);
        let at = segment as usize * self.config.lanes;
        let range = at..at + self.config.lanes;
        let (Some(sum), Some(accumulator)) = (self.sum.get_mut(range.clone()), self.accumulator.get_mut(range)) else {
            return;
        };
        for (sum, part) in sum.iter_mut().zip(accumulator) {
            *sum = sum.wrapping_add(std::mem::take(part));
        }
        for worker in 0..self.members.len() {
            let Some(address) = self.members.get(worker).and_then(|member| member.address) else { continue };
            let worker = worker as u8;
            // Only who sent the last contribution can tell a round trip by it.
            let ts_us = if worker == request.worker { request.ts_us } else { 0 };
            let answer = Repr { flags: Flags::MCAST, worker, round, ts_us, ..self.result(segment, request) };
            self.send(answer, segment, address);
        }
    }

    fn notice(&mut self, request: &Repr, from: SocketAddrV4, notice: Notice) {
        let answer = Repr {
            norm: notice as u8,
            incarnation_or_included: request.incarnation_or_included,
            ..self.answer(Type::Notice, request)
        };
        self.send(answer, 0, from);
    }

    fn answer(&self, kind: Type, request: &Repr) -> Repr {
        Repr {
            worker: request.worker,
            segment: request.segment,
            norm: self.need.count_ones() as u8,
            rule_version: RULE_VERSION,
            ts_us: request.ts_us,
            ..Repr::new(kind, self.config.job)
        }
    }

    fn result(&self, segment: u32, request: &Repr) -> Repr {
        let state = self.segments.get(segment as usize).copied().unwrap_or_default();
        Repr {
            segment,
            round: state.frontier,
            lane_count: self.config.lanes as u16,
            frontier: state.frontier,
            incarnation_or_included: state.included,
            next_round: state.frontier + 1,
            ..self.answer(Type::Result, request)
        }
    }

    /// Sends `answer` with the sum of `segment` where it has lanes.
    fn send(&mut self, answer: Repr, segment: u32, to: SocketAddrV4) {
        let lanes = usize::from(answer.lane_count);
        let at = segment as usize * self.config.lanes;
        let sum = self.sum.get(at..at + lanes).unwrap_or(&[]);
        if answer.emit(&mut self.buffer).is_err() {
            return; // lanes were checked
        }
        let len = HEADER_LEN + 4 * lanes;
        let body = self.buffer.get_mut(HEADER_LEN..len).unwrap_or(&mut []);
        body.as_chunks_mut().0.iter_mut().zip(sum).for_each(|(bytes, value)| *bytes = value.to_be_bytes());
        match self.socket.send_to(self.buffer.get(..len).unwrap_or(&[]), to) {
            Ok(()) => self.counters.sent += 1,
            Err(_) => self.counters.refused += 1,
        }
    }
}
