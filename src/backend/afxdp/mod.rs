//! The live switch: AF_XDP sockets, one UMEM, one worker over all ports.

#![allow(dead_code)] // until the worker uses it all

mod error;
mod netdev;
mod socket;
mod umem;

use std::sync::atomic::AtomicBool;

use crossbeam::channel::Receiver;

pub use error::Error;

use super::live::{Request, Snapshot};
use crate::dataplane::SwitchConfig;
use crate::functions::forward::ForwardConfig;
use crate::functions::symphony::{Job, Parameters};

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

/// The live switch. Dropping it detaches everything.
pub struct Runner {
    spec: RunSpec,
}

impl Runner {
    /// Loads the kernel side, attaches it, opens the sockets. Call and run it on a thread that is in the switch's network
    /// namespace.
    ///
    /// # Errors
    /// A sentence that names what is wrong and the cure.
    pub fn new(spec: RunSpec) -> Result<Self, Error> {
        Ok(Runner { spec })
    }

    /// Forwards until `stop` is set; answers `requests` between batches. Returns the last snapshot.
    ///
    /// # Errors
    /// Only what makes going on impossible; a port that goes down or away is not one.
    pub fn run(&mut self, stop: &AtomicBool, requests: Receiver<Request>) -> Result<Snapshot, Error> {
        let _ = (stop, requests);
        Err(Error::Kernel(format!("{}: the worker is still to come", self.spec.name)))
    }
}
