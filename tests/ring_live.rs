//! `symphony ring` with real packets between network namespaces on a Linux bridge. Needs root; without it these tests say
//! that they were skipped.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

const SYMPHONY: &str = env!("CARGO_BIN_EXE_symphony");

/// Namespaces `NAME-h1` .. with addresses 10.0.0.1 .. and fd00::1 .. on a bridge in `NAME-sw`. Gone when dropped.
struct Net {
    name: &'static str,
    hosts: usize,
}

fn ip(arguments: &str) -> bool {
    let status = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Net {
    fn new(name: &'static str, hosts: usize) -> Option<Self> {
        let net = Net { name, hosts };
        net.remove();
        if !ip(&format!("netns add {name}-sw")) {
            eprintln!("skipped: cannot make network namespaces (needs root and iproute2)");
            return None;
        }
        let must = |arguments: String| assert!(ip(&arguments), "ip {arguments}");
        must(format!("-n {name}-sw link add br0 type bridge"));
        must(format!("-n {name}-sw link set br0 mtu 4200 up"));
        for i in 1..=hosts {
            must(format!("netns add {name}-h{i}"));
            must(format!("-n {name}-sw link add p{i} mtu 4200 type veth peer name eth0 mtu 4200 netns {name}-h{i}"));
            must(format!("-n {name}-sw link set p{i} master br0 up"));
            must(format!("-n {name}-h{i} addr add 10.0.0.{i}/24 dev eth0"));
            must(format!("-n {name}-h{i} addr add fd00::{i}/64 dev eth0 nodad"));
            must(format!("-n {name}-h{i} link set eth0 up"));
        }
        Some(net)
    }

    fn remove(&self) {
        for i in 1..=self.hosts {
            ip(&format!("netns del {}-h{i}", self.name));
        }
        ip(&format!("netns del {}-sw", self.name));
    }

    fn namespaces(&self) -> String {
        (1..=self.hosts).map(|i| format!("{}-h{i}", self.name)).collect::<Vec<_>>().join(",")
    }

    fn ring(&self, prefix: &str) -> String {
        (1..=self.hosts).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.remove();
    }
}

fn start(arguments: &str) -> Child {
    let command = format!("ring --json {arguments}");
    let mut symphony = Command::new(SYMPHONY);
    symphony.args(command.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    symphony.spawn().expect("the binary starts")
}

/// Exit status, the object on stdout, and stderr.
fn finish(child: Child) -> (Option<i32>, Value, String) {
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one object on stdout; {stderr}"));
    (output.status.code(), value, stderr)
}

#[test]
fn four_ranks_between_namespaces_reduce_to_the_right_values() {
    let Some(net) = Net::new("ringl", 4) else { return };
    for (prefix, more) in [
        ("10.0.0.", "--line-rate 50Mbit"),
        ("fd00::", "--line-rate 50Mbit --first-psn 0xfffff0 --path-mtu 4096"),
        ("10.0.0.", "--collective all-gather --channels 2 --iterations 2 --step-tag --cc none"),
        ("10.0.0.", "--collective reduce-scatter --requests-per-step 1 --cc hpcc300 --imm-id --path-mtu 256"),
        ("10.0.0.", "--collective stream --steps 5"),
    ] {
        let (ring, namespaces) = (net.ring(prefix), net.namespaces());
        let run = start(&format!("--ring {ring} --all --netns {namespaces} --bytes 256KiB {more}"));
        let (status, result, stderr) = finish(run);
        assert_eq!(status, Some(0), "{more}: {result} {stderr}");
        assert_eq!(result["verified"], true, "{more}");
        for rank in result["results"].as_array().expect("one for each rank") {
            assert_eq!(rank["malformed"], serde_json::json!({}), "ICRC and headers hold on the wire: {more}");
            assert_eq!(rank["refused"], 0);
        }
    }
}

#[test]
fn ranks_started_one_by_one_wait_for_each_other() {
    let Some(net) = Net::new("ringo", 2) else { return };
    let ring = net.ring("10.0.0.");
    let first = start(&format!("--ring {ring} --rank 0 --netns ringo-h1,ringo-h2 --bytes 64KiB"));
    std::thread::sleep(std::time::Duration::from_millis(700));
    let second = start(&format!("--ring {ring} --rank 1 --netns ringo-h1,ringo-h2 --bytes 64KiB"));
    for (status, result, stderr) in [finish(first), finish(second)] {
        assert_eq!(status, Some(0), "{result} {stderr}");
    }
}

#[test]
fn a_neighbour_that_never_answers_is_named() {
    let Some(net) = Net::new("rings", 2) else { return };
    let ring = net.ring("10.0.0.");
    let before = Instant::now();
    let (status, result, _) =
        finish(start(&format!("--ring {ring} --rank 0 --netns rings-h1 --connect-timeout 500ms")));
    assert_eq!(status, Some(1));
    let error = result["results"][0]["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("10.0.0.2 never answered"), "{result}");
    assert!(before.elapsed().as_secs() < 5);
}

#[test]
fn what_keeps_it_from_running_is_said_with_the_cure() {
    let (status, result, stderr) = finish(start("--ring 10.0.0.1,10.0.0.2 --all --netns no-such-namespace"));
    assert_eq!(status, Some(2));
    assert!(result["error"].as_str().is_some_and(|e| e.contains("no-such-namespace")), "{result}");
    assert!(stderr.contains("ip netns list"), "{stderr}");
    let (status, _, stderr) = finish(start("--ring 192.0.2.1,192.0.2.2 --rank 0"));
    assert_eq!(status, Some(2));
    assert!(stderr.contains("192.0.2.1") || stderr.contains("CAP_NET_RAW"), "{stderr}");
    let (status, ..) = finish(start("--ring 10.0.0.1 --all"));
    assert_eq!(status, Some(2));

    let Some(net) = Net::new("ringm", 2) else { return };
    assert!(ip("-n ringm-h1 link set eth0 mtu 1500"));
    let (ring, namespaces) = (net.ring("10.0.0."), net.namespaces());
    let (status, result, _) = finish(start(&format!("--ring {ring} --all --netns {namespaces} --path-mtu 2048")));
    assert_eq!(status, Some(2));
    assert!(result["error"].as_str().is_some_and(|e| e.contains("mtu 2112")), "{result}");
}
