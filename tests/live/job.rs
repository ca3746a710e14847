//! An aggregation job between the hosts of a [`Net`](super::net::Net): worker i is on host i + 1.

use std::net::SocketAddrV4;

use serde_json::Value;
use symphony::backend::aggregation::{Client, ClientConfig, Error};
use symphony::control::protocol::Command;
use symphony::control::serene;

use super::net::{Switch, eventually};

/// The switch's service in its configuration.
pub const SERVICE: &str = "[serene]\naddress = \"10.9.0.254\"\n";

/// Links that lose, double and reorder packets, for `each_port`.
pub const BAD_LINKS: &str =
    "fault = { loss = 0.05, duplicate = 0.05, delay = \"300us\", delay_jitter = \"300us\", reorder = 0.1 }";

/// Lanes of a worker of its own, in each segment.
pub const OWN: usize = 8;

/// Job 1.
#[derive(Clone, Copy)]
pub struct Job {
    pub workers: u8,
    pub segments: u32,
}

impl Job {
    pub fn lanes(self) -> usize {
        usize::from(self.workers) * OWN
    }

    /// The job file. `policies` is TOML.
    pub fn file(self, start: &str, policies: &str) -> String {
        let Job { workers, segments } = self;
        let members: Vec<_> = (0..workers).map(|worker| format!("\"{}\"", local(worker))).collect();
        let (members, lanes) = (members.join(", "), self.lanes());
        format!(
            "[job]\nid = 1\nmembers = [{members}]\nsegments = {segments}\nlanes = {lanes}\nstart = \"{start}\"\n{policies}"
        )
    }

    /// Gives the job to a switch; `Err` is what it says against it.
    pub fn load(self, switch: &Switch, start: &str, policies: &str) -> Result<(), String> {
        let file: serene::File = toml::from_str(&self.file(start, policies)).unwrap();
        switch.ask(Command::LoadAggregation { file }).map(|_| ())
    }

    /// How a worker is set up. Patience is short, so that tests are.
    pub fn config(self, worker: u8) -> ClientConfig {
        let service = "10.9.0.254:24190".parse().unwrap();
        let mut config = ClientConfig::new(service, local(worker), 1, worker, self.segments, self.lanes());
        config.worker.join_timeout_ns = 5_000_000_000;
        config.worker.silence_timeout_ns = 5_000_000_000;
        config
    }

    /// Joins; to be called on the worker's host.
    pub fn join(self, worker: u8) -> Result<Client, Error> {
        Client::join(self.config(worker))
    }

    /// 1 in the worker's own lanes of each segment, so that the sum tells how often a worker is in it.
    pub fn ones(self, worker: u8) -> Vec<i32> {
        let mut values = vec![0; self.segments as usize * self.lanes()];
        for segment in values.chunks_mut(self.lanes()) {
            segment[usize::from(worker) * OWN..][..OWN].fill(1);
        }
        values
    }

    /// How often a worker is in a sum of [`Job::ones`], by segment.
    #[track_caller]
    pub fn times(self, sum: &[i32], worker: u8) -> Vec<i64> {
        let own = sum.chunks(self.lanes()).map(|segment| &segment[usize::from(worker) * OWN..][..OWN]);
        own.map(|lanes| {
            assert!(lanes.iter().all(|lane| *lane == lanes[0]), "a packet counts as a whole: {lanes:?}");
            i64::from(lanes[0])
        })
        .collect()
    }
}

/// A worker's address.
pub fn local(worker: u8) -> SocketAddrV4 {
    SocketAddrV4::new([10, 9, 0, worker + 1].into(), 7001)
}

/// The state of job 1.
pub fn state(switch: &Switch) -> Value {
    switch.ask(Command::Aggregation).unwrap()["aggregation"][0].clone()
}

/// Asks for a strategy.
pub fn swap(switch: &Switch, strategy: &str) {
    switch.ask(Command::Swap { job: 1, strategy: strategy.into() }).unwrap();
}

/// Waits until the strategy is in force, and none other is wanted.
#[track_caller]
pub fn in_force(switch: &Switch, strategy: &str) {
    let there = || {
        let state = state(switch);
        state["strategy"] == strategy && state["wanted"] == strategy && state["swap"].is_null()
    };
    assert!(eventually(there), "{strategy} is not in force: {}", state(switch));
}

/// Pushes ones until so many rounds are over; the last round's number.
pub fn push(client: &mut Client, job: Job, worker: u8, rounds: usize) -> Result<u32, Error> {
    let mut last = 0;
    for _ in 0..rounds {
        last = client.push_quantised(&job.ones(worker))?.round;
    }
    Ok(last)
}
