//! The sockets of a server.
//!
//! **In**: one UDP socket a rank, bound to its address and port 4791, which tells the ToS of every packet and so whether it
//! was marked. **Out**: one raw socket a server and IP version, on which we write the IP and UDP headers ourselves. A UDP
//! socket could not do it: its source port is the one it is bound to, while a queue pair has a source port of its own, a
//! step tag changes it from message to message, and a CNP has port 0; and with the headers in our hand ToS needs no control
//! message and one `sendmmsg` serves all ranks. The kernel leaves the IPv4 identification at the 0 that we write as long as
//! DF is set, which matters because the ICRC covers it.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::from_mut;

use crate::backend::sockopt;
use crate::wire::ROCE_PORT;

/// Most packets in one system call.
const BATCH: usize = 64;

/// Room for a packet of path MTU 4096 with all its headers.
const PACKET_BYTES: usize = 4352;

/// Room for two control messages: ToS and the overflow counter.
const CONTROL_BYTES: usize = 64;

/// Socket buffers: a second of 200 Mbit/s and more.
const SOCKET_BUFFER_BYTES: libc::c_int = 32 << 20;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn open(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes three numbers and touches no memory of ours.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn family(addr: IpAddr) -> libc::c_int {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// The kernel's form of an address.
fn to_raw(addr: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid sockaddr_storage: it holds integers only.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    match addr {
        SocketAddr::V4(addr) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*addr.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage is large enough and aligned for every address type.
            unsafe { from_mut(&mut storage).cast::<libc::sockaddr_in>().write(raw) };
            (storage, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        SocketAddr::V6(addr) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            // SAFETY: a sockaddr_storage is large enough and aligned for every address type.
            unsafe { from_mut(&mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            (storage, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

/// The address in the kernel's form, if it is an IP address.
fn from_raw(storage: &libc::sockaddr_storage) -> Option<(IpAddr, u16)> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in is stored, for which the storage is large enough and aligned.
            let raw = unsafe { (&raw const *storage).cast::<libc::sockaddr_in>().read() };
            Some((IpAddr::from(u32::from_be(raw.sin_addr.s_addr).to_be_bytes()), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that a sockaddr_in6 is stored, for which the storage is large enough and aligned.
            let raw = unsafe { (&raw const *storage).cast::<libc::sockaddr_in6>().read() };
            Some((IpAddr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port)))
        }
        _ => None,
    }
}

/// A message header for one buffer.
fn header(
    name: &mut libc::sockaddr_storage,
    name_len: libc::socklen_t,
    iov: &mut libc::iovec,
    control: &mut [u8],
) -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and integers.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    message.msg_hdr.msg_name = from_mut(name).cast();
    message.msg_hdr.msg_namelen = name_len;
    message.msg_hdr.msg_iov = iov;
    message.msg_hdr.msg_iovlen = 1;
    if !control.is_empty() {
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = control.len();
    }
    message
}

/// Sends whole IP packets of one version.
pub struct Sender {
    fd: OwnedFd,
    buffer: Vec<u8>,
    lens: Vec<usize>,
    names: Vec<(libc::sockaddr_storage, libc::socklen_t)>,
    /// Packets that the kernel refused.
    pub refused: u64,
    /// Why, the last time.
    pub last_error: Option<io::Error>,
}

impl Sender {
    /// For packets of `addr`'s IP version.
    ///
    /// # Errors
    /// No `CAP_NET_RAW`.
    pub fn new(addr: IpAddr) -> io::Result<Self> {
        let fd = open(family(addr), libc::SOCK_RAW, libc::IPPROTO_RAW)?; // IPPROTO_RAW: with our headers
        sockopt::set_send_buffer(&fd, SOCKET_BUFFER_BYTES)?;
        Ok(Sender {
            fd,
            buffer: vec![0; BATCH * PACKET_BYTES],
            lens: Vec::with_capacity(BATCH),
            names: Vec::with_capacity(BATCH),
            refused: 0,
            last_error: None,
        })
    }

    /// No more packets fit before [`Sender::flush`].
    pub fn is_full(&self) -> bool {
        self.lens.len() == BATCH
    }

    /// Packets are waiting for [`Sender::flush`].
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// The kernel refused a packet because it is larger than the interface's MTU: so will it refuse all its like.
    pub fn found_too_long(&self) -> bool {
        self.last_error.as_ref().and_then(io::Error::raw_os_error) == Some(libc::EMSGSIZE)
    }

    /// Adds a packet to `dst`, which `write` puts into the buffer and tells where it lies there.
    pub fn push(&mut self, dst: IpAddr, write: impl FnOnce(&mut [u8]) -> usize) {
        let at = self.lens.len() * PACKET_BYTES;
        let Some(room) = self.buffer.get_mut(at..at + PACKET_BYTES) else { return };
        let len = write(room).min(PACKET_BYTES);
        self.lens.push(len);
        self.names.push(to_raw(SocketAddr::new(dst, 0))); // a raw IPv6 socket refuses other ports
    }

    /// Sends what [`Sender::push`] collected, `skip` bytes of each packet left out in front. A packet that the kernel
    /// refuses is counted and lost, as a network would lose it.
    pub fn flush(&mut self, skip: usize) {
        let mut iovs: [libc::iovec; BATCH] = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: all-zero bytes are valid mmsghdrs: null pointers and integers.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let slots = self.buffer.chunks_exact_mut(PACKET_BYTES).zip(&self.lens);
        for ((((slot, len), name), iov), message) in slots.zip(&mut self.names).zip(&mut iovs).zip(&mut messages) {
            let packet = slot.get_mut(skip..*len).unwrap_or(&mut []);
            *iov = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
            *message = header(&mut name.0, name.1, iov, &mut []);
        }
        let mut done = 0;
        while let Some(rest) = messages.get_mut(done..self.lens.len()).filter(|rest| !rest.is_empty()) {
            // SAFETY: `rest` holds `rest.len()` headers; their names, buffers and lengths belong to `self` and `iovs`,
            // which outlive the call.
            let sent = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
            match check(sent) {
                Ok(sent) => done += sent as usize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.refused += 1;
                    self.last_error = Some(error);
                    done += 1;
                }
            }
        }
        self.lens.clear();
        self.names.clear();
    }
}

/// What came with a packet.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Sender's address.
    pub src: IpAddr,
    /// Sender's UDP port.
    pub sport: u16,
    /// IPv4 ToS or IPv6 traffic class.
    pub tos: u8,
}

/// Receives what comes for one rank.
pub struct Receiver {
    fd: OwnedFd,
    /// Its address.
    pub addr: IpAddr,
    /// Packets that the kernel threw away because the buffer was full.
    pub overflows: u32,
}

/// Buffers for receiving; one set serves all receivers of a server.
pub struct ReceiveBuffers {
    buffer: Vec<u8>,
    control: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
}

impl ReceiveBuffers {
    /// Room for a batch.
    pub fn new() -> Self {
        // SAFETY: all-zero bytes are a valid sockaddr_storage: it holds integers only.
        let name: libc::sockaddr_storage = unsafe { zeroed() };
        ReceiveBuffers {
            buffer: vec![0; BATCH * PACKET_BYTES],
            control: vec![0; BATCH * CONTROL_BYTES],
            names: vec![name; BATCH],
        }
    }
}

impl Receiver {
    /// Listens on port 4791 of `addr`.
    ///
    /// # Errors
    /// The address is not ours, or the port is taken.
    pub fn new(addr: IpAddr) -> io::Result<Self> {
        let fd = open(family(addr), libc::SOCK_DGRAM, 0)?;
        sockopt::set_receive_buffer(&fd, SOCKET_BUFFER_BYTES)?;
        sockopt::set(&fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        if addr.is_ipv4() {
            sockopt::set(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        } else {
            const UDP_NO_CHECK6_RX: libc::c_int = 102; // linux/udp.h; RoCEv2 sends checksum 0
            sockopt::set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            sockopt::set(&fd, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        let (name, len) = to_raw(SocketAddr::new(addr, ROCE_PORT));
        // SAFETY: the pointer and the length are those of `name`, which lives until the call returns.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
        Ok(Receiver { fd, addr, overflows: 0 })
    }

    /// For polling.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Gives one batch of packets that have come to `take`; returns whether there may be more.
    pub fn receive(&mut self, buffers: &mut ReceiveBuffers, mut take: impl FnMut(Origin, &[u8])) -> bool {
        let mut iovs: [libc::iovec; BATCH] = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: all-zero bytes are valid mmsghdrs: null pointers and integers.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let slots = buffers.buffer.chunks_exact_mut(PACKET_BYTES).zip(buffers.control.chunks_exact_mut(CONTROL_BYTES));
        for ((((slot, control), name), iov), message) in slots.zip(&mut buffers.names).zip(&mut iovs).zip(&mut messages)
        {
            *iov = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            *message = header(name, size_of::<libc::sockaddr_storage>() as libc::socklen_t, iov, control);
        }
        // SAFETY: there are BATCH headers; their names, buffers and control areas belong to `buffers` and `iovs`, which
        // outlive the call.
        let came = unsafe {
            libc::recvmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), BATCH as u32, 0, std::ptr::null_mut())
        };
        let Ok(came) = check(came) else { return false }; // EAGAIN, EINTR; a pending ICMP error clears itself
        let came = came as usize;
        for ((message, name), slot) in
            messages.iter().zip(&buffers.names).zip(buffers.buffer.chunks_exact(PACKET_BYTES)).take(came)
        {
            let tos = self.read_control(&message.msg_hdr);
            let Some((src, sport)) = from_raw(name) else { continue };
            let Some(bytes) = slot.get(..message.msg_len as usize) else { continue };
            take(Origin { src, sport, tos }, bytes);
        }
        came == BATCH
    }

    /// The ToS of a received message; notes the overflow counter.
    fn read_control(&mut self, header: &libc::msghdr) -> u8 {
        let mut tos = 0;
        // SAFETY: the kernel has filled the control area that `header` points to and set its length.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !next.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie whole inside the control area.
            let control = unsafe { next.read_unaligned() };
            // SAFETY: the data begins behind that header, inside the control area.
            let data = unsafe { libc::CMSG_DATA(next) };
            match (control.cmsg_level, control.cmsg_type) {
                // IPv4 gives one byte, IPv6 an int in host order.
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    // SAFETY: this message carries at least one byte.
                    tos = unsafe { data.read() };
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    // SAFETY: this message carries an int.
                    tos = unsafe { data.cast::<libc::c_int>().read_unaligned() } as u8;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    // SAFETY: this message carries a u32.
                    self.overflows = unsafe { data.cast::<u32>().read_unaligned() };
                }
                _ => {}
            }
            // SAFETY: `next` came from the same header's control area.
            next = unsafe { libc::CMSG_NXTHDR(header, next) };
        }
        tos
    }
}
