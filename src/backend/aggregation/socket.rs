//! A UDP socket that does not block, never fragments, and has room for what other workers' rounds bring while its owner
//! computes.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use crate::backend::{clock, sockopt};
use crate::dataplane::Nanos;
use crate::wire::aggregation::{HEADER_LEN, MAX_LANES};

/// The longest payload.
pub const PAYLOAD_BYTES: usize = HEADER_LEN + 4 * MAX_LANES;

/// Room in the kernel: 50 rounds of a model of 300 segments, for a worker that pauses a while. It holds twice as much, as
/// it counts its own overhead.
const SOCKET_BUFFER_BYTES: libc::c_int = 32 << 20;

/// A full send buffer empties within this, or the interface is stuck.
const SEND_PATIENCE_NS: Nanos = 20_000_000;

/// See the file's head.
pub struct Socket {
    socket: UdpSocket,
}

impl Socket {
    /// Bound to `local`.
    ///
    /// # Errors
    /// The address is not ours, or the port is taken.
    pub fn bind(local: SocketAddrV4) -> io::Result<Self> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        sockopt::set_receive_buffer(&socket, SOCKET_BUFFER_BYTES)?;
        sockopt::set_send_buffer(&socket, SOCKET_BUFFER_BYTES)?;
        sockopt::set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        Ok(Socket { socket })
    }

    /// Talks to `peer` and hears nobody else.
    ///
    /// # Errors
    /// No route.
    pub fn connect(&self, peer: SocketAddrV4) -> io::Result<()> {
        self.socket.connect(peer)
    }

    /// To the peer. Waits a little where the kernel has no room.
    ///
    /// # Errors
    /// The kernel's; among them what ICMP said of packets before.
    pub fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.with_room(|| self.socket.send(payload))
    }

    /// As [`Socket::send`], to `peer`.
    ///
    /// # Errors
    /// The same.
    pub fn send_to(&self, payload: &[u8], peer: SocketAddrV4) -> io::Result<()> {
        self.with_room(|| self.socket.send_to(payload, peer))
    }

    fn with_room(&self, send: impl Fn() -> io::Result<usize>) -> io::Result<()> {
        let sent = match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_for(libc::POLLOUT, SEND_PATIENCE_NS)?;
                send()
            }
            sent => sent,
        };
        sent.map(|_| ())
    }

    /// The next datagram that has come and who sent it; `None` when there is none.
    ///
    /// # Errors
    /// What ICMP said of packets that we sent.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddrV4)>> {
        match self.socket.recv_from(buffer) {
            Ok((len, std::net::SocketAddr::V4(from))) => Ok(Some((len, from))),
            Ok(_) => Ok(None), // an IPv4 socket has no other peers
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until a datagram has come or `wait` is over.
    ///
    /// # Errors
    /// When the kernel refuses to poll.
    pub fn wait(&self, wait: Nanos) -> io::Result<bool> {
        self.wait_for(libc::POLLIN, wait)
    }

    fn wait_for(&self, events: libc::c_short, wait: Nanos) -> io::Result<bool> {
        clock::wait(&mut [libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 }], wait)
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local(&self) -> io::Result<SocketAddrV4> {
        match self.socket.local_addr()? {
            std::net::SocketAddr::V4(local) => Ok(local),
            std::net::SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}
