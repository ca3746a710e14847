//! Entering a named network namespace.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Moves the calling thread, and no other, into the namespace that `ip netns add NAME` made.
///
/// # Errors
/// No such namespace, or no `CAP_SYS_ADMIN`.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(format!("/run/netns/{name}"))?;
    // SAFETY: setns takes a file descriptor, which `file` keeps open, and a flag; it touches no memory of ours.
    let result = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
