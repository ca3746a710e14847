//! A switch and its hosts, each in a network namespace of its own; all gone when dropped.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use symphony::backend::host::netns;
use symphony::control::protocol::{self, Command as Request};
use tempfile::TempDir;

/// Namespaces: one for the switch with interfaces `p1`, `p2`, .., one for each host with `eth0`.
pub struct Net {
    prefix: String,
    hosts: usize,
    files: TempDir,
}

impl Net {
    /// `None`, and the reason on stdout, where this machine does not let us.
    pub fn new(name: &str, hosts: usize) -> Option<Net> {
        let prefix = format!("symlive-{}-{name}", std::process::id());
        let net = Net { prefix, hosts, files: TempDir::new().unwrap() };
        if !try_sh(&format!("ip netns add {}", net.switch())).status.success() {
            println!("SKIPPED: no right to make network namespaces; run as root");
            return None;
        }
        for host in 1..=hosts {
            net.add_host(host);
        }
        Some(net)
    }

    /// Makes a host (again).
    pub fn add_host(&self, host: usize) {
        let (sw, ns) = (self.switch(), self.host(host));
        sh(&format!(
            "ip netns add {ns}
             ip -n {sw} link add p{host} type veth peer name eth0 netns {ns}
             ip -n {sw} link set p{host} up
             ip -n {ns} link set lo up
             ip -n {ns} link set eth0 address 02:00:00:00:00:{host:02x} up
             ip -n {ns} addr add 10.9.0.{host}/24 dev eth0
             ip -n {ns} addr add fd09::{host}/64 dev eth0 nodad
             ip netns exec {ns} ethtool -K eth0 tx off"
        ));
    }

    /// The switch's namespace.
    pub fn switch(&self) -> String {
        format!("{}-sw", self.prefix)
    }

    /// Where a file may be that goes when this does.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.files.path().display())
    }

    /// A host's namespace.
    pub fn host(&self, host: usize) -> String {
        format!("{}-h{host}", self.prefix)
    }

    /// Runs `work` on a thread inside of a host.
    pub fn spawn<T: Send + 'static>(
        &self,
        host: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let name = self.host(host);
        thread::spawn(move || {
            netns::enter(&name).unwrap();
            work()
        })
    }

    /// Whether each of `count` pings from one host to an address is answered.
    pub fn ping(&self, from: usize, to: &str, count: u32) -> bool {
        let ns = self.host(from);
        try_sh(&format!("ip netns exec {ns} ping -q -c {count} -i 0.05 -W 1 {to}")).status.success()
    }

    /// Whether one host reaches the other within some seconds.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        eventually(|| self.ping(from, &address(to).to_string(), 1))
    }

    /// What the kernel says about the switch's interfaces.
    pub fn links(&self) -> String {
        let output = try_sh(&format!("ip -n {} -d link show", self.switch()));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in 1..=self.hosts {
            try_sh(&format!("ip netns del {}", self.host(host)));
        }
        try_sh(&format!("ip netns del {}", self.switch()));
    }
}

/// A host's IPv4 address.
pub fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 9, 0, host as u8])
}

/// `symphony run` in the switch's namespace.
pub struct Switch {
    child: Child,
    log: Receiver<String>,
    socket: String,
}

impl Switch {
    /// Starts it with a port for each host, and waits until it forwards. `each_port` and `more` are TOML.
    pub fn start(net: &Net, each_port: &str, more: &str) -> Switch {
        let switch = Switch::launch(net, each_port, more);
        switch.wait_for("forwarding");
        switch
    }

    fn launch(net: &Net, each_port: &str, more: &str) -> Switch {
        let (config, socket) = (net.file("switch.toml"), net.file("switch.sock"));
        let mut text = format!("[switch]\nname = \"t\"\ncontrol = \"{socket}\"\n");
        for host in 1..=net.hosts {
            text += &format!("[[port]]\nname = \"p{host}\"\ninterface = \"p{host}\"\n{each_port}\n");
        }
        std::fs::write(&config, text + more).unwrap();
        let mut child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &net.switch(),
                env!("CARGO_BIN_EXE_symphony"),
                "run",
                "--json",
                "--config",
                &config,
            ])
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Switch { child, log, socket }
    }

    /// Waits until it says something.
    pub fn wait_for(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(10);
        let mut said = Vec::new();
        loop {
            match self.log.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(words) => return,
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("it did not say {words:?} but\n{}", said.join("\n")),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended with\n{}", said.join("\n")),
            }
        }
    }

    /// `symphony ctl` on it; what it prints, or `None` when it fails.
    pub fn ctl(&self, what: &str) -> Option<Value> {
        let output = try_sh(&format!("{} ctl --json --socket {} {what}", env!("CARGO_BIN_EXE_symphony"), self.socket));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Asks by its socket without a process in between; `Err` is what it says against it.
    pub fn ask(&self, request: Request) -> Result<Map<String, Value>, String> {
        protocol::ask(self.socket.as_ref(), request).map_err(|error| error.to_string())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        sh(&format!("kill -{signal} {}", self.child.id()));
    }

    /// Ends it by SIGTERM; its last snapshot, in which every packet is accounted for.
    pub fn stop(self) -> Value {
        self.signal("TERM");
        let log = self.log;
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?}\n{}", output.status, log.iter().collect::<Vec<_>>().join("\n"));
        let snapshot: Value = serde_json::from_slice(&output.stdout).unwrap();
        let n = |name: &str| snapshot["conservation"][name].as_u64().unwrap();
        assert_eq!(
            n("rx") + n("emitted") + n("replicas"),
            n("tx") + n("consumed") + n("dropped") + n("queued"),
            "{snapshot}"
        );
        // What the kernel side redirected was received, lost at a socket by a counted reason, or is still there.
        let ports = || snapshot["ports"].as_array().unwrap().iter();
        let at_sockets: u64 = ["/xdp/rx_dropped", "/xdp/rx_ring_full", "/frames/rx"]
            .iter()
            .flat_map(|name| ports().map(|port| port.pointer(name).and_then(Value::as_u64).unwrap_or(0)))
            .sum();
        // What the control plane puts in comes by no port that is shown.
        let received: u64 = ports().map(|port| port["rx_packets"].as_u64().unwrap()).sum();
        assert_eq!(snapshot["kernel"]["redirected"].as_u64().unwrap(), received + at_sockets, "{snapshot}");
        snapshot
    }

    /// Ends it by SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Tries for some seconds.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(6);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a shell script that must succeed.
pub fn sh(script: &str) {
    let output = try_sh(script);
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a shell script.
pub fn try_sh(script: &str) -> Output {
    Command::new("sh").arg("-ec").arg(script).output().unwrap()
}
