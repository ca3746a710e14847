//! Runs the arms of a scenario over seeds on all cores. Whatever the number of threads, the records come in the same order
//! and say the same, but for the time they took.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Result, anyhow};
use crossbeam::channel;
use indicatif::ProgressBar;

use super::arm::{Arm, BASE, Kind, NULL};
use super::blind;
use super::record::Record;
use crate::backend::clock;
use crate::backend::sim::{self, Results, Setup};
use crate::functions::symphony::{Parameters, Policy};

/// What is simulated: the setup of a seed without an arm, and what is known of it before it runs.
pub trait Workload: Sync {
    /// The setup of base.
    ///
    /// # Errors
    /// What makes no sense in the scenario.
    fn setup(&self, seed: u64) -> Result<Setup>;

    /// What no schedule can beat, by class.
    fn bound_ms(&self, setup: &Setup) -> BTreeMap<String, f64>;

    /// How many times slower than 10 Gbit/s the scenario's times are meant for.
    fn stretch(&self) -> f64;

    /// Runs a setup.
    ///
    /// # Errors
    /// What makes no sense in it.
    fn run(&self, setup: &Setup) -> Result<Results> {
        Ok(sim::run(setup)?)
    }
}

/// A unit of work: one run, and what depends on its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Task<'a> {
    seed: u64,
    arm: &'a Arm,
    /// The run itself is asked for, not only what depends on it.
    wanted: bool,
    /// Blind arms paired with it.
    blind: Vec<&'a Arm>,
}

/// The tasks of some seeds in a fixed order: a shard takes every N-th. `known` are arms that blind ones may be paired with
/// though they are not among the `wanted`.
pub fn tasks<'a>(seeds: impl Iterator<Item = u64>, wanted: &[&'a Arm], known: &'a [Arm]) -> Vec<Task<'a>> {
    let task = |seed, arm: &'a Arm| {
        let paired = |other: &&Arm| matches!(&other.kind, Kind::Blind { of } if *of == arm.name);
        let blind: Vec<&Arm> = wanted.iter().copied().filter(paired).collect();
        let wanted = wanted.iter().any(|other| other.name == arm.name);
        let runs = !matches!(arm.kind, Kind::Blind { .. }) && (wanted || !blind.is_empty());
        runs.then_some(Task { seed, arm, wanted, blind })
    };
    seeds.flat_map(|seed| known.iter().filter_map(move |arm| task(seed, arm))).collect()
}

