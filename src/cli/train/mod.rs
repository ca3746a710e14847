//! `symphony train`: workers that train one network together, through the switch.

pub mod baseline;
pub mod coordinator;
pub mod data;
pub mod measure;
pub mod order;
mod worker;

#[cfg(test)]
mod tests;

use std::process::ExitCode;

pub use self::worker::SAMPLES_ON_THE_WAY;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Be a worker of a coordinator that speaks through pipes
    #[arg(long, hide = true, exclusive = true)]
    ordered: bool,
}

/// Trains.
///
/// # Errors
/// What keeps it from training.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { ordered: _ } = args;
    worker::obey()?;
    Ok(ExitCode::SUCCESS)
}
