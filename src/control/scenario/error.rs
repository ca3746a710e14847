//! What is wrong with a scenario.

use thiserror::Error;

use super::Scenario;
use crate::control::config::{ConfigError, Wrong};

/// A scenario that cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// No built-in scenario is called so.
    #[error(
        "there is no scenario `{name}`; there are {}; or give the path of a TOML file",
        Scenario::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// As asked for.
        name: String,
    },
    /// The file, or something in it.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// A change that is none.
    #[error("--set {assignment}: {wrong}")]
    Set {
        /// As given.
        assignment: String,
        /// What is wrong with it.
        wrong: Wrong,
    },
    /// Something wrong that no check found before.
    #[error("{name}: {wrong}")]
    Wrong {
        /// The scenario.
        name: String,
        /// What is wrong.
        wrong: Wrong,
    },
}
