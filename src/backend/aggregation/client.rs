//! Drives a [`Worker`] over a socket, in the caller's thread.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::socket::{PAYLOAD_BYTES, Socket};
use crate::backend::clock;
use crate::dataplane::Nanos;
use crate::wire::aggregation::HEADER_LEN;
use crate::worker::{Config, ConfigError, Counters, Event, Failure, PushError, Report, Worker};

/// Packets sent before we look at what has come.
const BURST: usize = 32;

/// Longest sleep: a kernel that forgot to wake us costs no more, and who wants us to stop waits no longer.
const LOOK_AROUND_NS: Nanos = 100_000_000;

/// Where a worker is and whom it talks to.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The switch's service address, port 24190; or a parameter server.
    pub switch: SocketAddrV4,
    /// This worker's address as the job's `members` has it.
    pub local: SocketAddrV4,
    /// The rest.
    pub worker: Config,
}

impl ClientConfig {
    /// The usual one, with an incarnation drawn at random. `segments * lanes` values make a vector.
    pub fn new(switch: SocketAddrV4, local: SocketAddrV4, job: u8, worker: u8, segments: u32, lanes: usize) -> Self {
        ClientConfig { switch, local, worker: Config::new(job, worker, segments, lanes, draw()) }
    }
}

/// A number that the next process will not draw.
pub(super) fn draw() -> u32 {
    RandomState::new().build_hasher().finish() as u32 // std seeds it from the kernel
}

/// What keeps a worker from going on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Set up wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The vector can't be pushed. The worker is as it was.
    #[error(transparent)]
    Push(#[from] PushError),
    /// No socket.
    #[error(
        "cannot open a UDP socket on {local}: {reason}. Is the address on an interface here, and the port not in use?"
    )]
    Bind {
        /// The worker's address.
        local: SocketAddrV4,
        /// Why.
        reason: io::Error,
    },
    /// The switch can't be reached at all.
    #[error("cannot send from {local} to the switch at {switch}: {reason}. Is there a route to it?")]
    Unreachable {
        /// The switch.
        switch: SocketAddrV4,
        /// The worker's address.
        local: SocketAddrV4,
        /// Why.
        reason: io::Error,
    },
    /// Packets do not fit.
    #[error(
        "a packet of {lanes} lanes takes {needed} bytes, more than the path to {switch} carries: use fewer lanes, here and in the job file, or a larger MTU"
    )]
    TooLong {
        /// The switch.
        switch: SocketAddrV4,
        /// Lanes.
        lanes: usize,
        /// Bytes of the IP packet.
        needed: usize,
    },
    /// The protocol ended.
    #[error("worker {local}, switch {switch}: {failure}{}", last.as_ref().map(|e| format!(" (last error: {e})")).unwrap_or_default())]
    Failed {
        /// The switch.
        switch: SocketAddrV4,
        /// The worker's address.
        local: SocketAddrV4,
        /// Why.
        failure: Failure,
        /// What the kernel said last of a packet that it could not send or deliver.
        last: Option<io::Error>,
    },
    /// As [`Client::stop_on`] asked.
    #[error("stopped while a round was open")]
    Stopped,
    /// It has left or failed before.
    #[error("the worker has left its job")]
    Over,
}

/// Times of all rounds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// [`Report::wait_ns`].
    pub wait_ns: Nanos,
    /// [`Report::transfer_ns`].
    pub transfer_ns: Nanos,
    /// [`Report::exchange_ns`].
    pub exchange_ns: Nanos,
    /// Packets that the kernel could not send or deliver. They were sent again.
    pub refused: u64,
}

/// A member of a job. Blocks; sleeps while it waits.
pub struct Client {
    switch: SocketAddrV4,
    local: SocketAddrV4,
    socket: Socket,
    worker: Worker,
    buffer: [u8; PAYLOAD_BYTES],
    totals: Totals,
    last_error: Option<io::Error>,
    stop: Option<Arc<AtomicBool>>,
}

impl Client {
    /// Joins the job and learns where the model stands, which [`Client::model_delta`] then tells.
    ///
    /// # Errors
    /// No socket, or the switch does not answer or does not want us.
    pub fn join(config: ClientConfig) -> Result<Self, Error> {
        let ClientConfig { switch, local, worker } = config;
        let worker = Worker::new(worker, clock::now())?;
        let socket = Socket::bind(local).map_err(|reason| Error::Bind { local, reason })?;
        socket.connect(switch).map_err(|reason| Error::Unreachable { switch, local, reason })?;
        let local = socket.local().unwrap_or(local);
        let (buffer, totals) = ([0; PAYLOAD_BYTES], Totals::default());
        let mut client = Client { switch, local, socket, worker, buffer, totals, last_error: None, stop: None };
        client.run()?;
        Ok(client)
    }

