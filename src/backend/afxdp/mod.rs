//! The live switch: AF_XDP sockets, one UMEM, one worker over all ports.
//!
//! ```text
//! umem    the frames and who owns each            socket   rings on that memory
//! port    an interface, its socket, its state     worker   the loop        netdev, sleep   what the kernel says, the clock
//! ```

mod error;
mod netdev;
mod port;
mod sleep;
mod socket;
mod umem;
mod worker;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::Receiver;

pub use error::Error;

use self::netdev::Netdev;
use self::port::Port;
use self::umem::{BATCH, MAX_FRAME_BYTES, Pool, RING_FRAMES};
use self::worker::Worker;
use super::live::{Request, Snapshot};
use super::xdp::Kernel;
use crate::dataplane::{Nanos, PortId, SwitchConfig};
use crate::functions::forward::ForwardConfig;
use crate::functions::symphony::{Job, Parameters};

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
}

struct Flood(u64);
impl crate::dataplane::Function for Flood {
    fn ingress<T: crate::dataplane::Tracer>(
        &mut self,
        _: &mut crate::dataplane::Cx<'_, T>,
        phv: &mut crate::dataplane::Phv,
    ) -> crate::dataplane::Verdict {
        crate::dataplane::Verdict::Multicast(crate::dataplane::PortSet(self.0).without(phv.ingress_port))
    }
}

/// The live switch. Dropping it detaches everything.
pub struct Runner {
    worker: Worker<Flood>,
}

impl Runner {
    /// Loads the kernel side, attaches it, opens the sockets. Call and run it on a thread that is in the switch's network
    /// namespace.
    ///
    /// # Errors
    /// A sentence that names what is wrong and the cure.
    pub fn new(spec: RunSpec) -> Result<Self, Error> {
        let netdev = Netdev::new().map_err(|source| Error::System { what: "cannot ask about interfaces", source })?;
        let ports = ports(&spec, &netdev)?;
        let kernel = Kernel::load().map_err(|error| Error::Kernel(error.to_string()))?;
        let pool = Pool::new(frames(&spec.switch))?;
        let flood = Flood((1 << ports.len()) - 1);
        let worker = Worker::new(&spec.switch, ports, flood, kernel, netdev, pool)?;
        Ok(Runner { worker })
    }

    /// Forwards until `stop` is set; answers `requests` between batches. Returns the last snapshot.
    ///
    /// # Errors
    /// Only what makes going on impossible; a port that goes down or away is not one.
    pub fn run(&mut self, stop: &AtomicBool, requests: Receiver<Request>) -> Result<Snapshot, Error> {
        sleep::set_least_timer_slack();
        let _ = requests;
        while !stop.load(Ordering::Relaxed) {
            if !self.worker.pass() {
                self.worker
                    .sleep(MAX_SLEEP_NS)
                    .map_err(|source| Error::System { what: "cannot wait for frames", source })?;
            }
        }
        self.worker.audit();
        let counters = self.worker.switch.counters();
        Ok(Snapshot { version: 1, conservation: counters.conservation, ..Snapshot::default() })
    }
}

/// The ports, after all that can be seen to be wrong with them.
fn ports(spec: &RunSpec, netdev: &Netdev) -> Result<Vec<Port>, Error> {
    let count = spec.switch.ports.len();
    if !(1..=64).contains(&count) || spec.interfaces.len() != count {
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
