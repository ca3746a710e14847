//! The one worker over all ports: takes frames in, runs them through the switch, sends what is due, sleeps otherwise.
//!
//! ```text
//! pass: for each port    what is due leaves the switch -> transmit ring -> kick          (before anything comes in, see `Switch`)
//!       faulty links     what was held back long enough goes on
//!       for each port    receive ring -> metadata, L2/L3 -> switch;  free frames -> fill ring
//!       nothing done?    sleep until a frame comes in, the next departure or the next release
//! ```
//!
//! Back-pressure: nothing leaves a port's queue before the kernel has taken what the port was given before. So packets
//! wait where they are seen, in the queue, not in a ring.

use std::io;
use std::time::Duration;

use super::error::{Error, is_busy};
use super::log_limit::LogLimit;
use super::netdev::Netdev;
use super::port::{Port, Readiness};
use super::sleep::Sleeper;
use super::socket::{Anchor, PortSocket};
use super::umem::{BATCH, Frame, Pool};
use crate::backend::clock;
use crate::backend::controllers::Controllers;
use crate::backend::xdp::{Kernel, Metadata};
use crate::dataplane::{Bridged, DropReason, Frames, Nanos, NoTrace, PortId, Roce, Switch, SwitchConfig, parse_l2_l3};
use crate::functions::forward::Forward;
use crate::functions::serene::Serene;
use crate::functions::symphony::Symphony;

/// Looks at the interfaces so often.
const LOOK_NS: Nanos = 1_000_000_000;
/// Tries a port again that the kernel takes nothing for.
const RETRY_NS: Nanos = 100_000;
/// Where frames come in faster than this, the worker looks after them once in this time instead of at each: a wake-up costs
/// more than a packet does. Much less than a packet's time on the lines that are emulated.
const MODERATION_NS: Nanos = 30_000;
/// How long the ports of a new switch may be held by another one: the kernel cleans up after a killed process a moment after it
/// has ended.
const PREDECESSOR_NS: Nanos = 1_000_000_000;
/// Tries a port again that another switch holds.
const TAKE_OVER_NS: Nanos = 20_000_000;
/// Frames kept out of the queues, so that fill rings never run dry because one port's queue holds all frames.
const RESERVE_PER_PORT: usize = BATCH;
/// A debug build counts all frames every so many passes.
const AUDIT_PASSES: u64 = 256;

/// What runs in the switch's stages.
pub type Functions = (Symphony, Serene, Forward);

/// The worker.
pub struct Worker {
    pub(super) switch: Switch<Functions, Frame>,
    pub(super) ports: Vec<Port>,
    pub(super) pool: Pool,
    pub(super) kernel: Kernel,
    /// The control plane of aggregation jobs, behind the CPU port.
    pub(super) controllers: Controllers,
    /// When it wants to be called again.
    control_at: Nanos,
    pub(super) log_limit: LogLimit,
    netdev: Netdev,
    sleeper: Sleeper,
    received: Vec<Frame>,
    departing: Vec<Frame>,
    look_at: Nanos,
    passes: u64,
    frames_since_sleep: usize,
    last_sleep: Sleep,
    _anchor: Anchor,
}

/// How the worker slept last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// Until a frame came in or a time had come.
    Whole,
    /// A frame came in almost at once.
    Short,
    /// Without looking for frames, see [`MODERATION_NS`].
    Moderated,
}

impl Worker {
    /// A worker whose ports are not open yet. `ports` and the ports of `config` go together.
    pub fn new(
        config: &SwitchConfig,
        ports: Vec<Port>,
        functions: Functions,
        kernel: Kernel,
        controllers: Controllers,
        netdev: Netdev,
        (pool, anchor): (Pool, Anchor),
    ) -> Self {
        Worker {
            switch: Switch::new(config, functions),
            ports,
            pool,
            kernel,
            controllers,
            control_at: Nanos::MAX,
            log_limit: LogLimit::default(),
            netdev,
            sleeper: Sleeper::default(),
            received: Vec::with_capacity(BATCH),
            departing: Vec::with_capacity(BATCH),
            look_at: clock::now() + LOOK_NS,
            passes: 0,
            frames_since_sleep: 0,
            last_sleep: Sleep::Whole,
            _anchor: anchor,
        }
    }

    /// Binds and attaches all ports, whose interfaces must exist.
    ///
    /// # Errors
    /// At the first one that cannot be opened, for a second where somebody else holds it.
    pub fn open_ports(&mut self) -> Result<(), Error> {
        let patience_ends = clock::now() + PREDECESSOR_NS;
        for id in 0..self.ports.len() {
            let mut opened = self.open(id);
            while clock::now() < patience_ends && opened.as_ref().is_err_and(|reason| is_busy(reason)) {
                clock::sleep(TAKE_OVER_NS);
                opened = self.open(id);
            }
            opened.map_err(|reason| {
                let Port { name, interface, .. } = &self.ports[id];
                Error::Socket { port: name.clone(), interface: interface.clone(), reason }
            })?;
            self.set_up(id);
        }
        Ok(())
    }

