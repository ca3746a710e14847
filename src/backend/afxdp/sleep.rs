//! The worker's clock, and its sleep until a frame comes in or a time has come.

use std::io;
use std::os::fd::RawFd;

use crate::dataplane::Nanos;

/// `CLOCK_MONOTONIC`, which is also what `bpf_ktime_get_ns` reads in the kernel side.
pub fn now() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// Makes this thread punctual, as far as the kernel lets it.
///
/// By default the kernel adds up to 50 us to a sleep, more than a packet's time on a 400 Mbit/s line, and lets other
/// threads finish their slice first: on 2 CPUs with 13 ready threads, one packet in six left more than 1 ms late even at
/// the best `nice`, and at most 15 of 55,000 with the least real-time priority. The kernel keeps a share of each CPU for
/// the others, and a worker with nothing to do sleeps.
pub fn be_punctual() {
    // SAFETY: no pointers.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: `sched_param` of zeroes is valid; its fields differ between C libraries.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `priority` is ours; 0 is the calling thread.
    let scheduler = unsafe { libc::sched_setscheduler(0, policy, &priority) };
    if slack != 0 || scheduler != 0 {
        tracing::warn!(
            "the kernel refuses real-time priority (CAP_SYS_NICE): packets may leave late where CPUs are busy"
        );
    }
}

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
        let timeout = libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: the array and the time are ours and outlive the call; no signal mask.
        let ready =
            unsafe { libc::ppoll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, &timeout, std::ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        Ok(ready > 0 && self.0.iter().any(|fd| fd.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0))
    }
}
