//! The program without ports: frames go through it by `BPF_PROG_TEST_RUN`, for tests.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, ProgramInput};

use super::load::Kernel;
use super::mapped::Plain;
use super::metadata::{METADATA_BYTES, Metadata};
use super::ports::PortError;
use super::skel::types;
use super::state::StateError;

/// The kernel runs test frames as if they came in on the loopback device, whose number is 1 in every network namespace.
const LOOPBACK: u32 = 1;

/// A kernel side whose port 0 is nowhere. It redirects to a socket that is never bound; nothing is sent.
pub struct Bench {
    /// The kernel side under test.
    pub kernel: Kernel,
    _socket: OwnedFd,
}

/// What the program did with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's verdict: 1 XDP_DROP, 4 XDP_REDIRECT.
    pub verdict: u32,
    /// What it wrote before the frame, if redirected.
    pub metadata: Option<Metadata>,
    /// The frame as it left.
    pub frame: Vec<u8>,
}

impl Bench {
    /// Puts a socket on port 0, queue 0 and makes loopback that port.
    ///
    /// # Errors
    /// When the kernel has no AF_XDP, or a map refuses.
    pub fn new(mut kernel: Kernel) -> Result<Self, PortError> {
        let refused = |source: std::io::Error| PortError::Map { port: 0, source: source.into() };
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(refused(std::io::Error::last_os_error()));
        }
        // SAFETY: just opened, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        kernel.set_socket(0, 0, socket.as_raw_fd())?;
        let port = types::port { slot: 0 };
        kernel
            .skel
            .maps
            .ports
            .update(&LOOPBACK.to_ne_bytes(), port.as_bytes(), MapFlags::ANY)
            .map_err(|source| PortError::Map { port: 0, source })?;
        Ok(Bench { kernel, _socket: socket })
    }

    /// Takes the socket away from the port.
    ///
    /// # Errors
    /// When the map refuses.
    pub fn unplug(&self) -> Result<(), StateError> {
        self.kernel.skel.maps.xsks.delete(&0u32.to_ne_bytes()).map_err(|e| StateError::new("xsks", e))
    }

    /// Runs the program on `frame`, before which a driver has already put `before` (metadata of its own: at most 216 bytes,
    /// a multiple of four).
    ///
    /// # Errors
    /// When the kernel does not take the frame: shorter than an Ethernet header, or longer than a page holds.
    pub fn run(&self, before: &[u8], frame: &[u8]) -> Result<Run, StateError> {
        let input = [before, frame].concat();
        let mut context = [0; size_of::<types::xdp_md>()];
        let mut context_out = context;
        let (data, end) = (before.len() as u32, input.len() as u32);
        context[..4].copy_from_slice(&data.to_ne_bytes());
        context[4..8].copy_from_slice(&end.to_ne_bytes());
        let mut output = vec![0; input.len() + METADATA_BYTES];
        let result = self
            .kernel
            .skel
            .progs
            .symphony
            .test_run(ProgramInput {
                context_in: Some(&mut context),
                context_out: Some(&mut context_out),
                data_in: Some(&input),
                data_out: Some(&mut output),
                ..ProgramInput::default()
            })
            .map_err(|e| StateError::new("BPF_PROG_TEST_RUN", e))?;
        let verdict = result.return_value;
        let out = result.data.unwrap_or_default().to_vec();
        // What comes out starts with the metadata; `data` says where the frame does.
        let [d0, d1, d2, d3, ..] = context_out;
        let (metadata, frame) = out.split_at(out.len().min(u32::from_ne_bytes([d0, d1, d2, d3]) as usize));
        let metadata = metadata.first_chunk().filter(|_| metadata.len() == before.len() + METADATA_BYTES);
        Ok(Run { verdict, metadata: metadata.map(Metadata::from_bytes), frame: frame.to_vec() })
    }
}
