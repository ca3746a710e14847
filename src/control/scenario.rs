//! Scenarios of the simulator: one TOML file each, in `bench/scenarios/`, built in as well.
//!
//! A scenario and a seed give a [`Setup`]: whatever is random (places, slow ranks, starts, foreign traffic) is drawn here,
//! from streams of the seed alone, so that arms that share a seed differ in the policy and in nothing else.
//!
//! ```text
//! TOML  ->  tables (file)  --set key=value-->  drawn (draw)  ->  sim::Setup  ->  bound
//! ```

mod bound;
mod draw;
mod error;
mod file;
mod set;
mod trace;

use std::path::Path;

pub use bound::bounds_ns;
pub use error::ScenarioError;
pub use file::{File, ModelName};

use super::config::{ConfigError, Key, Wrong};
use crate::backend::sim::Setup;
use crate::roce::dcqcn;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../bench/scenarios/", $name, ".toml")))),*] };
}

/// Name and text of every row of the matrix.
const MATRIX: &[(&str, &str)] = built_in![
    "clean",
    "clean-jitter",
    "clean-late",
    "rr",
    "ecmp",
    "random",
    "multi",
    "multi-skew",
    "multi-nccl",
    "oversub",
    "trunk",
    "straggler-1",
    "straggler-3",
    "straggler-5",
    "late",
    "incast",
    "background",
    "rehash",
    "rehash-multi",
    "slow-link",
    "fresh-qp",
    "short",
    "prototype",
];

/// The other built-in ones: twins of live runs, scale, and what is held against ASTRA-sim.
const OTHERS: &[(&str, &str)] = built_in![
    "demo-straggler-3",
    "demo-prototype",
    "ring-1024",
    "astra-single-8",
    "astra-lsc-8",
    "astra-lss-8",
    "astra-lss-64",
    "astra-os-4",
];

/// A checked scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    name: String,
    file: File,
}

impl Scenario {
    /// Names of the rows of the matrix, in its order.
    pub fn matrix() -> impl Iterator<Item = &'static str> {
        MATRIX.iter().map(|(name, _)| *name)
    }

    /// Names of all built-in scenarios, those of the matrix first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        MATRIX.iter().chain(OTHERS).map(|(name, _)| *name)
    }

    /// A built-in scenario by its name, or a file by its path.
    ///
    /// # Errors
    /// As [`Self::named`] and [`Self::load`].
    pub fn find(name_or_path: &str) -> Result<Self, ScenarioError> {
        let path = Path::new(name_or_path);
        let is_path = path.extension().is_some() || path.components().count() > 1;
        if is_path { Self::load(path) } else { Self::named(name_or_path) }
    }

    /// A built-in scenario.
    ///
    /// # Errors
    /// That there is none of this name, with those that there are.
    pub fn named(name: &str) -> Result<Self, ScenarioError> {
        match MATRIX.iter().chain(OTHERS).find(|(known, _)| *known == name) {
            Some((name, text)) => Self::parse(text, name, &format!("{name}.toml")),
            None => Err(ScenarioError::Unknown { name: name.to_owned() }),
        }
    }

    /// A file; the scenario is called by the file's name without `.toml`.
    ///
    /// # Errors
    /// That it cannot be read, or the first thing wrong in it.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text =
            std::fs::read_to_string(path).map_err(|reason| ConfigError::Read { path: path.to_owned(), reason })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, &name, &path.display().to_string())
    }

    /// A text; `file` is what errors call it, and where the path of a trace begins.
    ///
    /// # Errors
    /// The first thing wrong in it.
    pub fn parse(text: &str, name: &str, file: &str) -> Result<Self, ScenarioError> {
        let tables: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let scenario = Scenario { name: name.to_owned(), file: tables.with_trace(folder)? };
        scenario.check().map_err(|wrong| ConfigError::from_wrong(file, text, wrong))?;
        Ok(scenario)
    }

    /// Changes one value, given as `key.path=value`: the value as in the file, quotes may be left out. `job.chunk=2MB` sets
    /// it in every job, `job[0].chunk=2MB` in one.
    ///
    /// # Errors
    /// Keys that are none, with those that there are, and impossible values. The scenario is then as it was.
    pub fn set(&mut self, assignment: &str) -> Result<(), ScenarioError> {
        let at = |wrong| ScenarioError::Set { assignment: assignment.to_owned(), wrong };
        let file = set::set(&self.file, assignment).map_err(at)?.with_trace(Path::new(""))?;
        let changed = Scenario { name: self.name.clone(), file };
        changed.check().map_err(at)?;
        *self = changed;
        Ok(())
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in a line.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Name of the congestion control set that it is made for.
    pub fn cc(&self) -> &str {
        &self.file.cc
    }

    /// How hosts behave.
    pub fn model(&self) -> ModelName {
        self.file.model
    }

    /// Classes of job, each once, in the order of the file.
    pub fn classes(&self) -> Vec<&str> {
        let mut classes: Vec<&str> = Vec::new();
        for job in &self.file.jobs {
            if !classes.contains(&job.class.as_str()) {
                classes.push(&job.class);
            }
        }
        classes
    }

    /// Every value in force as TOML; parsing it gives the same scenario.
    pub fn to_toml(&self) -> String {
        // Strings, numbers and tables only, and no map with other keys than strings: nothing here can fail.
        toml::to_string(&self.file).unwrap_or_default()
    }

    /// How much slower than 10 Gbit/s it is: times of Symphony's parameters are meant to be multiplied by this.
    pub fn stretch(&self) -> f64 {
        self.file.scale
    }

    /// The run of a seed. `cc` is scaled here. Symphony is left out and the discipline at its default: these are the arms'.
    ///
    /// # Errors
    /// None that [`Self::parse`] has not found, whatever the seed.
    pub fn setup(&self, seed: u64, cc: dcqcn::Parameters) -> Result<Setup, ScenarioError> {
        draw::setup(&self.file, seed, cc.scaled(self.file.scale))
            .map_err(|wrong| ScenarioError::Wrong { name: self.name.clone(), wrong })
    }

    /// Whatever is wrong is wrong with every seed.
    fn check(&self) -> Result<(), Wrong> {
        let Some(cc) = dcqcn::Parameters::named(&self.file.cc) else {
            let names = dcqcn::Parameters::NAMES.join(", ");
            return Err(Key::new("cc").wrong(format!("{:?} is no set; there are {names}", self.file.cc)));
        };
        self.file.check()?;
        draw::setup(&self.file, 1, cc).map(drop)
    }
}

#[cfg(test)]
mod tests;
