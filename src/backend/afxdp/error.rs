//! Why the AF_XDP backend cannot start, or cannot go on.

use std::error::Error as StdError;
use std::fmt::Write;
use std::io;

use super::umem::MAX_FRAME_BYTES;
use crate::backend::xdp::LoadError;

/// Why the switch cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller lacks capabilities.
    #[error("XDP and AF_XDP need root; not there: {}; run it with sudo, or in a container with these added", .0.join(", "))]
    Rights(Vec<&'static str>),
    /// No interface of this name.
    #[error("port {port:?}: there is no interface {interface:?} here; there are: {existing}")]
    NoInterface {
        /// The port.
        port: String,
        /// The interface it names.
        interface: String,
        /// Those that exist.
        existing: String,
    },
    /// Two ports on one interface.
    #[error("ports {first:?} and {second:?} both name interface {interface:?}; a port needs an interface of its own")]
    SharedInterface {
        /// One port.
        first: String,
        /// The other.
        second: String,
        /// What they share.
        interface: String,
    },
    /// A frame of the interface's MTU does not fit into a chunk.
    #[error(
        "port {port:?}: interface {interface:?} has an MTU of {mtu} bytes, but a frame buffer takes {}; \
         set it (and its peer's) to at most {largest}: ip link set {interface} mtu {largest}",
        MAX_FRAME_BYTES
    )]
    MtuTooLarge {
        /// The port.
        port: String,
        /// Its interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The largest that works.
        largest: u32,
    },
    /// A job's RoCE path MTU does not fit.
    #[error(
        "job {job}: a path_mtu of {path_mtu} bytes does not fit a frame buffer of {} bytes; use 2048 or less",
        MAX_FRAME_BYTES
    )]
    PathMtuTooLarge {
        /// The user's number of the job.
        job: u32,
        /// What it asks for.
        path_mtu: u32,
    },
    /// More ports than the switch can have, or none.
    #[error("{0} ports: a switch has 1 to 64, or 63 with [serene]; give each interface a [[port]] table")]
    PortCount(usize),
    /// The frames' memory.
    #[error("cannot set up the frame memory (UMEM): {0}")]
    Umem(String),
    /// A port's socket.
    #[error("port {port:?}: cannot open an AF_XDP socket on {interface:?}: {reason}")]
    Socket {
        /// The port.
        port: String,
        /// Its interface.
        interface: String,
        /// What the kernel said, and the cure where known.
        reason: String,
    },
    /// The kernel program.
    #[error(transparent)]
    Kernel(#[from] LoadError),
    /// A job from the start.
    #[error("{0}")]
    Job(String),
    /// A system call that should work.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn umem(error: impl StdError) -> Self {
        Error::Umem(chain(&error))
    }
}

/// Whether a reason is that somebody else holds the interface (EBUSY).
pub(super) fn is_busy(reason: &str) -> bool {
    reason.contains("os error 16)")
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
