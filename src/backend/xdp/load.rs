//! Loading the kernel side, and saying why it could not be loaded.

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, PrintLevel, set_print};

use super::mapped::Mapped;
use super::ports::Ports;
use super::skel::types::{flow_state, job_state};
use super::skel::{OpenSymphonySkel, SymphonySkel, SymphonySkelBuilder};
use super::state::StateError;

/// The loaded kernel side: its maps, and the ports that it is attached to. Dropping it detaches.
pub struct Kernel {
    pub(super) ports: Ports,
    pub(super) flow_state: Mapped<flow_state>,
    pub(super) job_state: Mapped<job_state>,
    pub(super) skel: SymphonySkel<'static>,
}

/// Why the kernel side could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The process lacks capabilities.
    #[error("the kernel refuses to load the XDP program: run it as root (sudo), or with CAP_SYS_ADMIN")]
    Permission,
    /// The kernel does not take the program.
    #[error(
        "the kernel ({release}) refuses the XDP program: {source:#}; Linux 5.18 or newer with CONFIG_BPF_SYSCALL and \
         CONFIG_XDP_SOCKETS is needed\n{log}"
    )]
    Refused {
        /// Of the running kernel.
        release: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
        /// The end of what libbpf and the verifier said.
        log: String,
    },
    /// Loaded, but the maps could not be made ready.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Kernel {
    /// Loads the program and makes its maps ready: no port, no job, all flow slots free.
    ///
    /// # Errors
    /// When the process may not, or the kernel cannot. The text of [`LoadError::Refused`] ends with the verifier's last lines.
    pub fn load() -> Result<Self, LoadError> {
        let skel = open().and_then(OpenSkel::load).map_err(refused)?;
        let flow_state = Mapped::new(&skel.maps.flow_state)?;
        let job_state = Mapped::new(&skel.maps.job_state)?;
        for slot in 0..skel.maps.free_slots.max_entries() {
            skel.maps
                .free_slots
                .update(&[], &slot.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| StateError::new("free_slots", e))?;
        }
        Ok(Kernel { ports: Ports::default(), flow_state, job_state, skel })
    }
}

/// Opens the object, with libbpf's words kept for [`refused`].
pub(super) fn open() -> Result<OpenSymphonySkel<'static>, libbpf_rs::Error> {
    set_print(Some((PrintLevel::Info, keep)));
    said().clear();
    // The skeleton borrows its object. Sixteen bytes a load are given up for a `Kernel` that can be moved about.
    SymphonySkelBuilder::default().open(Box::leak(Box::new(MaybeUninit::uninit())))
}

/// Missing rights and a verifier that says no come back as the same kind of error; only the latter leaves a log.
pub(super) fn refused(source: libbpf_rs::Error) -> LoadError {
    const LINES: usize = 20;
    let said = said();
    if source.kind() == ErrorKind::PermissionDenied && !said.contains("PROG LOAD LOG") {
        return LoadError::Permission;
    }
    let lines: Vec<&str> = said.lines().collect();
    let log = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    LoadError::Refused { release, source, log }
}

/// What libbpf said since the last [`open`]. Its print callback is one for the whole process.
static SAID: Mutex<String> = Mutex::new(String::new());

fn said() -> std::sync::MutexGuard<'static, String> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The verifier's log comes as one warning. Warnings are no more than debug output for us: libbpf also warns of what it then
/// works around, and an error that matters comes back as one.
fn keep(level: PrintLevel, text: String) {
    tracing::debug!(target: "libbpf", ?level, "{}", text.trim_end());
    if level == PrintLevel::Warn {
        said().push_str(&text);
    }
}
