//! The live switch: AF_XDP sockets, one UMEM, one worker over all ports.
//!
//! ```text
//! umem    the frames and who owns each            socket   rings on that memory
//! port    an interface, its socket, its state     worker   the loop         control   what is asked of it between batches
//! aggregation  jobs that aggregate, asked and told           log_limit  how much of it is logged
//! netdev  what the kernel says of interfaces      sleep    the clock, and waiting
//! rights  what a process must be allowed to do
//! ```

mod aggregation;
mod control;
mod error;
mod log_limit;
mod netdev;
mod port;
pub mod rights;
mod sleep;
mod socket;
mod umem;
mod worker;

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::Receiver;

pub use error::Error;

use self::netdev::Netdev;
use self::port::Port;
use self::socket::Anchor;
use self::umem::{BATCH, MAX_FRAME_BYTES, RING_FRAMES};
use self::worker::Worker;
use super::clock;
use super::controllers::Controllers;
use super::live::{Request, Snapshot};
use super::xdp::Kernel;
use crate::dataplane::{Fault, MacAddress, Nanos, PortConfig, PortId, SwitchConfig};
use crate::functions::forward::{Forward, ForwardConfig};
use crate::functions::serene::{self, Serene, SereneConfig};
use crate::functions::symphony::{Job, Parameters, Symphony};

/// The largest interface MTU that works. A veth takes an XDP program up to 3506 (Linux 6.18, x86-64: a page less headroom and
/// `skb_shared_info`); a frame buffer has room for a little more.
pub const MAX_MTU: u32 = 3500;
/// The largest RoCE path MTU that fits [`MAX_MTU`].
pub const MAX_PATH_MTU: u32 = 2048;

/// Signals and requests wait at most so long while nothing else happens.
const MAX_SLEEP_NS: Nanos = 10_000_000;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// The switch's name, for snapshots.
    pub name: String,
    /// Ports, buffers, seed.
    pub switch: SwitchConfig,
    /// Each port's interface, in the order of the ports, in the network namespace of the thread that calls [`Runner::new`].
    pub interfaces: Vec<String>,
    /// How frames find their port.
    pub forwarding: ForwardConfig,
    /// Symphony's parameters.
    pub parameters: Parameters,
    /// Jobs from the start.
    pub jobs: Vec<Job>,
    /// The aggregation service, if there is one.
    pub aggregation: Option<Aggregation>,
}

/// The aggregation service of a switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// Where workers send to: an address of their subnet that nobody else has.
    pub address: Ipv4Addr,
    /// The Ethernet address that goes with it.
    pub mac: MacAddress,
    /// Faults of the CPU port: in, what the control plane sends; out, what it is answered.
    pub control_fault: Option<Fault>,
    /// Aggregation jobs from the start.
    pub jobs: Vec<serene::Job>,
}

/// Flow slots and job slots: MAX_FLOWS and MAX_JOBS of `ebpf/abi.h`.
const MAX_FLOWS: u32 = 16384;
const MAX_JOBS: u16 = 1024;
/// Old flows and stations are forgotten so often.
const UPKEEP_NS: Nanos = 1_000_000_000;

/// The live switch. Dropping it detaches everything.
pub struct Runner {
    name: String,
    since: Nanos,
    worker: Worker,
}

impl Runner {
    /// Loads the kernel side, attaches it, opens the sockets. Call and run it on a thread that is in the switch's network
    /// namespace.
    ///
    /// # Errors
    /// A sentence that names what is wrong and the cure.
    pub fn new(spec: RunSpec) -> Result<Self, Error> {
        let missing = rights::missing(); // first: without them nothing else matters
        if !missing.is_empty() {
            return Err(Error::Rights(missing));
        }
        let kernel = Kernel::load()?;
        let netdev = Netdev::new().map_err(|source| Error::System { what: "cannot ask about interfaces", source })?;
        let ports = ports(&spec, &netdev)?;
        let memory = Anchor::new(frames(&spec.switch))?;
        let service = spec.aggregation.as_ref();
        let cpu_port = service.map(|_| ports.len() as PortId);
        let serene = Serene::new(SereneConfig {
            address: service.map_or(Ipv4Addr::UNSPECIFIED, |service| service.address),
            mac: service.map_or_else(MacAddress::default, |service| service.mac),
            cpu_port,
            incarnation: clock::now() as u32,
        });
        let functions = (
            Symphony::new(spec.parameters, MAX_FLOWS, MAX_JOBS),
            serene,
            Forward::new(&with_own_macs(spec.forwarding, &ports), ports.len(), spec.switch.seed),
        );
        let controllers = Controllers::new(cpu_port);
        let mut config = spec.switch.clone();
        config.ports.extend(service.map(cpu_port_config));
        let mut worker = Worker::new(&config, ports, functions, kernel, controllers, netdev, memory);
        let since = clock::now();
        for job in &spec.jobs {
            worker.add_job(job, since).map_err(Error::Job)?;
        }
        for job in spec.aggregation.iter().flat_map(|service| &service.jobs) {
            worker.load_job(job).map_err(Error::Job)?;
        }
        worker.open_ports()?;
        Ok(Runner { name: spec.name, since, worker })
    }

