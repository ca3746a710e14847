//! What is kept of a run, and the files that carry it from one shard to the merge: JSON lines, a line that says what was
//! swept and one for each run.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::blind::Match;
use super::statistics::mean;
use crate::backend::sim::Results;

/// Version of the files.
const VERSION: u32 = 1;

/// What is swept: all that another process needs to do its share of it, or to merge the shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// Name or path of the scenario.
    pub scenario: String,
    /// Set of DCQCN parameters.
    pub cc: String,
    /// `key=value` changes of the scenario.
    pub set: Vec<String>,
    /// Definitions of extra arms.
    pub arm: Vec<String>,
    /// Names of the arms that were chosen; empty: all.
    pub arms: Vec<String>,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// Added to each: other draws than those that something was tuned on.
    #[serde(default)]
    pub seed_offset: u64,
}

impl Sweep {
    /// The command that does it on one machine.
    pub fn command(&self) -> String {
        let mut command = format!("symphony sim {} --cc {} --seeds {}", quoted(&self.scenario), self.cc, self.seeds);
        let each = |option: &str, values: &[String]| {
            values.iter().map(|v| format!(" {option} {}", quoted(v))).collect::<String>()
        };
        if self.seed_offset > 0 {
            command += &format!(" --seed-offset {}", self.seed_offset);
        }
        command += &each("--set", &self.set);
        command += &each("--arm", &self.arm);
        if !self.arms.is_empty() {
            command += &format!(" --arms {}", self.arms.join(","));
        }
        command
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:=/+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Seed.
    pub seed: u64,
    /// Name of the arm.
    pub arm: String,
    /// Completion time by class: mean over its jobs. Of a job that did not finish, the time it was given.
    pub jct_ms: BTreeMap<String, f64>,
    /// What no schedule can beat, by class.
    pub bound_ms: BTreeMap<String, f64>,
    /// Spread of a job in steps: mean over time and jobs.
    pub spread_mean: f64,
    /// The most of any job.
    pub spread_max: u32,
    /// Fullest queue.
    pub max_queue_bytes: u64,
    /// Packets marked by RED.
    pub red_marks: u64,
    /// Packets marked by Symphony alone.
    pub extra_marks: u64,
    /// Packets of jobs that came to the lead test.
    pub job_packets: u64,
    /// Packets that passed it.
    pub lead_tests: u64,
    /// CNPs.
    pub cnps: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// PFC pauses.
    pub pfc_pauses: u64,
    /// Drops by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets by lead.
    pub leads: Vec<u64>,
    /// Packets by queue depth.
    pub queue_depths: Vec<u64>,
    /// Events simulated, those of discarded tries included.
    pub events: u64,
    /// Processor time that they took.
    pub cpu_ns: u64,
    /// Most memory that the process had used by then.
    pub peak_rss_bytes: u64,
    /// Of blind: how well it matches.
    pub blind: Option<Match>,
    /// Checks that failed.
    pub failures: Vec<String>,
}

impl Record {
    /// Keeps what counts of a run, and checks it.
    pub fn new(seed: u64, arm: &str, results: &Results) -> Record {
        let mut by_class: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut failures = Vec::new();
        for (number, job) in results.jobs.iter().enumerate() {
            let jct_ns = job.jct_ns().unwrap_or_else(|| {
                let end_s = results.end_ns as f64 / 1e9;
                failures.push(format!("job {number} ({}) did not finish within limit = {end_s}s", job.class));
                results.end_ns.saturating_sub(job.start_ns)
            });
            by_class.entry(job.class.clone()).or_default().push(jct_ns as f64 / 1e6);
        }
        if !results.conservation.holds() {
            failures.push(format!("packets are not conserved: {:?}", results.conservation));
        }
        let spreads: Vec<(f64, u32)> = results.jobs.iter().map(|job| job.spread()).collect();
        Record {
            seed,
            arm: arm.into(),
            jct_ms: by_class.into_iter().map(|(class, jct)| (class, mean(&jct))).collect(),
            spread_mean: mean(&spreads.iter().map(|(mean, _)| *mean).collect::<Vec<_>>()),
            spread_max: spreads.iter().map(|(_, most)| *most).max().unwrap_or(0),
            max_queue_bytes: results.max_queue_bytes,
            red_marks: results.marks.red,
            extra_marks: results.marks.symphony,
            job_packets: results.job_packets,
            lead_tests: results.lead_tests,
            cnps: results.cnps,
            retransmissions: results.retransmissions,
            pfc_pauses: results.pfc_pauses,
            drops: results.drops.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            leads: results.leads.clone(),
            queue_depths: results.queue_depths.clone(),
            events: results.events,
            failures,
            ..Record::default()
        }
    }
}

/// A line of a file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum Line {
    /// The runs up to the next such line are part of this sweep.
    Sweep {
        version: u32,
        #[serde(flatten)]
        sweep: Sweep,
    },
    Run(Box<Record>),
}

