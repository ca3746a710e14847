//! What is said over the control socket: one JSON object a line, a request and its answer, each with `"version":1`.
//!
//! ```text
//! {"version":1,"command":"snapshot"}
//! {"version":1,"command":"set","parameters":{"threshold":0.25,"gap":"50us"}}
//! {"version":1,"command":"add_job","job":{"id":2,"ring":["10.0.2.1","10.0.2.2"]}}
//! {"version":1,"command":"remove_job","id":2}
//! {"version":1,"command":"enable_job","id":2,"enabled":false}
//! {"version":1,"command":"aggregation"}
//! {"version":1,"command":"load_aggregation","file":{"job":{"id":1,"members":["10.0.0.1:7001"],"segments":3},"policy":[]}}
//! {"version":1,"command":"unload_aggregation","job":1}
//! {"version":1,"command":"swap","job":1,"strategy":"ssp(3)"}
//! ```
//!
//! An answer is `{"version":1,"ok":true,..}` with `"snapshot"`, `"symphony"` or `"aggregation"` where one was asked for, or
//! `{"version":1,"ok":false,"error":".."}`. Keys and units are those of the configuration file and of job files. `swap` is
//! answered when the strategy is wanted; `aggregation` tells when it is in force.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::config::{JobTable, SymphonyTable};
use super::serene;
use crate::backend::live::{AggregationSnapshot, Snapshot};

/// The version spoken.
pub const VERSION: u32 = 1;

/// How long a client waits for the whole answer.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// A client reads no answer longer than this: 16384 flows need about 5 MB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What is asked for.
    #[serde(flatten)]
    pub command: Command,
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// The whole state.
    Snapshot,
    /// Some of `[symphony]`'s keys; the answer holds all of them. None: changes nothing.
    Set {
        /// Key and value as in the file.
        parameters: Map<String, Value>,
    },
    /// A new job.
    AddJob {
        /// As `[[job]]` in the file, with an id.
        job: JobTable,
    },
    /// The end of a job.
    RemoveJob {
        /// Its number.
        id: u32,
    },
    /// Switches one job on or off.
    EnableJob {
        /// Its number.
        id: u32,
        /// On or off.
        enabled: bool,
    },
    /// The state of aggregation jobs, with their latest swaps.
    Aggregation,
    /// A new aggregation job.
    LoadAggregation {
        /// As in a job file.
        file: serene::File,
    },
    /// The end of an aggregation job.
    UnloadAggregation {
        /// Its number.
        job: u8,
    },
    /// Another strategy for an aggregation job.
    Swap {
        /// Its number.
        job: u8,
        /// As in the control language.
        strategy: String,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// To [`Command::Snapshot`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Box<Snapshot>>,
    /// To [`Command::Set`]: what is in force now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symphony: Option<SymphonyTable>,
    /// To [`Command::Aggregation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<Vec<AggregationSnapshot>>,
}

/// Why a client has no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("no switch answers at {}: {reason}; is `symphony run` running, as the same user?", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// The connection broke.
    #[error("the switch broke off")]
    Broken(#[from] io::Error),
    /// No JSON, or another version.
    #[error("the switch answered something that is not version {VERSION} of the protocol: {0}")]
    NotUnderstood(String),
    /// The switch says no.
    #[error("{0}")]
    Refused(String),
}

/// Control sockets (`*.sock`) in a directory, by name. Of several, those that nobody listens on are left out: a switch that
/// was killed leaves its socket behind.
///
/// # Errors
/// When there is such a directory, and it cannot be read.
pub fn sockets(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut sockets: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    if sockets.len() > 1 {
        sockets.retain(|path| is_listened_on(path).unwrap_or(true));
    }
    Ok(sockets)
}