    /// One round over all ports. Returns whether there was anything to do.
    pub fn pass(&mut self) -> bool {
        let now = clock::now();
        let mut worked = false;
        for id in 0..self.ports.len() {
            worked |= self.send(id, now);
        }
        worked |= self.switch.release(now, &mut self.pool, &mut NoTrace);
        for id in 0..self.ports.len() {
            worked |= self.receive(id, now);
        }
        if worked || now >= self.control_at {
            self.control(now);
        }
        if now >= self.look_at {
            self.look_at_interfaces(now);
        }
        self.passes += 1;
        if cfg!(debug_assertions) && self.passes.is_multiple_of(AUDIT_PASSES) {
            self.audit();
        }
        worked
    }

    /// Sleeps until there may be something to do, at most `limit_ns`.
    ///
    /// # Errors
    /// When the kernel refuses to poll.
    pub fn sleep(&mut self, limit_ns: Nanos) -> io::Result<()> {
        let now = clock::now();
        let mut until = (now + limit_ns).min(self.look_at).min(self.control_at);
        until = until.min(self.switch.next_release().unwrap_or(until));
        for id in self.switch.backlog().iter() {
            let due = match self.ports.get(usize::from(id)) {
                Some(port) if port.is_blocked() => Some(now + RETRY_NS),
                _ => self.switch.next_departure(id),
            };
            until = until.min(due.unwrap_or(until));
        }
        if until <= now {
            return Ok(());
        }
        let frames = std::mem::take(&mut self.frames_since_sleep);
        let crowded = match self.last_sleep {
            Sleep::Whole => false,
            Sleep::Short => true,
            Sleep::Moderated => frames > 1,
        };
        if crowded {
            self.last_sleep = Sleep::Moderated;
            std::thread::sleep(Duration::from_nanos((until - now).min(MODERATION_NS)));
            return Ok(());
        }
        if self.sleeper.sleep(until - now)? {
            self.look_at = now;
        }
        let short = clock::now() < until.min(now + MODERATION_NS);
        self.last_sleep = if short { Sleep::Short } else { Sleep::Whole };
        Ok(())
    }

    /// Checks that no frame is lost: what the switch has queued is what the pool knows to be in the switch.
    ///
    /// # Panics
    /// When a frame has leaked.
    pub fn audit(&self) {
        let (census, conservation) = (self.pool.census(), self.switch.counters().conservation);
        assert_eq!(census.switch as u64, conservation.queued, "frames in the switch and packets queued");
        assert_eq!(census.switch, self.pool.in_switch());
        assert_eq!(census.free, self.pool.available());
        assert!(conservation.holds(), "{conservation:?}");
    }

    /// Sends what is due at one port. Returns whether it did anything.
    fn send(&mut self, id: usize, now: Nanos) -> bool {
        let port = &mut self.ports[id];
        let port_id = id as PortId;
        match port.push(&mut self.pool, now) {
            Readiness::Ready => {}
            Readiness::Blocked => return false,
            Readiness::Stalled => return self.discard_due(port_id, now),
            Readiness::Down => {
                if port.is_up() {
                    self.look_at = now; // the kernel knows more than we do
                }
                return false;
            }
        }
        if !self.switch.backlog().contains(port_id) {
            return false;
        }
        let (room, longest) = (port.transmit_room().min(BATCH), port.longest_frame());
        while self.departing.len() < room {
            let Some(departure) = self.switch.dequeue(port_id, now, &mut self.pool, &mut NoTrace) else { break };
            if departure.phv.frame_bytes > longest {
                self.switch.drop_departure(departure, DropReason::TooLong, &mut self.pool, &mut NoTrace);
            } else {
                port.count_lateness(now.saturating_sub(departure.at));
                self.departing.push(departure.frame);
            }
        }
        if self.departing.is_empty() {
            return false;
        }
        port.transmit(&mut self.pool, &mut self.departing);
        port.push(&mut self.pool, now);
        true
    }

    /// Lets the control plane of aggregation jobs see what happened and do what is due.
    pub(super) fn control(&mut self, now: Nanos) {
        let next = self.controllers.drive(now, &mut self.switch, &mut self.pool, &mut NoTrace);
        self.control_at = next.unwrap_or(Nanos::MAX);
        self.log_events(now);
    }

    /// Drops what is due at a port whose peer takes nothing.
    #[cold]
    fn discard_due(&mut self, port: PortId, now: Nanos) -> bool {
        let mut dropped = false;
        while let Some(departure) = self.switch.dequeue(port, now, &mut self.pool, &mut NoTrace) {
            self.switch.drop_departure(departure, DropReason::TxStalled, &mut self.pool, &mut NoTrace);
            dropped = true;
        }
        dropped
    }

