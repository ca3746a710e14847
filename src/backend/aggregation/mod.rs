//! Aggregation over UDP: a blocking client for a trainer, and a parameter server to compare the switch with.
//!
//! ```no_run
//! use symphony::backend::aggregation::{Client, ClientConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Worker 0 of job 1, whose vectors take 2 segments of 256 values.
//! let config = ClientConfig::new("10.0.0.254:24190".parse()?, "10.0.0.1:7001".parse()?, 1, 0, 2, 256);
//! let mut client = Client::join(config)?;
//! let mut delta = vec![0.0; 512];
//! loop {
//!     let step = vec![0.01; 512]; // minus learning rate times gradient, at the model of the start plus `delta`
//!     client.push(&step)?;
//!     client.model_delta(&mut delta);
//! #   break;
//! }
//! client.leave()?;
//! # Ok(())
//! # }
//! ```

mod client;
mod server;
mod socket;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig, Error, Totals};
pub use server::{ParameterServer, ServerConfig, ServerCounters, ServerError, ServerHandle};
