//! Ports: attaching the program to interfaces, and the sockets that it redirects to.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::RawFd;

use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapCore, MapFlags};

use super::load::{Kernel, LoadError, open, refused};
use super::mapped::Plain;
use super::skel::{SymphonySkel, types};
use crate::dataplane::PortId;

/// MAX_PORTS and MAX_QUEUES of `ebpf/abi.h`.
const MAX_PORTS: u32 = 64;
const MAX_QUEUES: u32 = 16;

/// Why a port could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No such interface here.
    #[error("interface {interface} does not exist in this network namespace: {source}")]
    NoInterface {
        /// Its name.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The interface does not take the program.
    #[error(
        "no XDP program can be attached to {interface}: {source:#}; see that no other one is (ip link set dev {interface} \
         xdp off), that its MTU and, for a veth, its peer's is at most 3500, and that a veth has at least as many receive \
         queues as its peer has transmit queues (ethtool -l)"
    )]
    Attach {
        /// Its name.
        interface: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// More ports or queues than the maps hold.
    #[error("port {port}, queue {queue}: at most {MAX_PORTS} ports with {MAX_QUEUES} queues")]
    TooMany {
        /// Number of the port.
        port: PortId,
        /// Number of the queue.
        queue: u32,
    },
    /// A map refused.
    #[error("port {port}: {source:#}")]
    Map {
        /// Number of the port.
        port: PortId,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
}

/// The ports that the program is attached to. Dropping a link detaches.
#[derive(Default)]
pub(super) struct Ports(BTreeMap<PortId, (u32, Link)>);

impl Kernel {
    /// Attaches the program to an interface: from now on its frames go to the sockets of `port`. An earlier attachment of
    /// the same port is undone first.
    ///
    /// Natively where the driver can, else in generic mode. Bind the sockets and fill their fill rings before.
    ///
    /// # Errors
    /// When there is no such interface, or it does not take the program.
    pub fn attach(&mut self, port: PortId, interface: &str) -> Result<(), PortError> {
        if u32::from(port) >= MAX_PORTS {
            return Err(PortError::TooMany { port, queue: 0 });
        }
        self.detach(port);
        let ifindex = ifindex(interface)?;
        let slot = types::port { slot: port.into() };
        self.skel
            .maps
            .ports
            .update(&ifindex.to_ne_bytes(), slot.as_bytes(), MapFlags::ANY)
            .map_err(|source| PortError::Map { port, source })?;
        match self.skel.progs.symphony.attach_xdp(ifindex as i32) {
            Ok(link) => {
                self.ports.0.insert(port, (ifindex, link));
                Ok(())
            }
            Err(source) => {
                // Fails only if there is no entry.
                let _ = self.skel.maps.ports.delete(&ifindex.to_ne_bytes());
                Err(PortError::Attach { interface: interface.to_owned(), source })
            }
        }
    }

    /// Detaches the program from a port. Nothing happens when it is not attached, or the interface is gone.
    pub fn detach(&mut self, port: PortId) {
        if let Some((ifindex, link)) = self.ports.0.remove(&port) {
            drop(link);
            // Fails only if the entry is gone already.
            let _ = self.skel.maps.ports.delete(&ifindex.to_ne_bytes());
        }
    }

    /// Redirects the frames of one receive queue of a port to an AF_XDP socket. The kernel forgets it when the socket is closed.
    ///
    /// # Errors
    /// When it is no AF_XDP socket, or there are too many ports or queues.
    pub fn set_socket(&mut self, port: PortId, queue: u32, socket: RawFd) -> Result<(), PortError> {
        if u32::from(port) >= MAX_PORTS || queue >= MAX_QUEUES {
            return Err(PortError::TooMany { port, queue });
        }
        let key = u32::from(port) * MAX_QUEUES + queue;
        self.skel
            .maps
            .xsks
            .update(&key.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| PortError::Map { port, source })
    }
}

/// A trivial XDP program on the far end of a veth, until dropped: a veth end takes redirected frames only when its peer
/// runs NAPI, and this makes it. For interfaces in the caller's network namespace.
pub struct PeerPass {
    _link: Link,
    _skel: SymphonySkel<'static>,
}

impl PeerPass {
    /// Attaches it.
    ///
    /// # Errors
    /// When there is no such interface, or no program can be loaded or attached.
    pub fn attach(interface: &str) -> Result<Self, PeerPassError> {
        let ifindex = ifindex(interface)?;
        let mut open = open().map_err(refused)?;
        open.progs.symphony.set_autoload(false);
        for mut map in open.open_object_mut().maps_mut() {
            map.set_max_entries(1).map_err(refused)?; // it needs none, and they are large
        }
        let skel = open.load().map_err(refused)?;
        let link = skel
            .progs
            .peer_pass
            .attach_xdp(ifindex as i32)
            .map_err(|source| PortError::Attach { interface: interface.to_owned(), source })?;
        Ok(PeerPass { _link: link, _skel: skel })
    }
}

/// Why [`PeerPass::attach`] failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerPassError {
    /// Not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Not attached.
    #[error(transparent)]
    Port(#[from] PortError),
}

fn ifindex(interface: &str) -> Result<u32, PortError> {
    let missing = |source| PortError::NoInterface { interface: interface.to_owned(), source };
    let name = CString::new(interface).map_err(|e| missing(e.into()))?;
    // SAFETY: a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(missing(std::io::Error::last_os_error())),
        index => Ok(index),
    }
}
