//! AF_XDP sockets on the one UMEM: a port's four rings, and the anchor that lets ports come and go.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig, XdpFlags};
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue, Umem};

use super::error::{Error, chain, is_busy};
use super::umem::{Frame, Pool, RING_FRAMES};
use crate::dataplane::PortId;

/// What a kick of the transmit ring came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// The kernel has taken everything.
    Done,
    /// It took some, and will take more later.
    Progress,
    /// It takes nothing now: its socket buffer, the completion ring or the device's queue is full.
    Busy,
    /// The interface is down or gone.
    Down,
}

/// The four rings of one port's socket. Dropping it closes the socket; only then may [`Pool::reclaim`] follow.
pub struct PortSocket {
    port: PortId,
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    comp: CompQueue,
    /// Whether frames in the transmit ring may wait for a kick.
    unsent: bool,
    /// Frames that the device refused.
    refused: u64,
}

impl PortSocket {
    /// Binds a socket to queue 0 of `interface` and fills its fill ring, so that no early frame is lost.
    ///
    /// # Errors
    /// The kernel's reason, with the cure where one is known.
    pub fn open(pool: &mut Pool, port: PortId, interface: &str) -> Result<Self, String> {
        let name: Interface = interface.parse().map_err(|_| "the name holds a zero byte".to_string())?;
        let (tx, rx, rings) = bind(pool.umem(), &name).map_err(|error| match error {
            BindError::Kernel(text) if is_busy(&text) => {
                format!("{text} (another AF_XDP program, perhaps another switch, holds its queue 0; stop that one)")
            }
            error => error.to_string(),
        })?;
        let (fill, comp) = rings.ok_or_else(|| "another port is bound to the same queue".to_string())?;
        let mut socket = PortSocket { port, tx, rx, fill, comp, unsent: false, refused: 0 };
        socket.refill(pool);
        Ok(socket)
    }

    /// Its descriptor, for polling and for the kernel side's socket map.
    pub fn fd(&self) -> RawFd {
        self.rx.fd().as_raw_fd()
    }

    /// Gives the kernel free frames to receive into.
    pub fn refill(&mut self, pool: &mut Pool) {
        pool.refill(self.port, &mut self.fill);
    }

    /// Takes received frames, at most what `into` has room for.
    pub fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Frame>) {
        pool.receive(self.port, &mut self.rx, into);
    }

    /// Takes back what has been sent.
    pub fn complete(&mut self, pool: &mut Pool) -> usize {
        pool.complete(self.port, &mut self.comp)
    }

    /// Room in the transmit ring, in frames.
    pub fn transmit_room(&mut self) -> usize {
        self.tx.nb_free_exact() as usize
    }

    /// Puts frames into the transmit ring, which must have room for them. Call [`Self::kick`] after it.
    pub fn transmit(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) {
        self.unsent |= !frames.is_empty();
        pool.transmit(self.port, &mut self.tx, frames);
    }

    /// Frames that the device refused; they count as sent elsewhere.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes the kernel send what is in the transmit ring, and takes back what is complete. In copy mode sending happens
    /// inside of the call, for at most 32 frames each time, so the call is repeated as long as it gets on.
    pub fn kick(&mut self, pool: &mut Pool) -> Kick {
        let mut progress = false;
        while self.unsent {
            let before = self.transmit_room();
            // xsk-rs's own `wakeup` takes ENETDOWN and EAGAIN for success, which mean different things here.
            // SAFETY: an empty message on our own descriptor; no pointer is read.
            let status =
                unsafe { libc::sendto(self.fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
            let error = if status < 0 { io::Error::last_os_error().raw_os_error() } else { None };
            self.complete(pool);
            let after = self.transmit_room();
            self.unsent = after < RING_FRAMES as usize;
            match error {
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Kick::Down,
                // The device refused one frame, which is gone; the kernel stopped there.
                Some(libc::EBUSY) => self.refused += 1,
                // Nothing, or EAGAIN and ENOBUFS: "later", also said after 32 frames.
                _ => {}
            }
            if after == before {
                return if progress { Kick::Progress } else { Kick::Busy };
            }
            progress = true;
        }
        Kick::Done
    }

    /// The kernel's `XDP_STATISTICS`, by its names.
    pub fn statistics(&self) -> BTreeMap<&'static str, u64> {
        let Ok(statistics) = self.rx.fd().xdp_statistics() else { return BTreeMap::new() };
        BTreeMap::from([
            ("rx_dropped", statistics.rx_dropped()),
            ("rx_invalid_descs", statistics.rx_invalid_descs()),
            ("tx_invalid_descs", statistics.tx_invalid_descs()),
            ("rx_ring_full", statistics.rx_ring_full()),
            ("rx_fill_ring_empty_descs", statistics.rx_fill_ring_empty_descs()),
            ("tx_ring_empty_descs", statistics.tx_ring_empty_descs()),
        ])
    }

    /// Whether the kernel has let go of the socket, which happens when its interface is unregistered here.
    pub fn is_dead(&self) -> bool {
        let mut error: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        let value = std::ptr::from_mut(&mut error).cast();
        // SAFETY: `value` and `length` are ours and of the size that SO_ERROR takes.
        let status = unsafe { libc::getsockopt(self.fd(), libc::SOL_SOCKET, libc::SO_ERROR, value, &mut length) };
        status != 0 || error != 0
    }

    /// Frames received and not taken yet.
    pub fn received(&mut self) -> usize {
        self.rx.nb_avail_exact() as usize
    }
}

