//! The control language of aggregation jobs: a job file, its policies, and the rule entries they compile to.
//!
//! ```text
//! text  --lexer-->  tokens  --condition, action-->  AST  --checks-->  job, policies
//! ```

mod action;
mod checks;
mod compile;
mod condition;
mod cursor;
mod file;
mod lexer;
mod plan;

use std::path::Path;

use super::config::{ConfigError, Wrong};
use crate::functions::serene::Job;

pub use action::{STRATEGIES, parse_action, parse_strategy};
pub use condition::parse_condition;
pub use cursor::SyntaxError;
pub use file::{File, JobTable, PolicyTable, Rounds};
pub use plan::{Plan, PolicyPlan, Step};

/// A checked job file.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// What the core is told.
    pub job: Job,
    /// As written, with every default.
    pub file: File,
    /// What may be meant but has no effect, each with its place.
    pub warnings: Vec<String>,
}

impl JobFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// That it cannot be read, or the first thing wrong in it.
    pub fn load(path: &Path) -> Result<JobFile, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|reason| ConfigError::Read { path: path.to_owned(), reason })?;
        JobFile::parse(&text, &path.display().to_string())
    }

    /// Checks a text; `file` is what errors call it.
    ///
    /// # Errors
    /// The first thing wrong in it.
    pub fn parse(text: &str, file: &str) -> Result<JobFile, ConfigError> {
        let tables: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(file, text, &error))?;
        let place = |wrong| ConfigError::from_wrong(file, text, wrong);
        let job = compile(&tables).map_err(place)?;
        let warnings = checks::warnings(&job).into_iter().map(|wrong| place(wrong).to_string()).collect();
        Ok(JobFile { job, file: tables, warnings })
    }
}

/// The job that a file's tables describe.
///
/// # Errors
/// The first thing wrong in them.
pub fn compile(tables: &File) -> Result<Job, Wrong> {
    let job = compile::job(tables)?;
    checks::refuse(&job)?;
    Ok(job)
}

#[cfg(test)]
mod tests;
