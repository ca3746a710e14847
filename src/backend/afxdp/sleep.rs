//! The worker's sleep until a frame comes in or a time has come.

use std::io;
use std::os::fd::RawFd;

use crate::backend::clock;
use crate::dataplane::Nanos;

/// Sleeps on a set of sockets.
#[derive(Debug, Default)]
pub struct Sleeper(Vec<libc::pollfd>);

impl Sleeper {
    /// Sleeps on these sockets from now on.
    pub fn watch(&mut self, sockets: impl Iterator<Item = RawFd>) {
        self.0.clear();
        self.0.extend(sockets.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }));
    }

    /// Sleeps until a socket has frames or an error, a signal comes, or `ns` have passed. Returns whether a socket has an
    /// error: its interface is gone.
    ///
    /// # Errors
    /// When the kernel refuses to poll, which leaves no way to wait.
    pub fn sleep(&mut self, ns: Nanos) -> io::Result<bool> {
        let broken = |fd: &libc::pollfd| fd.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        Ok(clock::wait(&mut self.0, ns)? && self.0.iter().any(broken))
    }
}