/// The UMEM's first socket.
///
/// The kernel ties a UMEM to the socket that registered it: all others bind by its descriptor, and only while it is bound
/// to a device. If that were a port, no port could come back once its interface is removed. So the first socket sits on the
/// loopback of a network namespace of its own, which nothing else sees and which goes away with the socket.
pub struct Anchor {
    _tx: TxQueue,
    _rx: RxQueue,
    _rings: Option<(FillQueue, CompQueue)>,
}

impl Anchor {
    /// Makes a pool of `frames` frames, whose first socket it binds.
    ///
    /// # Errors
    /// When the kernel refuses a namespace, the memory or the socket.
    pub fn new(frames: NonZeroU32) -> Result<(Pool, Self), Error> {
        // A thread, because a thread that entered a new namespace stays there. The socket is also made in it: it stays
        // in the namespace where it was made, and ours has only one loopback, for the anchor of one switch.
        let thread = thread::Builder::new().name("umem-anchor".into()).spawn(move || {
            // SAFETY: no pointers; only this thread changes its namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                let source = io::Error::last_os_error();
                return Err(Error::System { what: "cannot make a network namespace for the UMEM", source });
            }
            let pool = Pool::new(frames)?;
            let loopback: Interface = "lo".parse().map_err(Error::umem)?;
            let (tx, rx, rings) = bind(pool.umem(), &loopback).map_err(Error::umem)?;
            Ok((pool, Anchor { _tx: tx, _rx: rx, _rings: rings }))
        });
        let thread = thread.map_err(|source| Error::System { what: "cannot start a thread", source })?;
        thread.join().unwrap_or_else(|_| Err(Error::Umem("the thread that binds the first socket panicked".into())))
    }
}

#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error("{0}")]
    Kernel(String),
}

type Rings = (TxQueue, RxQueue, Option<(FillQueue, CompQueue)>);

/// A socket in copy mode on queue 0; the XDP program is none of libxdp's business.
fn bind(umem: &Umem, interface: &Interface) -> Result<Rings, BindError> {
    let ring = QueueSize::new(RING_FRAMES).map_err(|error| BindError::Kernel(error.to_string()))?;
    let config = SocketConfig::builder()
        .rx_queue_size(ring)
        .tx_queue_size(ring)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .xdp_flags(XdpFlags::empty())
        .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    // SAFETY: programs are never loaded by libxdp (INHIBIT_PROG_LOAD), which is what the contract asks.
    unsafe { Socket::new(config, umem, interface, 0) }.map_err(|error| BindError::Kernel(chain(&error)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::super::umem::Census;
    use super::*;

    const FRAMES: NonZeroU32 = NonZeroU32::new(4096).unwrap();

    #[test]
    fn two_switches_in_one_namespace_have_an_anchor_each() {
        let Ok(_first) = Anchor::new(FRAMES) else {
            println!("SKIPPED: no right to make an AF_XDP socket in a network namespace");
            return;
        };
        assert_eq!(Anchor::new(FRAMES).map(|_| ()).map_err(|error| error.to_string()), Ok(()));
    }

    fn ip(arguments: &str) -> bool {
        let status = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    fn veth() -> bool {
        ip("link del afx-t0");
        ip("link add afx-t0 type veth peer name afx-t1") && ip("link set afx-t0 up") && ip("link set afx-t1 up")
    }

    #[test]
    fn a_port_whose_interface_was_removed_binds_again_and_its_frames_come_back() {
        if !veth() {
            println!("SKIPPED: no right to make a veth pair");
            return;
        }
        let (mut pool, _anchor) = Anchor::new(FRAMES).map_err(|error| error.to_string()).unwrap();
        let socket = PortSocket::open(&mut pool, 0, "afx-t0").map_err(|error| error.to_string()).unwrap();
        let bound = Census { free: 2048, receive: [(0, 2048)].into(), ..Census::default() };
        assert_eq!(pool.census(), bound);
        assert!(veth(), "the interface is removed and made again");
        drop(socket);
        assert_eq!(pool.reclaim(0), 0);
        assert_eq!(pool.census(), Census { free: 4096, ..Census::default() });
        let socket = PortSocket::open(&mut pool, 0, "afx-t0").map_err(|error| error.to_string()).unwrap();
        assert_eq!(pool.census(), bound);
        drop(socket);
        ip("link del afx-t0");
    }
}
