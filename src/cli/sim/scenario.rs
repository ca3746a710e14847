//! Stand-in until `control::scenario` is there: two jobs of four ranks on one switch.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::backend::sim::{Discipline, Fabric, Job, Paths, Setup, Topology};
use crate::dataplane::Red;
use crate::roce::{Collective, dcqcn};

pub struct Scenario;

impl Scenario {
    pub fn find(name: &str) -> Result<Scenario> {
        match name {
            "pair" => Ok(Scenario),
            other => bail!("there is no scenario {other}"),
        }
    }

    pub fn name(&self) -> &str {
        "pair"
    }

    pub fn set(&mut self, key: &str, _: &str) -> Result<()> {
        bail!("there is no key {key}")
    }

    pub fn setup(&self, seed: u64, control: dcqcn::Parameters) -> Result<Setup> {
        let job = |class: &str, slow: u64| Job {
            class: class.into(),
            hosts: vec![0, 1, 2, 3],
            collective: Collective::AllReduce,
            iterations: 1,
            compute_ns: 0,
            chunk_bytes: 1 << 20,
            channels: 1,
            requests_per_step: 1,
            path_mtu: 4096,
            nic_bps: vec![10_000_000_000, 10_000_000_000, 10_000_000_000, slow],
            start_at: vec![seed % 7 * 1000; 4],
            congestion_control: Some(control),
            step_size_known: true,
            known: true,
            idle_ns: 10_000_000,
        };
        Ok(Setup {
            seed,
            fabric: Fabric {
                topology: Topology::Single { hosts: 4 },
                host_bps: 10_000_000_000,
                fabric_bps: 10_000_000_000,
                slow_links: Vec::new(),
                shared_nic: false,
                delay_ns: 1000,
                red: Some(Red { kmin_bytes: 40_000, kmax_bytes: 160_000, pmax: 0.2 }),
                buffer_bytes: 32 << 20,
                pfc: None,
                paths: Paths::PerFlow,
            },
            jobs: vec![job("healthy", 10_000_000_000), job("straggler", 500_000_000)],
            background: Vec::new(),
            symphony: None,
            discipline: Discipline::Fifo,
            limit_ns: 10_000_000_000,
        })
    }

    pub fn bound_ms(&self, _: &Setup) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    pub fn stretch(&self) -> f64 {
        1.0
    }
}
