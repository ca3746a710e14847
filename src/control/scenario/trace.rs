//! Traces of collectives that others make: CSV (RFC 4180) with a header and these columns.
//!
//! | column | what |
//! |---|---|
//! | `time_ns` | when the collective begins on every rank, in ns from the start of the run |
//! | `job` | name of the job; results are per job |
//! | `collective` | `all-reduce`, `all-gather` or `reduce-scatter` |
//! | `ranks` | hosts in ring order: numbers and ranges with `;` between them, `0-7` or `0;4;8-11` |
//! | `bytes` | of the whole buffer that is reduced, gathered or scattered, on each rank: a ring step carries its n-th part, rounded up to 4 bytes |
//!
//! Lines that begin with `#` are left out. Each line becomes a job of its own on queue pairs of its own: it begins at its
//! time, whether or not the collective before has ended, for a trace says when and not after what.
//!
//! Chakra execution traces, which ASTRA-sim takes, are not read: each rank's is a graph of computing and communication, and
//! when a collective begins follows from running it on a model of accelerators and memory, which there is none of here.
//! Start times that were recorded hold the very network that is to be simulated. Whatever has run one can write this table.

use std::path::Path;

use serde::Deserialize;

use super::ScenarioError;
use super::draw::topology;
use super::file::{CollectiveName, File, JobTable, LONGEST, MAX_CHUNK};
use crate::backend::sim::Topology;
use crate::control::config::{ConfigError, Key, Wrong};
use crate::control::units::{Bytes, Duration};

const COLUMNS: [&str; 5] = ["time_ns", "job", "collective", "ranks", "bytes"];
/// Most lines; each takes state in hosts and switches for the whole run.
const MAX_LINES: usize = 4096;
/// Most ranks of a line.
const MAX_RANKS: usize = 4096;

#[derive(Deserialize)]
struct Line {
    time_ns: u64,
    job: String,
    collective: CollectiveName,
    ranks: String,
    bytes: u64,
}

impl File {
    /// The file with the lines of its trace, if it names one, as its jobs. The trace's path begins in `folder`.
    pub(super) fn with_trace(mut self, folder: &Path) -> Result<File, ScenarioError> {
        let Some(trace) = self.trace.take() else { return Ok(self) };
        let path = folder.join(trace);
        // A fabric that is none is told of later, with its own line.
        let hosts = topology(&self.fabric).map_or(u32::MAX, Topology::hosts);
        let text = std::fs::read_to_string(&path).map_err(|reason| ConfigError::Read { path: path.clone(), reason })?;
        self.jobs = jobs(&text, hosts).map_err(|(line, wrong)| {
            let file = path.display().to_string();
            ConfigError::Wrong { file, line, column: 1, wrong }
        })?;
        Ok(self)
    }
}

/// A job for each line, on a fabric of so many hosts; or what is wrong and in which line.
fn jobs(text: &str, hosts: u32) -> Result<Vec<JobTable>, (usize, Wrong)> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| wrong(&error))?.clone();
    if header != COLUMNS[..] {
        let header = header.iter().collect::<Vec<_>>().join(",");
        let message = format!("the header is {header:?}; write {}", COLUMNS.join(","));
        return Err((1, Key::default().wrong(message)));
    }
    let mut jobs = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(&error))?;
        let number = record.position().map_or(0, |position| position.line() as usize);
        let line: Line = record.deserialize(Some(&header)).map_err(|error| wrong(&error))?;
        if jobs.len() == MAX_LINES {
            return Err((number, Key::default().wrong(format!("more than {MAX_LINES} collectives; cut the trace"))));
        }
        jobs.push(job(line, hosts).map_err(|wrong| (number, wrong))?);
    }
    if jobs.is_empty() {
        return Err((1, Key::default().wrong("no line after the header; write one for each collective")));
    }
    Ok(jobs)
}

