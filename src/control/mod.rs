//! What stands above a running switch: its configuration, the control socket, and a look at the machine it is to run on;
//! and above the simulator: its scenarios.

pub mod config;
pub mod machine;
pub mod protocol;
pub mod scenario;
pub mod serene;
pub mod socket;
pub mod units;