    /// Takes one batch from one port through ingress and gives the kernel new frames. Returns whether there were any.
    fn receive(&mut self, id: usize, now: Nanos) -> bool {
        let Some(socket) = self.ports[id].socket.as_mut() else { return false };
        socket.receive(&mut self.pool, &mut self.received);
        if self.received.is_empty() {
            return false;
        }
        self.frames_since_sleep += self.received.len();
        let reserve = RESERVE_PER_PORT * self.ports.len();
        for frame in self.received.drain(..) {
            let port = id as PortId;
            if self.pool.available() < reserve {
                self.switch.drop_received(port, frame, DropReason::BufferFull, &mut self.pool, &mut NoTrace);
                continue;
            }
            let metadata = Metadata::from_bytes(&self.pool.metadata(&frame));
            match parse_l2_l3(self.pool.bytes(&frame), port, metadata.received_at) {
                Ok(mut phv) => {
                    // Also where tracking found nothing: the kernel side is the one that tracks.
                    phv.bridged = Bridged { tracked: true, ..metadata.bridged };
                    phv.roce = roce(&metadata);
                    self.switch.ingress(now, phv, frame, &mut self.pool, &mut NoTrace);
                }
                Err(reason) => self.switch.drop_received(port, frame, reason, &mut self.pool, &mut NoTrace),
            }
        }
        if let Some(socket) = self.ports[id].socket.as_mut() {
            socket.refill(&mut self.pool);
        }
        true
    }

    /// Sees which interfaces came, went, or changed.
    fn look_at_interfaces(&mut self, now: Nanos) {
        self.look_at = now + LOOK_NS;
        for id in 0..self.ports.len() {
            let port = &mut self.ports[id];
            let was_up = port.is_up();
            let before = port.seen.map(|seen| seen.index);
            port.seen = self.netdev.look_up(&port.interface);
            let is_other = before != port.seen.map(|seen| seen.index);
            if port.socket.as_ref().is_some_and(|socket| is_other || socket.is_dead()) {
                self.close(id, now);
            }
            if self.ports[id].socket.is_none() && self.ports[id].seen.is_some() {
                match self.open(id) {
                    Ok(()) => tracing::info!(port = %self.ports[id].name, "attached again"),
                    Err(reason) => tracing::warn!(port = %self.ports[id].name, "cannot attach again: {reason}"),
                }
            }
            if self.ports[id].is_up() != was_up {
                self.set_up(id);
            }
        }
    }

    /// Binds a socket, then lets the kernel side send frames to it.
    fn open(&mut self, id: usize) -> Result<(), String> {
        let port = &mut self.ports[id];
        let port_id = id as PortId;
        let socket = PortSocket::open(&mut self.pool, port_id, &port.interface)?;
        let fd = socket.fd();
        port.socket = Some(socket);
        let attached = self
            .kernel
            .set_socket(port_id, 0, fd)
            .and_then(|()| self.kernel.attach(port_id, &self.ports[id].interface))
            .map_err(|error| error.to_string());
        if attached.is_err() {
            self.ports[id].close(&mut self.pool);
        }
        self.watch_sockets();
        attached
    }

    /// Takes in what was received before the interface went, and gives up the rest.
    fn close(&mut self, id: usize, now: Nanos) {
        while self.receive(id, now) {}
        self.kernel.detach(id as PortId);
        let port = &mut self.ports[id];
        port.close(&mut self.pool);
        tracing::warn!(port = %port.name, interface = %port.interface, "the interface was removed");
        self.watch_sockets();
    }

    fn watch_sockets(&mut self) {
        self.sleeper.watch(self.ports.iter().filter_map(|port| port.socket.as_ref()).map(PortSocket::fd));
    }

    /// Tells the switch, and whoever reads the log, whether a port works.
    fn set_up(&mut self, id: usize) {
        let port = &self.ports[id];
        let up = port.is_up();
        self.switch.set_port_up(id as PortId, up);
        if up {
            tracing::info!(port = %port.name, interface = %port.interface, "up");
        } else {
            tracing::warn!(port = %port.name, interface = %port.interface, "down");
            self.switch.flush_port(id as PortId, &mut self.pool, &mut NoTrace);
            self.switch.functions_mut().2.forget_port(id as PortId);
        }
    }
}

/// The RoCEv2 part, as far as the stages after tracking look at it: the kernel side has read the rest. A SEND_FIRST of PSN 0
/// looks like none, which makes no difference to them.
fn roce(metadata: &Metadata) -> Option<Roce> {
    let found = metadata.opcode.0 != 0 || metadata.psn != 0;
    found.then(|| Roce { opcode: metadata.opcode, psn: metadata.psn, ..Roce::default() })
}
