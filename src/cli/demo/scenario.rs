//! `demo-straggler-3`: one switch, four servers, four ring jobs; three of them have a rank with a slow NIC.

use std::net::{IpAddr, Ipv4Addr};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::lab::Lab;
use crate::backend::host::ServerSpec;
use crate::dataplane::{PortConfig, Red, SwitchConfig};
use crate::functions::symphony::{Job, Parameters, Policy, StepSource};
use crate::roce::{self, dcqcn};

/// Servers, and ranks of each job: one rank of every job in every server, in the same ring order.
pub const SERVERS: u8 = 4;
/// Jobs: 1 is undisturbed, 2 to 4 have a straggler.
pub const JOBS: u8 = 4;
/// The server that hosts the slow ranks.
pub const STRAGGLER_SERVER: u8 = 4;
/// Speed of a slow rank's NIC.
pub const STRAGGLER_PERCENT: u64 = 5;
/// Default rate of the switch's ports and of a healthy rank's NIC.
pub const RATE_BPS: u64 = 200_000_000;
/// RoCE path MTU.
pub const PATH_MTU: u32 = 2048;
/// Bytes of one ring step at `RATE_BPS`: 56 ms, four times DCQCN's recovery.
const STEP_BYTES: u64 = 1_400_000;
/// Jobs start within so long of each other (+-2 ms).
const START_SPREAD_NS: u64 = 4_000_000;
/// Rate for which the parameter sets are written.
const NOMINAL_BPS: u64 = 10_000_000_000;
/// What a packet takes of a queue, for thresholds in packets.
const PACKET_BYTES: u64 = 2_000;

/// The arms in the order in which they run.
pub const ARMS: [&str; 4] = ["base", "symphony", "symphony-bold", "blind"];

/// Address of a job's rank: ranks of different jobs in one server have addresses of their own.
pub fn address(job: u8, server: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, job, server).into()
}

/// Addresses of a job's ranks, one in each server.
fn ring(job: u8) -> Vec<IpAddr> {
    (1..=SERVERS).map(|server| address(job, server)).collect()
}

/// When each job starts.
fn starts(seed: u64) -> Vec<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..JOBS).map(|_| rng.next_u64() % START_SPREAD_NS).collect()
}

/// Rounded down to whole packets, at least one.
pub fn whole_packets(bytes: u64) -> u64 {
    (bytes / u64::from(PATH_MTU)).max(1) * u64::from(PATH_MTU)
}

/// Everything that follows from the line rate.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Emulated line rate of every port, and of a healthy rank's NIC.
    pub rate_bps: u64,
}

impl Scenario {
    /// How much slower than the nominal 10 Gbit/s: timers grow and rate steps shrink by this.
    pub fn scale(self) -> f64 {
        NOMINAL_BPS as f64 / self.rate_bps as f64
    }

    /// Bytes of one ring step: 56 ms at the rate, in whole packets.
    pub fn step_bytes(self) -> u64 {
        whole_packets(STEP_BYTES * (self.rate_bps / 1000) / (RATE_BPS / 1000))
    }

    /// Line rate of a rank's NIC.
    pub fn nic_bps(self, job: u8, server: u8) -> u64 {
        let slow = job > 1 && server == STRAGGLER_SERVER;
        if slow { self.rate_bps * STRAGGLER_PERCENT / 100 } else { self.rate_bps }
    }

    /// The switch: one port a server; Kmin and Kmax are 10 and 40 packets.
    pub fn switch(self, seed: u64) -> SwitchConfig {
        let port = |server: u8| PortConfig {
            name: format!("p{server}"),
            rate_bps: Some(self.rate_bps),
            buffer_bytes: 8 << 20,
            red: Some(Red { kmin_bytes: 10 * PACKET_BYTES, kmax_bytes: 40 * PACKET_BYTES, pmax: 0.2 }),
            pfc: None,
            fault: None,
        };
        SwitchConfig { buffer_bytes: 32 << 20, seed, ports: (1..=SERVERS).map(port).collect() }
    }

    /// The four jobs as the switch knows them.
    pub fn jobs(self) -> Vec<Job> {
        (1..=JOBS).map(|job| self.job(job)).collect()
    }

    /// One of them.
    pub fn job(self, job: u8) -> Job {
        Job {
            id: job.into(),
            name: if job == 1 { "healthy".into() } else { format!("straggler-{job}") },
            ring: ring(job),
            step_source: StepSource::Message,
            requests_per_step: 1,
            packets_per_step: Some((self.step_bytes() / u64::from(PATH_MTU)) as u32),
            path_mtu: PATH_MTU,
            steps_per_collective: 2 * (u32::from(SERVERS) - 1),
            step_ns: Some(self.step_bytes() * 8 * 1_000_000_000 / self.rate_bps),
            idle_ns: 10 * self.step_bytes() * 8 * 1_000_000_000 / self.rate_bps,
            enabled: true,
        }
    }

