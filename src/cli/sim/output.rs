//! Where the results of a sweep go.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::record::Record;
use super::report::Report;
use super::study::Study;
use super::{page, text};
use crate::cli;

/// Arguments.
#[derive(clap::Args)]
pub struct OutputArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Also write one line for each seed, arm and class
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with pictures, DIR/index.html: steps over time, JCT by arm, leads, queues
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// The same, opened before the first run so that what can't be written fails at once.
pub struct Targets {
    json: bool,
    csv: Option<(PathBuf, BufWriter<File>)>,
    report: Option<PathBuf>,
}

impl OutputArgs {
    /// Opens the files.
    ///
    /// # Errors
    /// The first that can't be written.
    pub fn open(self) -> Result<Targets> {
        let csv = self.csv.map(|path| create(&path).map(|file| (path, file))).transpose()?;
        if let Some(dir) = &self.report {
            fs::create_dir_all(dir).with_context(|| written(dir))?;
        }
        Ok(Targets { json: self.json, csv, report: self.report })
    }
}

impl Targets {
    /// Says what the records of a study say, in every form asked for.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn say(self, study: &Study, records: &[Record]) -> Result<ExitCode> {
        let report = study.report(records);
        if let Some((path, mut file)) = self.csv {
            text::csv(&mut file, records).and_then(|()| Ok(file.flush()?)).with_context(|| written(&path))?;
        }
        if let Some(dir) = self.report {
            page::write(&dir, study, &report, records)?;
        }
        match self.json {
            true => cli::print_json(&report)?,
            false => cli::print(text::table(&report))?,
        }
        Ok(status(&report))
    }
}

/// Says what failed, if anything did.
pub fn status(report: &Report) -> ExitCode {
    for failure in &report.failures {
        tracing::error!("{}: {failure}", report.scenario);
    }
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(cli::FAILED) }
}

/// Creates a file.
///
/// # Errors
/// That it can't be written.
pub fn create(path: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).with_context(|| written(path))?))
}

/// What an error about writing it says.
pub fn written(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