/// How many runs are asked for.
pub fn runs(tasks: &[Task<'_>]) -> u64 {
    tasks.iter().map(|task| u64::from(task.wanted) + task.blind.len() as u64).sum()
}

/// Does the tasks on so many threads. The records are in the order of the tasks.
///
/// # Errors
/// The first task, in their order, that could not run.
pub fn run(workload: &dyn Workload, tasks: &[Task<'_>], threads: usize, progress: &ProgressBar) -> Result<Vec<Record>> {
    let (todo, next) = channel::unbounded();
    let (done, outcomes) = channel::unbounded();
    for task in tasks.iter().enumerate() {
        todo.send(task).map_err(|_| anyhow!("no thread takes the tasks"))?;
    }
    drop(todo);
    let mut records: Vec<Option<Result<Vec<Record>>>> = tasks.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            let (next, done) = (next.clone(), done.clone());
            scope.spawn(move || {
                for (index, task) in next {
                    let outcome = task.run(workload, progress);
                    let failed = outcome.is_err();
                    if done.send((index, outcome)).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(done);
        for (index, outcome) in outcomes {
            let failed = outcome.is_err();
            records[index] = Some(outcome);
            if failed {
                while next.try_recv().is_ok() {} // the others end with what they are at
            }
        }
    });
    let records: Result<Vec<Vec<Record>>> = records.into_iter().flatten().collect();
    Ok(records?.into_iter().flatten().collect())
}

impl Task<'_> {
    fn run(&self, workload: &dyn Workload, progress: &ProgressBar) -> Result<Vec<Record>> {
        let setup = workload.setup(self.seed)?;
        let bound_ms = workload.bound_ms(&setup);
        let run = |arm: &Arm, setup: &Setup| -> Result<(Record, Results)> {
            progress.set_message(format!("{} seed {}", arm.name, self.seed));
            let before = clock::thread_cpu();
            let results = workload.run(setup)?;
            let cpu_ns = clock::thread_cpu() - before;
            let mut record = Record::new(self.seed, &arm.name, &results);
            record.cpu_ns = cpu_ns;
            record.bound_ms = bound_ms.clone();
            record.peak_rss_bytes = peak_rss_bytes();
            Ok((record, results))
        };

        let mut of_arm = setup.clone();
        self.arm.kind.apply(&mut of_arm, workload.stretch());
        let (mut record, results) = run(self.arm, &of_arm)?;
        let never_marks = matches!(self.arm.name.as_str(), BASE | NULL);
        if never_marks && record.extra_marks > 0 {
            record.failures.push(format!("{} extra marks in an arm that must not set any", record.extra_marks));
        }
        if self.arm.name == BASE && self.seed == 1 {
            let disabled =
                Setup { symphony: Some(Parameters { enabled: false, ..Parameters::default() }), ..of_arm.clone() };
            if !same(&results, &workload.run(&disabled)?) {
                record.failures.push("Symphony switched off is not identical to base".into());
            }
        }
        drop(results);

        let mut records = Vec::new();
        for arm in &self.blind {
            let (mut events, mut cpu_ns) = (0, 0);
            let first = record.lead_tests as f64 / record.job_packets.max(1) as f64;
            let (found, mut blind) = blind::tune(record.extra_marks, first, |probability| -> Result<_> {
                let mut of_blind = of_arm.clone();
                if let Some(parameters) = &mut of_blind.symphony {
                    parameters.policy = Policy::Blind { probability };
                }
                let (record, _) = run(arm, &of_blind)?;
                events += record.events;
                cpu_ns += record.cpu_ns;
                Ok((record.extra_marks, record))
            })?;
            blind.blind = Some(found);
            (blind.events, blind.cpu_ns) = (events, cpu_ns);
            records.push(blind);
            progress.inc(1);
        }
        if self.wanted {
            records.insert(0, record);
            progress.inc(1);
        }
        Ok(records)
    }
}

/// Whether the fabric and the hosts did the same. What Symphony counts for itself is not asked.
fn same(one: &Results, other: &Results) -> bool {
    let alike =
        Results { job_packets: one.job_packets, lead_tests: one.lead_tests, leads: one.leads.clone(), ..other.clone() };
    *one == alike
}

/// Most memory that this process has used, in bytes; 0 where the kernel does not say.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::super::record::{self, Sweep};
    use super::super::report::Report;
    use super::*;
    use crate::backend::sim::{Discipline, Fabric, JobResults, Paths, Topology};
    use crate::dataplane::{Conservation, Marks};

    /// A fabric that answers at once: each seed takes its own time, Symphony halves it, a coin marks in proportion.
    struct Fake {
        /// Marks that null sets, which must set none.
        null_marks: u64,
        /// Switching Symphony off costs so much.
        disabled_ns: u64,
        /// The seed that can't run.
        broken: u64,
    }

    const SOUND: Fake = Fake { null_marks: 0, disabled_ns: 0, broken: 0 };

    impl Workload for Fake {
        fn setup(&self, seed: u64) -> Result<Setup> {
            anyhow::ensure!(seed != self.broken, "seed {seed} makes no sense");
            Ok(Setup {
                seed,
                fabric: Fabric {
                    topology: Topology::Single { hosts: 2 },
                    host_bps: 1,
                    fabric_bps: 1,
                    slow_links: Vec::new(),
                    shared_nic: false,
                    delay_ns: 0,
                    red: None,
                    buffer_bytes: 1,
                    pfc: None,
                    paths: Paths::PerFlow,
                },
                jobs: Vec::new(),
                model: Default::default(),
                background: Vec::new(),
                symphony: None,
                discipline: Discipline::Fifo,
                limit_ns: 1,
            })
        }

        fn bound_ms(&self, _: &Setup) -> BTreeMap<String, f64> {
            BTreeMap::from([("all".into(), 1.0 / 3.0)])
        }

        fn stretch(&self) -> f64 {
            1.0
        }

        fn run(&self, setup: &Setup) -> Result<Results> {
            let whole = 1_000_000 + setup.seed * 7_001;
            let (jct_ns, symphony) = match setup.symphony {
                None => (whole, 0),
                Some(Parameters { enabled: false, .. }) => (whole + self.disabled_ns, 0),
                Some(Parameters { policy: Policy::Null, .. }) => (whole, self.null_marks),
                Some(Parameters { policy: Policy::Blind { probability }, .. }) => {
                    (whole - 1, (probability * 3_000.0) as u64)
                }
                Some(_) => (whole / 2, 100 + setup.seed),
            };
            let all = JobResults { class: "all".into(), start_ns: 0, finish_ns: Some(jct_ns), steps: Vec::new() };
            Ok(Results {
                jobs: vec![all],
                marks: Marks { red: 5, symphony },
                job_packets: 10_000,
                lead_tests: 2_000,
                events: 17,
                conservation: Conservation { rx: 3, tx: 3, ..Conservation::default() },
                ..Results::default()
            })
        }
    }

    fn run_all(workload: &Fake, arms: &[Arm], seeds: u64, threads: usize) -> Result<Vec<Record>> {
        let wanted: Vec<&Arm> = arms.iter().collect();
        run(workload, &tasks(1..=seeds, &wanted, arms), threads, &ProgressBar::hidden())
    }

    /// Without what differs from run to run.
    fn steady(mut records: Vec<Record>) -> Vec<Record> {
        for record in &mut records {
            (record.cpu_ns, record.peak_rss_bytes) = (1, 1);
        }
        records
    }

    #[test]
    fn every_arm_runs_once_a_seed_in_one_order_whatever_the_threads() {
        let arms = Arm::defaults();
        let one = run_all(&SOUND, &arms, 5, 1).expect("it runs");
        let many = run_all(&SOUND, &arms, 5, 7).expect("it runs");
        assert_eq!(one.len(), 5 * arms.len());
        assert!(one.iter().all(|record| record.failures.is_empty()), "{one:?}");
        assert_eq!(steady(one), steady(many));
    }

    #[test]
    fn blind_is_tuned_on_its_partner_of_the_same_seed_even_where_that_is_not_shown() {
        let arms = Arm::choose(&[], &["blind".into()]).expect("they exist");
        let wanted: Vec<&Arm> = arms.iter().collect();
        let known = Arm::defaults();
        let tasks = tasks(3..=3, &wanted, &known);
        assert_eq!(runs(&tasks), 2);
        let records = run(&SOUND, &tasks, 1, &ProgressBar::hidden()).expect("it runs");
        let names: Vec<&str> = records.iter().map(|record| record.arm.as_str()).collect();
        assert_eq!(names, ["base", "blind"]);
        let found = records[1].blind.expect("it was tuned");
        assert_eq!(found.target, 103);
        assert!(found.holds() && found.tries > 1, "{found:?}");
        assert_eq!(records[1].events, 17 * u64::from(found.tries), "what tuning took is accounted for");
    }

    #[test]
    fn marks_of_null_and_a_difference_when_switched_off_are_failures() {
        let failures = |workload: &Fake| -> Vec<String> {
            let records = run_all(workload, &Arm::defaults(), 2, 2).expect("it runs");
            records.into_iter().flat_map(|record| record.failures).collect()
        };
        let null = failures(&Fake { null_marks: 1, ..SOUND });
        assert!(null.len() == 2 && null[0].contains("must not"), "{null:?}");
        let disabled = failures(&Fake { disabled_ns: 1, ..SOUND });
        assert!(disabled.len() == 1 && disabled[0].contains("not identical"), "{disabled:?}");
    }

    #[test]
    fn a_seed_that_cannot_run_ends_the_sweep_with_its_reason() {
        let error = run_all(&Fake { broken: 2, ..SOUND }, &Arm::defaults(), 40, 2).expect_err("seed 2");
        assert_eq!(error.to_string(), "seed 2 makes no sense");
    }

    #[test]
    fn shards_merged_from_their_files_say_what_the_whole_says() {
        let arms = Arm::defaults();
        let wanted: Vec<&Arm> = arms.iter().collect();
        let none = Vec::new;
        let sweep = Sweep {
            scenario: "s".into(),
            cc: "dc55".into(),
            set: none(),
            arm: none(),
            arms: none(),
            seeds: 5,
            seed_offset: 0,
        };
        let mut sweeps = Vec::new();
        for shard in [2, 0, 1] {
            let all = tasks(1..=5, &wanted, &arms).into_iter().enumerate();
            let share: Vec<Task<'_>> = all.filter(|(at, _)| at % 3 == shard).map(|(_, task)| task).collect();
            let records = run(&SOUND, &share, 2, &ProgressBar::hidden()).expect("it runs");
            let mut file = Vec::new();
            record::write(&mut file, &sweep, &records).expect("memory takes it");
            record::read(&file[..], &mut sweeps).expect("it reads");
        }
        let whole = steady(run_all(&SOUND, &arms, 5, 2).expect("it runs"));
        let [(_, merged)] = &sweeps[..] else { panic!("one sweep") };
        let merged = steady(merged.clone());
        assert_ne!(merged, whole, "shards come in another order");
        let report = |records: &[Record]| Report::new(&sweep, "s", &arms, records);
        assert_eq!(report(&merged), report(&whole));
    }
}
