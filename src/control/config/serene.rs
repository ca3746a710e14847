//! `[serene]`: the switch as an aggregator. Without the table the function is not there.

use std::net::Ipv4Addr;
use std::path::{Path, absolute};

use serde::{Deserialize, Serialize};

use super::compile::{fault, mac};
use super::error::{ConfigError, Key, Wrong};
use super::file::FaultTable;
use crate::backend::afxdp::Aggregation;
use crate::control::serene::JobFile;
use crate::functions::serene::Job;

/// `[serene]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SereneTable {
    /// The service address, to which workers send. The switch answers ARP for it; no host may have it.
    pub address: String,
    /// Its MAC; 02:5e and the four bytes of the address.
    pub mac: Option<String>,
    /// Job files of aggregation jobs that are there from the start; relative to this file.
    #[serde(default)]
    pub load: Vec<String>,
    /// Faults of the way between the switch and the control plane of aggregation jobs; left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultTable>,
}

impl SereneTable {
    /// Fills in the defaults that depend on other keys; `file` is where the table is written.
    pub fn fill(&mut self, file: &Path) {
        if let Ok(address) = self.address.parse::<Ipv4Addr>() {
            let [a, b, c, d] = address.octets();
            self.mac.get_or_insert_with(|| format!("02:5e:{a:02x}:{b:02x}:{c:02x}:{d:02x}"));
        }
        let directory = file.parent().unwrap_or(Path::new(""));
        for path in &mut self.load {
            // So that the printed table can be used from anywhere.
            if let Ok(found) = absolute(directory.join(&path)) {
                *path = found.display().to_string();
            }
        }
    }

    /// Checks the table and loads its job files. `place` says where in the configuration something is wrong; what is wrong in
    /// a job file is told with the place there.
    ///
    /// # Errors
    /// The first thing wrong.
    pub(super) fn compile(&self, place: impl Fn(Wrong) -> ConfigError) -> Result<Aggregation, ConfigError> {
        let key = Key::new("serene");
        let address = self.address.parse::<Ipv4Addr>().ok();
        let address =
            address.filter(|ip| !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_loopback()));
        let address = address.ok_or_else(|| {
            let wrong =
                format!("{:?} is no host's IPv4 address; give a free one of the workers' network", self.address);
            place(key.name("address").wrong(wrong))
        })?;
        let text = self.mac.as_deref().unwrap_or_default();
        let mac = mac(text).filter(|mac| mac[0] & 1 == 0).ok_or_else(|| {
            place(key.name("mac").wrong(format!("{text:?} is no station's MAC; write it as 02:00:00:00:00:01")))
        })?;
        let control_fault = fault(self.fault.as_ref(), &key.name("fault")).map_err(&place)?;
        let mut jobs: Vec<Job> = Vec::new();
        for (index, path) in self.load.iter().enumerate() {
            let key = key.name("load").index(index);
            let job = match JobFile::load(Path::new(path)) {
                Ok(file) => file.job,
                Err(ConfigError::Read { reason, .. }) => {
                    let wrong = format!("cannot read {path}: {reason}; paths are relative to this file");
                    return Err(place(key.wrong(wrong)));
                }
                Err(wrong) => return Err(wrong),
            };
            if jobs.iter().any(|other| other.id == job.id) {
                let wrong = format!("{path} describes job {}, as another one does; give each its own id", job.id);
                return Err(place(key.wrong(wrong)));
            }
            if let Some(member) = job.members.iter().find(|member| *member.ip() == address) {
                let wrong = format!("{path} has the member {member}, which is the switch's own address");
                return Err(place(key.wrong(wrong)));
            }
            jobs.push(job);
        }
        Ok(Aggregation { address, mac, control_fault, jobs })
    }
}