fn job(line: Line, fabric_hosts: u32) -> Result<JobTable, Wrong> {
    if line.job.is_empty() {
        return Err(Key::new("job").wrong("is empty; results go by this name"));
    }
    if line.time_ns > LONGEST.0 {
        return Err(Key::new("time_ns").wrong(format!("{}; use at most {}", line.time_ns, LONGEST.0)));
    }
    if line.collective == CollectiveName::Stream {
        return Err(Key::new("collective").wrong("a stream is none; use all-reduce, all-gather or reduce-scatter"));
    }
    let hosts = hosts(&line.ranks)
        .ok_or_else(|| Key::new("ranks").wrong(format!("{:?} are no hosts; write 0-7 or 0;4;8-11", line.ranks)))?;
    let key = Key::new("ranks");
    if hosts.len() < 2 {
        return Err(key.wrong(format!("{:?} is one host; a ring has at least 2 ranks", line.ranks)));
    }
    if let Some(host) = hosts.iter().find(|host| **host >= fabric_hosts) {
        return Err(key.wrong(format!("there is no host {host}; there are {fabric_hosts}, counted from 0")));
    }
    let most = MAX_CHUNK.0 * hosts.len() as u64;
    if !(1..=most).contains(&line.bytes) {
        return Err(
            Key::new("bytes").wrong(format!("{}; use 1 to {most}: a step carries {MAX_CHUNK} at most", line.bytes))
        );
    }
    let chunk = line.bytes.div_ceil(hosts.len() as u64).next_multiple_of(4);
    Ok(JobTable {
        class: line.job,
        hosts: Some(hosts),
        collective: line.collective,
        chunk: Bytes(chunk),
        start: Duration(line.time_ns),
        ..JobTable::default()
    })
}

/// `0;4;8-11`
fn hosts(text: &str) -> Option<Vec<u32>> {
    let mut hosts = Vec::new();
    for part in text.split(';') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || (last - first) as usize >= MAX_RANKS - hosts.len() {
            return None;
        }
        hosts.extend(first..=last);
    }
    Some(hosts)
}