/// Appends a sweep with some of its runs.
///
/// # Errors
/// What keeps it from being written.
pub fn write(file: &mut impl Write, sweep: &Sweep, records: &[Record]) -> Result<()> {
    let head = Line::Sweep { version: VERSION, sweep: sweep.clone() };
    for line in std::iter::once(head).chain(records.iter().map(|record| Line::Run(Box::new(record.clone())))) {
        serde_json::to_writer(&mut *file, &line)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Reads a file's sweeps and their runs and adds them to `sweeps`, which keep the order in which they are met.
///
/// # Errors
/// The first line that can't be read.
pub fn read(file: impl BufRead, sweeps: &mut Vec<(Sweep, Vec<Record>)>) -> Result<()> {
    let mut current = None;
    for (number, text) in file.lines().enumerate() {
        let place = || format!("line {}", number + 1);
        match serde_json::from_str(&text?).with_context(place)? {
            Line::Sweep { version, sweep } => {
                ensure!(version == VERSION, "{}: version {version} is not {VERSION}: use one build for all", place());
                let known = sweeps.iter().position(|(other, _)| *other == sweep);
                current = Some(known.unwrap_or(sweeps.len()));
                if known.is_none() {
                    sweeps.push((sweep, Vec::new()));
                }
            }
            Line::Run(record) => {
                let at = current.with_context(|| format!("{}: a run before the line of its sweep", place()))?;
                sweeps[at].1.push(*record);
            }
        }
    }
    ensure!(current.is_some(), "it is empty");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::JobResults;
    use crate::dataplane::{Conservation, Marks};

    fn job(class: &str, start_ns: u64, finish_ns: Option<u64>) -> JobResults {
        JobResults { class: class.into(), start_ns, finish_ns, steps: Vec::new() }
    }

    fn sweep() -> Sweep {
        let none = Vec::new();
        Sweep {
            scenario: "s".into(),
            cc: "dc55".into(),
            set: none.clone(),
            arm: none.clone(),
            arms: none,
            seeds: 2,
            seed_offset: 0,
        }
    }

    #[test]
    fn the_time_of_a_class_is_the_mean_over_its_jobs() {
        let jobs = vec![
            job("healthy", 1_000_000, Some(4_000_000)),
            job("straggler", 0, Some(10_000_000)),
            job("straggler", 0, Some(20_000_000)),
        ];
        let record = Record::new(1, "base", &Results { jobs, ..Results::default() });
        assert_eq!(record.jct_ms, BTreeMap::from([("healthy".into(), 3.0), ("straggler".into(), 15.0)]));
        assert_eq!(record.failures, Vec::<String>::new());
    }

    #[test]
    fn a_job_that_did_not_finish_and_a_lost_packet_are_failures() {
        let lost = Conservation { rx: 1, ..Conservation::default() };
        let jobs = vec![job("all", 500_000, None)];
        let results = Results { jobs, conservation: lost, end_ns: 2_500_000, ..Results::default() };
        let record = Record::new(1, "base", &results);
        assert_eq!(record.jct_ms["all"], 2.0);
        assert_eq!(record.failures.len(), 2, "{:?}", record.failures);
        assert_eq!(record.failures[0], "job 0 (all) did not finish within limit = 0.0025s");
    }

    #[test]
    fn the_command_of_a_sweep_can_be_pasted_into_a_shell() {
        let set = vec!["job.idle=10 steps".to_owned(), "job.hosts=[0,1]".to_owned(), "fabric.pfc=true".to_owned()];
        let command = Sweep { set, ..sweep() }.command();
        let changes = "--set 'job.idle=10 steps' --set 'job.hosts=[0,1]' --set fabric.pfc=true";
        assert_eq!(command, format!("symphony sim s --cc dc55 --seeds 2 {changes}"));
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn what_is_written_reads_back_the_same_to_the_last_digit() {
        let marks = Marks { red: 3, symphony: 4 };
        let mut records: Vec<Record> =
            (1..=2).map(|seed| Record::new(seed, "null", &Results { marks, ..Results::default() })).collect();
        records[0].jct_ms.insert("all".into(), 0.1 + 0.2);
        records[1].jct_ms.insert("all".into(), 1.0 / 3.0);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        write(&mut one, &sweep(), &records[..1]).expect("memory takes it");
        write(&mut other, &Sweep { seeds: 9, ..sweep() }, &[]).expect("memory takes it");
        write(&mut other, &sweep(), &records[1..]).expect("memory takes it");
        let mut read_back = Vec::new();
        read(&one[..], &mut read_back).expect("it reads");
        read(&other[..], &mut read_back).expect("it reads");
        assert_eq!(read_back, [(sweep(), records), (Sweep { seeds: 9, ..sweep() }, Vec::new())]);
    }

    #[test]
    fn a_file_of_something_else_is_refused_with_the_line() {
        let mut sweeps = Vec::new();
        for (text, told) in [("", "empty"), ("{}\n", "line 1"), ("not json", "line 1")] {
            let error = format!("{:#}", read(text.as_bytes(), &mut sweeps).expect_err(text));
            assert!(error.contains(told), "{error}");
        }
        let mut file = Vec::new();
        write(&mut file, &sweep(), &[]).expect("memory takes it");
        let later = String::from_utf8(file).expect("JSON").replace("\"version\":1", "\"version\":2");
        assert!(read(later.as_bytes(), &mut sweeps).expect_err("another version").to_string().contains("version 2"));
    }
}
