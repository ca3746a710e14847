//! The configuration: one TOML file a switch, read, checked and compiled into what the pure core is told at start.
//!
//! Unknown keys and impossible values are errors that name file, line, key, value and cure. The same code compiles what
//! `symphony ctl` asks for at run time.

mod compile;
mod error;
mod file;
mod serene;

use std::path::{Path, PathBuf};

pub use compile::Compiler;
pub(in crate::control) use error::with_guess;
pub use error::{ConfigError, Key, Wrong};
pub use file::{Datapath, File, JobTable, SymphonyTable};
pub use serene::SereneTable;

use serde::Deserialize;

use crate::backend::afxdp::Aggregation;
use crate::dataplane::SwitchConfig;
use crate::functions::forward::ForwardConfig;
use crate::functions::symphony::{Job, Parameters};

/// What a configuration is read for. A live switch has limits that a replay has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run on interfaces.
    Live,
    /// To be held against captures: interfaces and datapath do not matter.
    Replay,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The switch's name.
    pub name: String,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Buffers, seed, ports.
    pub switch: SwitchConfig,
    /// The interface of each port, in the order of `switch.ports`.
    pub interfaces: Vec<String>,
    /// Forwarding. `source_mac` of its next hops is not known here: the driver fills in the port's own.
    pub forward: ForwardConfig,
    /// Symphony's parameters.
    pub parameters: Parameters,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Aggregation, if there is to be any.
    pub serene: Option<Aggregation>,
    /// The file with every default filled in.
    pub file: File,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// That it cannot be read, or the first thing wrong in it.
    pub fn load(path: &Path, purpose: Purpose) -> Result<Config, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|reason| ConfigError::Read { path: path.to_owned(), reason })?;
        Config::parse(&text, &path.display().to_string(), purpose)
    }

    /// Checks a text; `file` is what errors call it, and what the paths of job files are relative to.
    ///
    /// # Errors
    /// The first thing wrong in it, or in a job file.
    pub fn parse(text: &str, file: &str, purpose: Purpose) -> Result<Config, ConfigError> {
        let mut tables: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
        tables.fill(Path::new(file));
        let place = |wrong| ConfigError::from_wrong(file, text, wrong);
        let mut config = compile::config(tables, purpose).map_err(place)?;
        config.serene = config.file.serene.as_ref().map(|table| table.compile(place)).transpose()?;
        Ok(config)
    }

    /// Every value in force as TOML; parsing it gives the same configuration.
    pub fn to_toml(&self) -> String {
        // Strings, numbers and tables only, and no map with other keys than strings: nothing here can fail.
        toml::to_string(&self.file).unwrap_or_default()
    }

    /// What later parameters and jobs are compiled with.
    pub fn compiler(&self, purpose: Purpose) -> Compiler {
        Compiler { purpose, slowest_rate_bps: self.switch.ports.iter().filter_map(|port| port.rate_bps).min() }
    }
}

/// The `[[job]]` tables of a text that has nothing else; `file` is what errors call it. Their values are checked where
/// they are compiled.
///
/// # Errors
/// The first thing wrong in it.
pub fn jobs_from_toml(text: &str, file: &str) -> Result<Vec<JobTable>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Jobs {
        job: Vec<JobTable>,
    }
    let jobs: Jobs = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
    Ok(jobs.job)
}

#[cfg(test)]
mod tests;
