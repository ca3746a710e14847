//! A sweep made ready to run: its scenario read and changed, its arms known.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::arm::{Arm, BASE, Kind, NULL};
use super::record::{Record, Sweep};
use super::report::{Report, resolved};
use super::runner::{self, Task, Workload};
use super::scenario::Scenario;
use crate::backend::sim::Setup;
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
    /// Reads scenario and arms.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn new(sweep: Sweep) -> Result<Study> {
        let mut scenario = Scenario::find(&sweep.scenario)?;
        for change in &sweep.set {
            let (key, value) = change.split_once('=').with_context(|| format!("--set {change}: write key=value"))?;
            scenario.set(key, value).with_context(|| format!("--set {change}"))?;
        }
        let control = dcqcn::Parameters::named(&sweep.cc)
            .with_context(|| format!("--cc {}: use one of {}", sweep.cc, dcqcn::Parameters::NAMES.join(", ")))?;
        let known = Arm::choose(&sweep.arm, &[])?;
        let arms = Arm::choose(&sweep.arm, &sweep.arms)?;
        Ok(Study { sweep, scenario, known, arms, control })
    }

    /// Runs seeds until chance is known to within 1 % in the null arm, base and null first, then the other arms on the
    /// same seeds. Sets the sweep's number of seeds.
    ///
    /// # Errors
    /// What makes no sense in the scenario; that there is no null arm.
    pub fn run_until_resolved(&mut self, threads: usize, progress: &ProgressBar) -> Result<Vec<Record>> {
        let decides = |arm: &&Arm| arm.name == BASE || arm.name == NULL;
        let first: Vec<&Arm> = self.arms.iter().filter(decides).collect();
        ensure!(
            first.len() == 2,
            "seeds are added until the null arm is known to within 1 %: choose `null` too, or give --seeds"
        );
        let mut records = Vec::new();
        let mut seeds = 0;
        for up_to in SEEDS {
            let tasks = runner::tasks(seeds + 1..=up_to, &first, &self.known);
            records.extend(self.run_tasks(&tasks, threads, progress)?);
            seeds = up_to;
            if resolved(&records) {
                break;
            }
        }
        let others: Vec<&Arm> = self.arms.iter().filter(|arm| !decides(arm)).collect();
        let tasks = runner::tasks(1..=seeds, &others, &self.known);
        records.extend(self.run_tasks(&tasks, threads, progress)?);
        self.sweep.seeds = seeds;
        self.sort(&mut records);
        Ok(records)
    }

    /// Runs the sweep's seeds, or shard `index` of `shards` of them.
    ///
    /// # Errors
    /// What makes no sense in the scenario.
    pub fn run_shard(
        &self,
        (index, shards): (u64, u64),
        threads: usize,
        progress: &ProgressBar,
    ) -> Result<Vec<Record>> {
        let arms: Vec<&Arm> = self.arms.iter().collect();
        let all = runner::tasks(1..=self.sweep.seeds, &arms, &self.known).into_iter().zip(0u64..);
        let share: Vec<Task<'_>> = all.filter(|(_, at)| at % shards == index).map(|(task, _)| task).collect();
        let mut records = self.run_tasks(&share, threads, progress)?;
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

    fn run_tasks(&self, tasks: &[Task<'_>], threads: usize, progress: &ProgressBar) -> Result<Vec<Record>> {
        progress.inc_length(runner::runs(tasks));
        runner::run(self, tasks, threads, progress)
    }

    /// By seed, then in the order of the arms.
    fn sort(&self, records: &mut [Record]) {
        let place = |record: &Record| self.arms.iter().position(|arm| arm.name == record.arm);
        records.sort_by_key(|record| (record.seed, place(record)));
    }
}

impl Workload for Study {
    fn setup(&self, seed: u64) -> Result<Setup> {
        self.scenario.setup(seed, self.control)
    }

    fn bound_ms(&self, setup: &Setup) -> BTreeMap<String, f64> {
        self.scenario.bound_ms(setup)
    }

    fn stretch(&self) -> f64 {
        self.scenario.stretch()
    }
}
