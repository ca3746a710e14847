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

/// Lets the calling thread's sleeps end when they should and not up to 50 us later, and lets it run soon after: it asks for
/// short turns on the processor, so that it is not kept waiting for a long one of another (Linux 6.12 and newer; older ones
/// take no notice). Without it packets only leave later.
pub fn sharpen_timers() {
    const TURN_NS: u64 = 100_000; // the least that Linux grants
    // SAFETY: prctl with these arguments takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: getpriority takes numbers only; an error of it is a nice value too.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: all fields of `sched_attr` are numbers, for which zeros are good.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_nice = nice;
    attributes.sched_runtime = TURN_NS;
    // SAFETY: the pointer is that of `attributes`, whose size is in it; thread 0 is the calling one.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
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
