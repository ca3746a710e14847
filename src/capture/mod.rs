//! Captures: pcap and pcapng files of Ethernet frames, read with nanoseconds and written as pcapng.
//!
//! Knows files and frames, not what is in a frame.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Packet, Reader};
pub use write::{Direction, Writer};

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin like a pcap or pcapng file.
    #[error("not a pcap or pcapng file: {0}")]
    NotACapture(String),
    /// A link type other than Ethernet.
    #[error("link type {0} is not supported, only Ethernet (1); capture on an Ethernet interface, not on \"any\"")]
    LinkType(String),
    /// The file ends or goes wrong in the middle. The packets before it have been handed out.
    #[error("the capture breaks off after packet {after}: {reason}")]
    Broken {
        /// Number of the last good packet, from 1; 0 when there is none.
        after: u64,
        /// What is wrong there.
        reason: String,
    },
    /// Writing failed.
    #[error("could not write the capture: {0}")]
    Write(String),
}

impl From<pcap_file::PcapError> for Error {
    fn from(error: pcap_file::PcapError) -> Self {
        Error::Write(reason(error))
    }
}

/// What is wrong, in the system's words where the system said so: the crate calls all of that "Error reading bytes".
fn reason(error: pcap_file::PcapError) -> String {
    match error {
        pcap_file::PcapError::IoError(error) => error.to_string(),
        error => error.to_string(),
    }
}
