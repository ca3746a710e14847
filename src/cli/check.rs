//! `symphony check`: is this configuration sound?

use std::path::PathBuf;
use std::process::ExitCode;

use crate::control::config::Purpose;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Checks.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = super::load_config(&args.config, Purpose::Live)?;
    match args.json {
        true => super::print_json(&serde_json::json!({ "version": 1, "name": config.name }))?,
        false => super::print(config.to_toml())?,
    }
    Ok(ExitCode::SUCCESS)
}