    /// The hosts, with starts within 4 ms (+-2 ms) of each other by job and seed.
    pub fn servers(self, lab: &Lab, seed: u64) -> Vec<ServerSpec> {
        let starts = starts(seed);
        let rank = |job: u8, server: u8| roce::Config {
            start_at: starts[usize::from(job - 1)],
            ..self.rank(job, &ring(job), u32::from(server - 1), self.nic_bps(job, server), seed)
        };
        (1..=SERVERS)
            .map(|server| ServerSpec {
                netns: Some(lab.server_netns(server)),
                ranks: (1..=JOBS).map(|job| rank(job, server)).collect(),
            })
            .collect()
    }

    /// A rank of a ring job: one all-reduce, one request a step, DCQCN scaled to the rate.
    pub fn rank(self, job: u8, ring: &[IpAddr], rank: u32, nic_bps: u64, seed: u64) -> roce::Config {
        roce::Config {
            run: seed as u32,
            chunk_bytes: self.step_bytes() as u32,
            requests_per_step: 1,
            path_mtu: PATH_MTU,
            line_rate_bps: nic_bps,
            congestion_control: Some(dcqcn::Parameters::DC55.scaled(self.scale())),
            seed,
            ..roce::Config::new(job.into(), ring, rank).expect("the scenario's rings have this rank")
        }
    }

    /// Parameters of an arm; times are scaled to the rate.
    pub fn parameters(self, arm: &str, blind_probability: f64) -> Parameters {
        let defaults = Parameters::default().scaled(self.scale());
        match arm {
            "base" => Parameters { enabled: false, ..defaults },
            "symphony-bold" => Parameters::bold().scaled(self.scale()),
            "blind" => Parameters { policy: Policy::Blind { probability: blind_probability }, ..defaults },
            _ => defaults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::Topology;
    use crate::control;

    #[test]
    fn a_step_takes_56_ms_and_four_recoveries_at_any_rate() {
        for rate_bps in [100_000_000, 200_000_000, 400_000_000] {
            let scenario = Scenario { rate_bps };
            let step_ms = scenario.step_bytes() as f64 * 8e3 / rate_bps as f64;
            assert!((55.8..=56.0).contains(&step_ms), "{step_ms}");
        }
        let scenario = Scenario { rate_bps: RATE_BPS };
        let recovery_ms = scenario.parameters("symphony", 0.0).recovery_ns as f64 / 1e6;
        assert!(4.0 * recovery_ms <= 56.0, "{recovery_ms}");
    }

    #[test]
    fn only_ranks_of_jobs_2_to_4_on_the_last_server_are_slow() {
        let scenario = Scenario { rate_bps: RATE_BPS };
        let slow: Vec<_> = (1..=JOBS)
            .flat_map(|job| (1..=SERVERS).map(move |server| (job, server)))
            .filter(|(job, server)| scenario.nic_bps(*job, *server) < RATE_BPS)
            .collect();
        assert_eq!(slow, [(2, 4), (3, 4), (4, 4)]);
    }

    #[test]
    fn the_simulated_twin_has_the_same_numbers() {
        let demo = Scenario { rate_bps: RATE_BPS };
        let twin = control::scenario::Scenario::named("demo-straggler-3").expect("it is built in");
        assert_eq!(twin.stretch(), demo.scale());
        let setup = twin.setup(7, dcqcn::Parameters::DC55).expect("it is sound");
        let ports = demo.switch(7).ports;
        assert_eq!(setup.fabric.topology, Topology::Single { hosts: SERVERS.into() });
        assert_eq!(Some(setup.fabric.host_bps), ports[0].rate_bps);
        let (red, at_port) = (setup.fabric.red.expect("it marks"), ports[0].red.expect("it marks"));
        let slower = demo.scale() as u64;
        assert_eq!((red.kmin_bytes, red.kmax_bytes), (at_port.kmin_bytes * slower, at_port.kmax_bytes * slower));
        assert_eq!(red.pmax, at_port.pmax);
        assert_eq!(setup.fabric.buffer_bytes, demo.switch(7).buffer_bytes);
        assert_eq!(setup.jobs.len(), usize::from(JOBS));
        for (job, twin) in (1..).zip(&setup.jobs) {
            let known = demo.job(job);
            assert_eq!(twin.idle_ns, known.idle_ns);
            assert_eq!(twin.chunk_bytes / twin.path_mtu, known.packets_per_step.expect("it is known"));
            for server in 1..=SERVERS {
                let rank = u32::from(server - 1);
                let live = demo.rank(job, &ring(job), rank, demo.nic_bps(job, server), 7);
                assert_eq!(twin.hosts[rank as usize], rank);
                assert_eq!(twin.nic_bps[rank as usize], live.line_rate_bps);
                assert_eq!(twin.start_at[rank as usize], starts(7)[usize::from(job - 1)]);
                assert_eq!(twin.congestion_control, live.congestion_control);
                assert_eq!((twin.collective, twin.iterations), (live.collective, live.iterations));
                assert_eq!((twin.chunk_bytes, twin.path_mtu), (live.chunk_bytes, live.path_mtu));
                assert_eq!((twin.channels, twin.requests_per_step), (live.channels, live.requests_per_step));
            }
        }
    }
}