/// The line and the column that the reader complains of.
fn wrong(error: &csv::Error) -> (usize, Wrong) {
    let line = error.position().map_or(1, |position| position.line() as usize);
    let key = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            err.field().and_then(|field| COLUMNS.get(field as usize)).map_or(Key::default(), |name| Key::new(name))
        }
        _ => Key::default(),
    };
    let message = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => match err.kind() {
            csv::DeserializeErrorKind::ParseInt(reason) => format!("{reason}; write a whole number, in digits"),
            kind => kind.to_string(),
        },
        csv::ErrorKind::UnequalLengths { len, expected_len, .. } => {
            format!("{len} values; there are {expected_len} columns: {}", COLUMNS.join(","))
        }
        _ => error.to_string(),
    };
    (line, key.wrong(message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Scenario;
    use super::*;
    use crate::roce::{Collective, dcqcn};

    const TRACE: &str = "\
time_ns,job,collective,ranks,bytes
# two steps of training of one job, and another one's
0,train-a,all-reduce,0-3,4000000
5000000, train-a, reduce-scatter, 0;4;8-9, 1000003
5000000,\"train, b\",all-gather,12;5,8
";

    fn error(text: &str) -> String {
        let (line, wrong) = jobs(text, 8).expect_err(text);
        format!("{line}: {wrong}")
    }

    #[test]
    fn each_line_is_a_job_that_starts_at_its_time() {
        let folder = tempfile::tempdir().expect("there is room");
        std::fs::write(folder.path().join("a.csv"), TRACE).expect("it can be written");
        let text = "description = 'x'\ntrace = 'a.csv'\n[fabric]\ntopology = 'leaf-spine'\nleaves = 4\nhosts_per_leaf = 4\nspines = 4\nrate = '10Gbit'";
        std::fs::write(folder.path().join("x.toml"), text).expect("it can be written");
        let scenario = Scenario::load(&folder.path().join("x.toml")).unwrap_or_else(|error| panic!("{error}"));
        let found = scenario.setup(1, dcqcn::Parameters::DC55).expect("it is sound").jobs;
        assert_eq!(found.iter().map(|job| job.class.as_str()).collect::<Vec<_>>(), ["train-a", "train-a", "train, b"]);
        assert_eq!(found[0].hosts, [0, 1, 2, 3]);
        assert_eq!(found[1].hosts, [0, 4, 8, 9]);
        assert_eq!(found[2].hosts, [12, 5]);
        assert_eq!(found.iter().map(|job| job.chunk_bytes).collect::<Vec<_>>(), [1_000_000, 250_004, 4]);
        assert_eq!(found.iter().map(|job| job.start_at[1]).collect::<Vec<_>>(), [0, 5_000_000, 5_000_000]);
        let collectives = [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather];
        assert_eq!(found.iter().map(|job| job.collective).collect::<Vec<_>>(), collectives);
        assert_eq!(scenario.classes(), ["train-a", "train, b"]);

        let mut other = Scenario::named("multi").expect("it is built in");
        let change = format!("trace={}", folder.path().join("a.csv").display());
        other.set(&change).unwrap_or_else(|error| panic!("{error}"));
        other.set("job.path_mtu=1024").unwrap_or_else(|error| panic!("{error}"));
        let jobs = other.setup(1, dcqcn::Parameters::DC55).expect("it is sound").jobs;
        assert_eq!(
            jobs.iter().map(|job| (job.hosts.len(), job.path_mtu)).collect::<Vec<_>>(),
            [(4, 1024), (4, 1024), (2, 1024)]
        );
        let error = other.set("trace=none.csv").expect_err("it is not there").to_string();
        assert!(error.contains("cannot read none.csv"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_column() {
        let with = |line: &str| format!("time_ns,job,collective,ranks,bytes\n0,a,all-reduce,0-3,4\n{line}\n");
        assert!(
            error("time,job\n").starts_with("1: the header is \"time,job\"; write time_ns,job,collective,ranks,bytes")
        );
        assert!(
            error(&with("-5,a,all-reduce,0-3,4")).starts_with("3: time_ns: "),
            "{}",
            error(&with("-5,a,all-reduce,0-3,4"))
        );
        assert!(
            error(&with("5,a,allreduce,0-3,4")).contains("unknown variant `allreduce`, expected one of `all-reduce`")
        );
        assert!(
            error(&with("5,a,all-reduce,3-0,4")).starts_with("3: ranks: \"3-0\" are no hosts; write 0-7 or 0;4;8-11")
        );
        assert!(error(&with("5,a,all-reduce,0-4294967295,4")).starts_with("3: ranks: "));
        assert!(error(&with("5,a,all-reduce,0-3")).starts_with("3: 4 values; there are 5 columns"));
        for (line, expected) in [
            ("1e9,a,all-reduce,0-3,4", "3: time_ns: invalid digit found in string; write a whole number"),
            ("18446744073709551615,a,all-reduce,0-3,4", "3: time_ns: 18446744073709551615; use at most"),
            ("5,,all-reduce,0-3,4", "3: job: is empty"),
            ("5,a,all-reduce,3,18446744073709551615", "3: ranks: \"3\" is one host; a ring has at least 2"),
            ("5,a,all-reduce,0-8,4", "3: ranks: there is no host 8; there are 8, counted from 0"),
            ("5,a,all-reduce,0-3,0", "3: bytes: 0; use 1 to 4294967296: a step carries 1GiB at most"),
            ("5,a,all-reduce,0-3,4294967297", "3: bytes: 4294967297; use 1 to"),
        ] {
            assert!(error(&with(line)).starts_with(expected), "{}", error(&with(line)));
        }
        assert!(error("time_ns,job,collective,ranks,bytes\n# 1\n").starts_with("1: no line after the header"));
        assert!(error(&with("5,a,stream,0-3,9")).starts_with("3: collective: a stream is none"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}", line in "[0-9a-z;,\\-\"]{0,60}") {
            let _ = jobs(&text, 8);
            let _ = jobs(&format!("time_ns,job,collective,ranks,bytes\n{line}"), 8);
        }
    }
}
