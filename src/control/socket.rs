//! The control socket of a running switch: a Unix stream socket, mode 0600, that speaks [`super::protocol`].
//!
//! It lives in threads of its own and reaches the switch only through a channel of [`live::Request`]s, so that nothing a
//! client does can stop or slow packets: clients are counted, lines bounded, and every line and answer has a deadline.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{self, Sender};
use thiserror::Error;
use tracing::{debug, warn};

use super::config::{Compiler, Config, Key, Purpose, SymphonyTable};
use super::protocol::{Answer, Command, Request, Timed, VERSION, is_listened_on, read_line};
use super::serene;
use crate::backend::live::{self, Reply};

const MAX_CLIENTS: usize = 16;
const MAX_LINE_BYTES: usize = 1 << 20;
/// For a whole line to come in, and for an answer to go out.
const CLIENT_TIME: Duration = Duration::from_secs(10);
/// For the switch to take a request, and to answer it.
const SWITCH_TIME: Duration = Duration::from_secs(5);

/// Why the socket cannot be opened.
#[derive(Debug, Error)]
pub enum SocketError {
    /// A switch lives.
    #[error("another switch answers at {}; stop it, or set [switch] control to another path", .0.display())]
    InUse(PathBuf),
    /// Something that is not ours to remove.
    #[error("{} exists and is no socket; remove it, or set [switch] control to another path", .0.display())]
    NotASocket(PathBuf),
    /// Directory missing, no permission, ..
    #[error("cannot open the control socket {}: {reason}; set [switch] control to a path that can be written", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
}

/// An open control socket. Dropping it closes it and removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    /// Device and inode of the file, so that nobody else's is removed.
    identity: (u64, u64),
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    requests: Sender<live::Request>,
    compiler: Compiler,
    /// What `set` changes: the parameters in force, as written.
    symphony: Mutex<SymphonyTable>,
    clients: AtomicUsize,
    stop: AtomicBool,
}

impl ControlSocket {
    /// Opens the configuration's socket; what clients ask for goes into `requests`. The file of a switch that died is
    /// replaced.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn open(config: &Config, requests: Sender<live::Request>) -> Result<Self, SocketError> {
        let path = config.control.clone();
        let io_error = |reason| SocketError::Io { path: path.clone(), reason };
        make_way(&path)?;
        let (listener, identity) = bind_private(&path).map_err(io_error)?;
        let shared = Arc::new(Shared {
            requests,
            compiler: config.compiler(Purpose::Live),
            symphony: Mutex::new(config.file.symphony),
            clients: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&listener, &for_acceptor))
            .map_err(io_error)?;
        Ok(ControlSocket { path, identity, shared, acceptor: Some(acceptor) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let ours = identity(&self.path).is_ok_and(|found| found == self.identity);
        self.shared.stop.store(true, Ordering::Relaxed);
        // The acceptor sleeps in accept; a connection wakes it. Where the file is gone there is no way to it, and it
        // ends with the process.
        if ours && UnixStream::connect(&self.path).is_ok() {
            if let Some(acceptor) = self.acceptor.take() {
                let _ = acceptor.join(); // a panic there has been reported already
            }
            let _ = fs::remove_file(&self.path); // somebody may have been faster
        }
    }
}

/// Sees to it that nothing is at `path`, or a dead switch's socket, and that its directory exists.
fn make_way(path: &Path) -> Result<(), SocketError> {
    let io_error = |reason| SocketError::Io { path: path.to_owned(), reason };
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(io_error)?;
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error(error)),
        Ok(found) if !found.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) if is_listened_on(path).map_err(io_error)? => Err(SocketError::InUse(path.to_owned())),
        Ok(_) => Ok(()),
    }
}

/// Binds under another name and moves the socket into place when only its owner can open it.
fn bind_private(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&unfinished); // of a process with our number that was killed right here
    let listener = UnixListener::bind(&unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600))?;
    fs::rename(&unfinished, path)?;
    Ok((listener, identity(path)?))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, _)) => admit(stream, shared),
            Err(error) => {
                warn!("control socket: {error}");
                thread::sleep(Duration::from_millis(100)); // out of descriptors, most likely: not in a busy loop
            }
        }
    }
}

