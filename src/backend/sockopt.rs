//! Options of sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option whose value is an int.
///
/// # Errors
/// The kernel does not know it, or does not let us.
pub fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the pointer and the length are those of `value`, which lives until the call returns.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for what comes: as much as root may have, else as everybody may.
///
/// # Errors
/// As [`set`].
pub fn set_receive_buffer(socket: &impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Room for what goes, likewise.
///
/// # Errors
/// As [`set`].
pub fn set_send_buffer(socket: &impl AsFd, bytes: libc::c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
}