    /// Contributes `values` to the round and waits for its end, as the job's strategy has it. The model moves by the mean
    /// over the workers: values are divided by the job's norm.
    ///
    /// # Errors
    /// [`Error::Push`] when the vector is refused, and what ends the protocol.
    pub fn push(&mut self, values: &[f32]) -> Result<Report, Error> {
        self.drain();
        self.worker.begin(clock::now(), values)?;
        self.round()
    }

    /// The same with integers that are summed as they are.
    ///
    /// # Errors
    /// As [`Client::push`].
    pub fn push_quantised(&mut self, values: &[i32]) -> Result<Report, Error> {
        self.drain();
        self.worker.begin_quantised(clock::now(), values)?;
        self.round()
    }

    fn round(&mut self) -> Result<Report, Error> {
        let Event::Round(report) = self.run()? else { return Err(Error::Over) };
        self.totals.wait_ns += report.wait_ns();
        self.totals.transfer_ns += report.transfer_ns();
        self.totals.exchange_ns += report.exchange_ns();
        Ok(report)
    }

    /// By how much the model has moved since the job began: the sum of all rounds. Fills as much of `out` as there is.
    pub fn model_delta(&self, out: &mut [f32]) {
        self.worker.read_delta(out);
    }

    /// The same as the switch has it: integers modulo 2^32.
    pub fn sum(&self) -> &[i32] {
        self.worker.sum()
    }

    /// Throws away what other workers' rounds bring meanwhile, for a trainer that computes for so long that the socket's
    /// buffer might fill up (some 50 rounds of 300 segments). [`Client::push`] does it first.
    pub fn drain(&mut self) {
        self.receive();
    }

    /// From now on [`Client::push`] gives up within 100 ms of when `stop` is set, with [`Error::Stopped`]: other workers may
    /// never end the round. All that can be done then is to leave.
    pub fn stop_on(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    /// Leaves the job: the others go on without us.
    ///
    /// # Errors
    /// What ends the protocol otherwise.
    pub fn leave(mut self) -> Result<(), Error> {
        self.stop = None;
        self.worker.leave(clock::now());
        self.run().map(|_| ())
    }

    /// Times of all rounds together.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        self.worker.counters()
    }

    /// The protocol's state: round, rule version, norm, round trip.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Runs the protocol until something has happened.
    fn run(&mut self) -> Result<Event, Error> {
        loop {
            self.receive();
            self.transmit()?;
            match self.worker.poll_event() {
                Some(Event::JobUnknown) => self.say_what_for(),
                Some(event) => return self.judge(event),
                None => {}
            }
            if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Error::Stopped);
            }
            let Some(next) = self.worker.next_timeout() else { return Err(Error::Over) };
            let wait = next.saturating_sub(clock::now()).min(LOOK_AROUND_NS);
            // Where the kernel refuses to poll, reading will say why.
            let _ = self.socket.wait(wait);
        }
    }

    fn say_what_for(&self) {
        let Config { job, worker, join_timeout_ns, .. } = self.worker.config();
        let (switch, seconds) = (self.switch, join_timeout_ns / 1_000_000_000);
        tracing::warn!(
            "worker {worker}: switch {switch} does not know job {job} yet: load it with `symphony ctl job load`; waiting \
             for {seconds} s"
        );
    }

    fn judge(&mut self, event: Event) -> Result<Event, Error> {
        match event {
            Event::Failed(failure) => {
                Err(Error::Failed { switch: self.switch, local: self.local, failure, last: self.last_error.take() })
            }
            event => Ok(event),
        }
    }

    fn receive(&mut self) {
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok(Some((len, _))) => self.worker.handle(clock::now(), self.buffer.get(..len).unwrap_or(&[])),
                Ok(None) => return,
                Err(error) => self.refused(error),
            }
        }
    }

    fn transmit(&mut self) -> Result<(), Error> {
        for _ in 0..BURST {
            let Some(len) = self.worker.poll_transmit(clock::now(), &mut self.buffer) else { break };
            match self.socket.send(self.buffer.get(..len).unwrap_or(&[])) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    let lanes = self.worker.config().lanes;
                    let needed = 20 + 8 + HEADER_LEN + 4 * lanes; // IPv4, UDP
                    return Err(Error::TooLong { switch: self.switch, lanes, needed });
                }
                Err(error) => self.refused(error),
            }
        }
        Ok(())
    }

    /// A packet that the kernel does not send, or that a host refused, is lost as in any network.
    fn refused(&mut self, error: io::Error) {
        self.totals.refused += 1;
        self.last_error = Some(error);
    }
}
