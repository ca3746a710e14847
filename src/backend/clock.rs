//! Time as drivers need it: the clock, exact sleeping, punctual threads, and what a thread has used of its processor.

use std::io;
use std::ptr::{null, null_mut};

use crate::dataplane::Nanos;

/// Real-time priority of the switch: above the hosts that run on the same machine.
pub const SWITCH_PRIORITY: i32 = 2;
/// Real-time priority of hosts.
pub const HOST_PRIORITY: i32 = 1;

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of `time`, which the call fills. It cannot fail for the clocks of this file.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// The time on `CLOCK_MONOTONIC`, which is also what `bpf_ktime_get_ns` reads in the kernel side.
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Makes the calling thread punctual, as far as the kernel lets it; returns whether it does.
///
/// By default the kernel adds up to 50 us to a sleep, more than a packet's time on a 400 Mbit/s line, and lets other
/// threads finish their turn first: on 2 CPUs with 13 ready threads, one packet in six left the switch more than 1 ms late
/// even at the best `nice`, and at most 15 of 55,000 with the least real-time priority. The kernel keeps a share of each
/// CPU for the others, and a thread with nothing to do sleeps.
pub fn be_punctual(priority: i32) -> bool {
    // SAFETY: prctl with these arguments takes numbers only.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: `sched_param` of zeroes is valid; its fields differ between C libraries.
    let mut scheduling: libc::sched_param = unsafe { std::mem::zeroed() };
    scheduling.sched_priority = priority;
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `scheduling` is ours; 0 is the calling thread.
    let scheduler = unsafe { libc::sched_setscheduler(0, policy, &raw const scheduling) };
    slack == 0 && scheduler == 0
}

/// Lets the calling thread run only when no other thread of the machine wants the processor; returns whether the kernel
/// agreed.
pub fn be_background() -> bool {
    // SAFETY: as in `be_punctual`; SCHED_IDLE takes the priority 0.
    let scheduling: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `scheduling` is ours; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const scheduling) == 0 }
}

fn timespec(time: Nanos) -> libc::timespec {
    libc::timespec { tv_sec: (time / 1_000_000_000) as libc::time_t, tv_nsec: (time % 1_000_000_000) as libc::c_long }
}

/// Sleeps for `time`. A signal ends it early.
pub fn sleep(time: Nanos) {
    let time = timespec(time);
    // SAFETY: `time` lives until the call returns; the time left is not asked for.
    unsafe { libc::nanosleep(&raw const time, null_mut()) };
}

/// Sleeps until one of `sockets` is ready or `wait` is over. A signal ends it early. Returns whether one is ready; none has
/// `revents` otherwise.
///
/// # Errors
/// When the kernel refuses to poll.
pub fn wait(sockets: &mut [libc::pollfd], wait: Nanos) -> io::Result<bool> {
    let time = timespec(wait);
    // SAFETY: `sockets` has as many entries as we say, and `time` lives until the call returns; no signal mask is given.
    let ready = unsafe { libc::ppoll(sockets.as_mut_ptr(), sockets.len() as libc::nfds_t, &raw const time, null()) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    sockets.iter_mut().for_each(|entry| entry.revents = 0);
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}
