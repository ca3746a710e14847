//! A sweep made ready to run: its scenario read and changed, its arms known.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::arm::{Arm, BASE, Kind, NULL};
use super::record::{Record, Sweep};
use super::report::{Report, resolved};
use super::runner::{self, Task, Workload};
use crate::backend::sim::Setup;
use crate::control::scenario::{Scenario, bounds_ns};
use crate::roce::dcqcn;

/// Seeds that are run where the null arm decides: so many, then more, up to the last.
const SEEDS: [u64; 10] = [10, 14, 20, 28, 40, 57, 80, 113, 160, 200];

/// A sweep and what it needs.
pub struct Study {
    /// What was asked for.
    pub sweep: Sweep,
    scenario: Scenario,
    /// All that may be paired with.
    known: Vec<Arm>,
    /// Those that are run and shown.
    pub arms: Vec<Arm>,
    control: dcqcn::Parameters,
}

impl Study {
    /// Reads scenario and arms. Without a `cc`, it is the scenario's.
    ///
    /// # Errors
    /// What is wrong with any of them.
    pub fn new(mut sweep: Sweep) -> Result<Study> {
        let mut scenario = Scenario::find(&sweep.scenario)?;
        for change in &sweep.set {
            scenario.set(change)?;
        }
        if sweep.cc.is_empty() {
            sweep.cc = scenario.cc().to_owned();
        }
        let control = dcqcn::Parameters::named(&sweep.cc)
            .with_context(|| format!("--cc {}: use one of {}", sweep.cc, dcqcn::Parameters::NAMES.join(", ")))?;
        let known = Arm::choose(&sweep.arm, &[])?;
        let arms = Arm::choose(&sweep.arm, &sweep.arms)?;
        let decides = sweep.seeds != 0 || arms.iter().any(|arm| arm.name == NULL);
        ensure!(
            decides,
            "seeds are added until the null arm is known to within 1 %: choose `null` too, or give --seeds"
        );
        Ok(Study { sweep, scenario, known, arms, control })
    }

    /// The scenario with all changes.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What the scenario is, in a line.
    pub fn description(&self) -> &str {
        self.scenario.description()
    }

    /// Runs that it takes, at least.
    pub fn least_runs(&self) -> u64 {
        let seeds = if self.sweep.seeds == 0 { SEEDS[0] } else { self.sweep.seeds };
        seeds * self.arms.len() as u64
    }

    /// Runs all of it. `progress` counts to [`Self::least_runs`] already, and learns of what comes on top.
    ///
    /// Where the number of seeds is left open (0), base and null run first, until chance is known to within 1 %, then the
    /// other arms on the same seeds; the sweep then has that number.
    ///
    /// # Errors
    /// What makes no sense in the scenario.
    pub fn run_all(&mut self, threads: usize, progress: &ProgressBar) -> Result<Vec<Record>> {
        let decides = |arm: &&Arm| self.sweep.seeds != 0 || arm.name == BASE || arm.name == NULL;
        let (first, others): (Vec<&Arm>, Vec<&Arm>) = self.arms.iter().partition(decides);
        let mut records = Vec::new();
        let mut seeds = 0;
        let ladder = if self.sweep.seeds == 0 { &SEEDS[..] } else { &[self.sweep.seeds] };
        for &up_to in ladder {
            if seeds > 0 {
                progress.inc_length((up_to - seeds) * self.arms.len() as u64);
            }
            let tasks = runner::tasks(seeds + 1..=up_to, &first, &self.known);
            records.extend(runner::run(self, &tasks, threads, progress)?);
            seeds = up_to;
            if self.sweep.seeds == 0 && resolved(&records) {
                break;
            }
        }
        records.extend(runner::run(self, &runner::tasks(1..=seeds, &others, &self.known), threads, progress)?);
        self.sort(&mut records);
        self.sweep.seeds = seeds;
        Ok(records)
    }

    /// Runs shard `index` of `shards`.
    ///
    /// # Errors
    /// What makes no sense in the scenario; that the number of seeds is left open.
    pub fn run_shard(
        &self,
        (index, shards): (u64, u64),
        threads: usize,
        progress: &ProgressBar,
    ) -> Result<Vec<Record>> {
        ensure!(self.sweep.seeds != 0, "--shard needs --seeds: no shard knows the others' results");
        let arms: Vec<&Arm> = self.arms.iter().collect();
        let all = runner::tasks(1..=self.sweep.seeds, &arms, &self.known).into_iter().zip(0u64..);
        let share: Vec<Task<'_>> = all.filter(|(_, at)| at % shards == index).map(|(task, _)| task).collect();
        progress.inc_length(runner::runs(&share));
        let mut records = runner::run(self, &share, threads, progress)?;
        self.sort(&mut records);
        Ok(records)
    }

    /// Takes records of all shards of the sweep.
    ///
    /// # Errors
    /// A run that is missing or was done twice.
    pub fn take(&self, records: &mut [Record]) -> Result<()> {
        self.sort(records);
        let expected = || (1..=self.sweep.seeds).flat_map(|seed| self.arms.iter().map(move |arm| (seed, &arm.name)));
        let mut found = records.iter().map(|record| (record.seed, &record.arm)).peekable();
        for (seed, arm) in expected() {
            let times = std::iter::from_fn(|| found.next_if(|run| *run == (seed, arm))).count();
            ensure!(times != 0, "{}: {arm} seed {seed} is missing: is a shard's file?", self.sweep.scenario);
            ensure!(
                times == 1,
                "{}: {arm} seed {seed} is there {times} times: give each shard once",
                self.sweep.scenario
            );
        }
        ensure!(found.next().is_none(), "{}: there are runs that the sweep does not have", self.sweep.scenario);
        Ok(())
    }

    /// What the records say.
    pub fn report(&self, records: &[Record]) -> Report {
        Report::new(&self.sweep, self.scenario.name(), &self.arms, records)
    }

    /// The setup of an arm that needs no partner.
    ///
    /// # Errors
    /// What makes no sense in the scenario; an arm that is not there.
    pub fn arm_setup(&self, arm: &str, seed: u64) -> Result<Setup> {
        let arm =
            self.known.iter().find(|other| other.name == arm).with_context(|| format!("there is no arm {arm}"))?;
        ensure!(!matches!(arm.kind, Kind::Blind { .. }), "{} needs its partner", arm.name);
        let mut setup = self.setup(seed)?;
        arm.kind.apply(&mut setup, self.stretch());
        Ok(setup)
    }

    /// By seed, then in the order of the arms.
    fn sort(&self, records: &mut [Record]) {
        let place = |record: &Record| self.arms.iter().position(|arm| arm.name == record.arm);
        records.sort_by_key(|record| (record.seed, place(record)));
    }
}

impl Workload for Study {
    fn setup(&self, seed: u64) -> Result<Setup> {
        Ok(self.scenario.setup(seed + self.sweep.seed_offset, self.control)?)
    }

    fn bound_ms(&self, setup: &Setup) -> BTreeMap<String, f64> {
        bounds_ns(setup).into_iter().map(|(class, ns)| (class, ns as f64 / 1e6)).collect()
    }

    fn stretch(&self) -> f64 {
        self.scenario.stretch()
    }
}
