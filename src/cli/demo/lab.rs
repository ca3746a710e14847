//! The demo's network: servers around a switch, in namespaces that are gone when the demo ends.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::backend::afxdp::RunSpec;
use crate::dataplane::SwitchConfig;
use crate::functions::forward::ForwardConfig;
use crate::functions::symphony::{Job, Parameters};

/// The same script that people run by hand.
const SCRIPT: &str = include_str!("../../../netns-scripts/up.sh");
/// Always the same, so that the next demo removes what a killed one left.
const PREFIX: &str = "symphony-demo";

/// Namespaces of the servers and of the switch. Dropping it removes them.
pub struct Lab {
    servers: u8,
}

impl Lab {
    /// Makes them, with an address for every job in every server.
    ///
    /// # Errors
    /// What the script says: not root, or a missing tool.
    pub fn new(servers: u8, jobs: u8) -> Result<Self> {
        script(&["--jobs", &jobs.to_string(), &servers.to_string()])?;
        Ok(Lab { servers })
    }

    /// Name of the switch's namespace.
    pub fn switch_netns(&self) -> String {
        format!("{PREFIX}-sw")
    }

    /// Name of a server's namespace; servers count from 1.
    pub fn server_netns(&self, server: u8) -> String {
        format!("{PREFIX}-h{server}")
    }

    /// A learning switch on all ports.
    pub fn switch_spec(&self, switch: SwitchConfig, parameters: Parameters, jobs: Vec<Job>) -> RunSpec {
        RunSpec {
            name: "demo".into(),
            switch,
            interfaces: (1..=self.servers).map(|server| format!("sw-h{server}")).collect(),
            forwarding: ForwardConfig::Learning,
            parameters,
            jobs,
            aggregation: None,
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = script(&["--down"]) {
            tracing::warn!("namespaces of the demo are left behind: {error:#}");
        }
    }
}

fn script(arguments: &[&str]) -> Result<()> {
    let mut bash = Command::new("bash")
        .args(["-s", "--", "--prefix", PREFIX])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run bash")?;
    // Dropped at once, so that bash sees the end of the script.
    bash.stdin.take().context("bash has no standard input")?.write_all(SCRIPT.as_bytes())?;
    let output = bash.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("cannot make namespaces: {}", said.trim().trim_start_matches("up.sh: "));
    }
    Ok(())
}
