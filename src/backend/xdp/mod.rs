//! The kernel side (`ebpf/`) as userspace sees it: load, attach, sockets, jobs, state.
//!
//! ```text
//! Kernel::load ──> install_job ──> set_socket ──> attach ──> metadata of each frame
//!                                                   └─ until detach or drop; a killed process leaves no program behind
//! ```
//!
//! The program parses and tracks every frame that comes in on a port and redirects it to the AF_XDP socket of the port and
//! queue, with 32 bytes of [`Metadata`] before the frame. Packets that it does not redirect are dropped by a counted
//! reason. It forwards nothing: that is the pipeline's part.
//!
//! Layouts are those of `ebpf/abi.h`, by way of BTF and the skeleton.

mod bench;
mod jobs;
mod load;
mod mapped;
mod metadata;
mod ports;
mod state;

pub use bench::{Bench, Run};
pub use load::{Kernel, LoadError};
pub use metadata::{METADATA_BYTES, Metadata};
pub use ports::{PeerPass, PeerPassError, PortError};
pub use state::{Flow, StateError, Stats};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)] // generated
mod skel {
    include!(concat!(env!("OUT_DIR"), "/symphony.skel.rs"));
}