fn admit(stream: UnixStream, shared: &Arc<Shared>) {
    if shared.clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
        shared.clients.fetch_sub(1, Ordering::Relaxed);
        // One short line into an empty socket buffer: does not block.
        let _ = writeln!(&stream, "{}", text(&Answer::refused(format!("more than {MAX_CLIENTS} clients; try again"))));
        return;
    }
    let for_client = Arc::clone(shared);
    let spawned = thread::Builder::new().name("control-client".into()).spawn(move || {
        if let Err(error) = serve(stream, &for_client) {
            debug!("control client: {error}");
        }
        for_client.clients.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = spawned {
        warn!("control socket: {error}");
        shared.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let mut stream = Timed::new(stream, CLIENT_TIME);
    let mut buffer = Vec::new();
    loop {
        stream.restart(CLIENT_TIME);
        let line = match read_line(&mut stream, &mut buffer, MAX_LINE_BYTES) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) => {
                stream.restart(CLIENT_TIME);
                return writeln!(stream, "{}", text(&Answer::refused(error.to_string())));
            }
        };
        let answer = shared.answer(&line).unwrap_or_else(Answer::refused);
        stream.restart(CLIENT_TIME);
        stream.write_all((text(&answer) + "\n").as_bytes())?;
    }
}

fn text(answer: &Answer) -> String {
    // Strings and numbers under string keys: nothing here can fail.
    serde_json::to_string(answer).unwrap_or_default()
}

impl Shared {
    fn answer(&self, line: &[u8]) -> Result<Answer, String> {
        let request: Request = serde_json::from_slice(line).map_err(|error| format!("this is no request: {error}"))?;
        if request.version != VERSION {
            return Err(format!("version {} is not spoken here; use version {VERSION}", request.version));
        }
        let done = Answer { ok: true, ..Answer::default() };
        match request.command {
            Command::Snapshot => self.forward(live::Command::Snapshot),
            Command::Set { parameters } => {
                let mut symphony = self.symphony.lock().unwrap_or_else(PoisonError::into_inner);
                if !parameters.is_empty() {
                    let wished = symphony.with(parameters).map_err(|wrong| wrong.to_string())?;
                    let compiled = self.compiler.parameters(&wished, &Key::default());
                    self.forward(live::Command::SetParameters(compiled.map_err(|wrong| wrong.to_string())?))?;
                    *symphony = wished;
                }
                Ok(Answer { symphony: Some(*symphony), ..done })
            }
            Command::AddJob { job } => {
                if job.id.is_none() {
                    return Err("id: a job that is added at run time needs one; give a number that is free".into());
                }
                let job = self.compiler.job(&job, &Key::default()).map_err(|wrong| wrong.to_string())?;
                self.forward(live::Command::AddJob(job))
            }
            Command::RemoveJob { id } => self.forward(live::Command::RemoveJob(id)),
            Command::EnableJob { id, enabled } => self.forward(live::Command::EnableJob(id, enabled)),
            Command::Aggregation => self.forward(live::Command::Aggregation),
            Command::LoadAggregation { file } => {
                let job = serene::compile(&file).map_err(|wrong| wrong.to_string())?;
                self.forward(live::Command::LoadAggregation(Box::new(job)))
            }
            Command::UnloadAggregation { job } => self.forward(live::Command::UnloadAggregation(job)),
            Command::Swap { job, strategy } => {
                let strategy = serene::parse_strategy(&strategy).map_err(|wrong| format!("{strategy:?}: {wrong}"))?;
                self.forward(live::Command::Swap { job, strategy })
            }
        }
    }

    /// Has the switch do it, and waits for its answer.
    fn forward(&self, command: live::Command) -> Result<Answer, String> {
        let (reply, answer) = channel::bounded(1);
        let busy = |_| format!("the switch did not answer within {} s", SWITCH_TIME.as_secs());
        self.requests.send_timeout(live::Request { command, reply }, SWITCH_TIME).map_err(|error| match error {
            channel::SendTimeoutError::Timeout(_) => busy(()),
            channel::SendTimeoutError::Disconnected(_) => "the switch is stopping".into(),
        })?;
        let reply = answer.recv_timeout(SWITCH_TIME).map_err(|error| match error {
            channel::RecvTimeoutError::Timeout => busy(()),
            channel::RecvTimeoutError::Disconnected => "the switch is stopping".into(),
        })??;
        let done = Answer { ok: true, ..Answer::default() };
        Ok(match reply {
            Reply::Done => done,
            Reply::Snapshot(snapshot) => Answer { snapshot: Some(snapshot), ..done },
            Reply::Aggregation(jobs) => Answer { aggregation: Some(jobs), ..done },
        })
    }
}

impl Answer {
    fn refused(error: impl Into<String>) -> Self {
        Answer { error: Some(error.into()), ..Answer::default() }
    }
}

impl Default for Answer {
    /// No, and nothing else.
    fn default() -> Self {
        Answer { version: VERSION, ok: false, error: None, snapshot: None, symphony: None, aggregation: None }
    }
}

#[cfg(test)]
mod tests;
