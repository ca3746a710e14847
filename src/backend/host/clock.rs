//! Time: the clock, exact sleeping, and what a thread has used of its processor.

use std::ptr::{null, null_mut};

use crate::dataplane::Nanos;

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of `time`, which the call fills.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as Nanos * 1_000_000_000 + time.tv_nsec as Nanos
}

/// The time on `CLOCK_MONOTONIC`.
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Lets the calling thread's sleeps end when they should and not up to 50 us later. Without it packets only leave later.
pub fn sharpen_timers() {
    // SAFETY: prctl with these arguments takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
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

/// Sleeps until something can be read or `wait` is over. A signal ends it early.
pub fn wait(poll: &mut [libc::pollfd], wait: Nanos) {
    let time = timespec(wait);
    // SAFETY: `poll` holds as many entries as we say, and `time` lives until the call returns; no signal mask is given.
    let ready = unsafe { libc::ppoll(poll.as_mut_ptr(), poll.len() as libc::nfds_t, &raw const time, null()) };
    if ready < 0 {
        poll.iter_mut().for_each(|entry| entry.revents = 0);
    }
}
