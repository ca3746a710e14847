//! Pushes a vector through the switch and prints the sum over all workers: the smallest use of the client.
//!
//! The job file (`symphony ctl job load job.toml`, with `symphony run` up) for two workers on one host each:
//!
//! ```toml
//! [job]
//! id = 1
//! members = ["10.0.0.1:7001", "10.0.0.2:7001"]
//! segments = 1
//! lanes = 8
//! scale_log2 = 24
//! start = "bsp"
//! ```
//!
//! Then, with the switch's service address in the place of 10.0.0.254, on the two hosts at the same time:
//!
//! ```sh
//! cargo run --example sum -- 10.0.0.254:24190 10.0.0.1:7001 0 1.5 2 3
//! cargo run --example sum -- 10.0.0.254:24190 10.0.0.2:7001 1 0.5 2 -3
//! ```
//!
//! Both print `2 4 0 0 0 0 0 0`. `examples/sum.py` is the same without this library, and may be one of the two.

use std::error::Error;
use std::process::ExitCode;

use symphony::backend::aggregation::{Client, ClientConfig};

const JOB: u8 = 1;
const SEGMENTS: u32 = 1;
const LANES: usize = 8;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sum: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [switch, local, worker, values @ ..] = arguments.as_slice() else {
        return Err("usage: sum SWITCH:24190 LOCAL:PORT WORKER VALUE..".into());
    };
    let vector = values.iter().map(|value| value.parse()).collect::<Result<Vec<f32>, _>>()?;

    let config = ClientConfig::new(switch.parse()?, local.parse()?, JOB, worker.parse()?, SEGMENTS, LANES);
    let mut client = Client::join(config)?;
    let (mut before, mut after) = ([0.0; LANES], [0.0; LANES]);
    client.model_delta(&mut before); // of the rounds before ours

    // The switch adds up what workers have divided by the norm: the model moves by their mean.
    let norm = f32::from(client.worker().norm());
    let report = client.push(&vector)?;
    client.model_delta(&mut after);

    let sum: Vec<String> = before.iter().zip(&after).map(|(b, a)| ((a - b) * norm).to_string()).collect();
    println!("{}", sum.join(" "));
    eprintln!("round {}: waited {} us", report.round, report.wait_ns() / 1000);
    client.leave()?;
    Ok(())
}