    /// Forwards until `stop` is set; answers `requests` between batches. Returns the last snapshot. The calling thread gets
    /// real-time priority, where the kernel lets it, and keeps it.
    ///
    /// # Errors
    /// Only what makes going on impossible; a port that goes down or away is not one.
    pub fn run(&mut self, stop: &AtomicBool, requests: Receiver<Request>) -> Result<Snapshot, Error> {
        if !clock::be_punctual(clock::SWITCH_PRIORITY) {
            tracing::warn!(
                "the kernel refuses real-time priority (CAP_SYS_NICE): packets may leave late where CPUs are busy"
            );
        }
        tracing::info!(switch = %self.name, ports = self.worker.ports.len(), "forwarding");
        let mut upkeep_at = self.since + UPKEEP_NS;
        while !stop.load(Ordering::Relaxed) {
            if !self.worker.pass() {
                self.worker
                    .sleep(MAX_SLEEP_NS)
                    .map_err(|source| Error::System { what: "cannot wait for frames", source })?;
            }
            while let Ok(Request { command, reply }) = requests.try_recv() {
                // Who asked may have gone away meanwhile.
                let _ = reply.try_send(self.worker.command(command, &self.name, self.since));
            }
            let now = clock::now();
            if now >= upkeep_at {
                upkeep_at = now + UPKEEP_NS;
                self.worker.forget_old(now);
            }
        }
        if cfg!(debug_assertions) {
            self.worker.audit();
        }
        Ok(self.worker.snapshot(&self.name, self.since))
    }
}

/// The port behind which only the control plane is.
fn cpu_port_config(service: &Aggregation) -> PortConfig {
    let fault = service.control_fault;
    PortConfig { name: "cpu".into(), rate_bps: None, buffer_bytes: 1 << 20, red: None, pfc: None, fault }
}

/// Routed packets leave with the MAC of the port that they leave by.
fn with_own_macs(mut forwarding: ForwardConfig, ports: &[Port]) -> ForwardConfig {
    if let ForwardConfig::Static(routes) = &mut forwarding {
        for hop in routes.iter_mut().flat_map(|route| &mut route.via) {
            let own = ports.get(usize::from(hop.port)).and_then(|port| port.seen);
            hop.source_mac = hop.source_mac.or(own.map(|seen| seen.mac));
        }
    }
    forwarding
}

/// The ports, after all that can be seen to be wrong with them.
fn ports(spec: &RunSpec, netdev: &Netdev) -> Result<Vec<Port>, Error> {
    let count = spec.switch.ports.len();
    let most = if spec.aggregation.is_some() { 63 } else { 64 }; // the CPU's is one of them
    if !(1..=most).contains(&count) || spec.interfaces.len() != count {
        return Err(Error::PortCount(count));
    }
    let mut ports: Vec<Port> = Vec::with_capacity(count);
    for ((config, interface), id) in spec.switch.ports.iter().zip(&spec.interfaces).zip(0..) {
        let mut port = Port::new(id as PortId, config.name.clone(), interface.clone());
        if let Some(other) = ports.iter().find(|other| other.interface == *interface) {
            return Err(Error::SharedInterface {
                first: other.name.clone(),
                second: port.name,
                interface: port.interface,
            });
        }
        port.seen = netdev.look_up(interface);
        match port.seen {
            None => {
                let existing = netdev::names().join(", ");
                return Err(Error::NoInterface { port: port.name, interface: port.interface, existing });
            }
            Some(seen) if seen.mtu > MAX_MTU => {
                return Err(Error::MtuTooLarge {
                    port: port.name,
                    interface: port.interface,
                    mtu: seen.mtu,
                    largest: MAX_MTU,
                });
            }
            Some(_) => ports.push(port),
        }
    }
    Ok(ports)
}

/// How many frames the switch needs: full fill rings, what is on its way out, and the buffer in frames of 1 KiB. A packet takes
/// a whole frame however short it is, so a buffer full of short ones ends earlier, as on a switch with cells.
fn frames(config: &SwitchConfig) -> NonZeroU32 {
    const MAX_QUEUED: u64 = 1 << 16;
    let ports = config.ports.len() as u64;
    let own: u64 = config.ports.iter().map(|port| port.buffer_bytes).fold(0, u64::saturating_add);
    let queued = (own.min(config.buffer_bytes) / 1024).clamp(1024, MAX_QUEUED);
    let total = ports * (u64::from(RING_FRAMES) + 4 * BATCH as u64) + queued;
    NonZeroU32::new(total as u32).unwrap_or(NonZeroU32::MIN)
}
const _: () = assert!(MAX_MTU as usize + 14 + 2 * 4 <= MAX_FRAME_BYTES);