/// Whether somebody listens on a socket.
///
/// # Errors
/// When that cannot be told.
pub(super) fn is_listened_on(socket: &Path) -> io::Result<bool> {
    match UnixStream::connect(socket) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends one command and waits for its answer, at most 15 s. The answer is JSON as documented above, with `ok` true.
///
/// # Errors
/// See [`AskError`].
pub fn ask(path: &Path, command: Command) -> Result<Map<String, Value>, AskError> {
    let connect = |reason| AskError::Connect { path: path.to_owned(), reason };
    let mut stream = Timed::new(UnixStream::connect(path).map_err(connect)?, ANSWER_TIME);
    let request = serde_json::to_string(&Request { version: VERSION, command }).map_err(io::Error::from)?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut buffer = Vec::new();
    let line = read_line(&mut stream, &mut buffer, MAX_ANSWER_BYTES)?
        .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let not_understood = || AskError::NotUnderstood(String::from_utf8_lossy(&line).chars().take(200).collect());
    let Ok(Value::Object(answer)) = serde_json::from_slice(&line) else { return Err(not_understood()) };
    match (answer.get("version"), answer.get("ok"), answer.get("error")) {
        (Some(version), Some(Value::Bool(true)), _) if *version == VERSION => Ok(answer),
        (_, Some(Value::Bool(false)), Some(Value::String(error))) => Err(AskError::Refused(error.clone())),
        _ => Err(not_understood()),
    }
}

/// A stream whose reads and writes all have to be done by one deadline, however slowly the other side trickles.
#[derive(Debug)]
pub(super) struct Timed {
    stream: UnixStream,
    deadline: Instant,
}

impl Timed {
    pub(super) fn new(stream: UnixStream, time: Duration) -> Self {
        Timed { stream, deadline: Instant::now() + time }
    }

    /// Begins a new span of time.
    pub(super) fn restart(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The next line without its newline; `None` at the end of the stream. What came after it stays in `buffer`.
///
/// # Errors
/// `InvalidData` for a line longer than `limit`, and what the stream says.
pub(super) fn read_line(stream: &mut impl Read, buffer: &mut Vec<u8>, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut searched = 0;
    loop {
        if let Some(at) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
            let rest = buffer.split_off(searched + at + 1);
            let mut line = std::mem::replace(buffer, rest);
            line.pop();
            return Ok(Some(line));
        }
        searched = buffer.len();
        if searched > limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line has more than {limit} bytes")));
        }
        let mut chunk = [0; 16384];
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(length) => buffer.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn lines_come_one_by_one_and_long_ones_are_refused() {
        let mut stream: &[u8] = b"one\n\ntwo\nrest";
        let mut buffer = Vec::new();
        let mut next = || read_line(&mut stream, &mut buffer, 100).unwrap();
        assert_eq!(next().as_deref(), Some(&b"one"[..]));
        assert_eq!(next().as_deref(), Some(&b""[..]));
        assert_eq!(next().as_deref(), Some(&b"two"[..]));
        assert_eq!(next(), None, "a line that never ends is none");
        let error = read_line(&mut [b'x'; 200].as_slice(), &mut Vec::new(), 100).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_dead_switchs_socket_does_not_stand_beside_a_living_ones() {
        let directory = tempfile::tempdir().unwrap();
        let found = || sockets(directory.path()).unwrap();
        let [dead, living, other] = ["a.sock", "b.sock", "c.sock"].map(|name| directory.path().join(name));
        assert!(found().is_empty() && sockets(&dead).unwrap().is_empty());
        drop(UnixListener::bind(&dead).unwrap());
        assert_eq!(found(), [dead], "asking it says what is wrong");
        let _living = UnixListener::bind(&living).unwrap();
        assert_eq!(found(), std::slice::from_ref(&living));
        let _other = UnixListener::bind(&other).unwrap();
        assert_eq!(found(), [living, other]);
    }

    #[test]
    fn requests_look_as_documented() {
        let text = r#"{"version":1,"command":"enable_job","id":2,"enabled":false}"#;
        let request: Request = serde_json::from_str(text).unwrap();
        assert_eq!(request, Request { version: 1, command: Command::EnableJob { id: 2, enabled: false } });
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
    }
}
