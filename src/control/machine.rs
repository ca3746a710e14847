//! A look at the machine and at interfaces: can the switch run here, and will it do what is meant?
//!
//! Interfaces are asked for through `ip` and `ethtool`, which speak netlink and so see the caller's network namespace,
//! as `/sys` need not. What they print is judged by pure functions.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::Serialize;
use serde_json::Value;

use crate::backend::afxdp::{MAX_MTU, rights};
use crate::functions::symphony::Job;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// The switch runs, but something may not go as meant.
    Warning,
    /// The switch does not run, or packets are lost.
    Failure,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, such as `kernel` or `sw-h1 mtu`.
    pub check: String,
    /// How bad it is.
    pub status: Severity,
    /// What was found.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(check: impl Into<String>, message: impl Into<String>) -> Self {
        Finding { check: check.into(), status: Severity::Ok, message: message.into(), cure: None }
    }

    /// It may not go as meant.
    pub fn warning(check: impl Into<String>, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Finding { status: Severity::Warning, cure: Some(cure.into()), ..Finding::ok(check, message) }
    }

    /// It does not work.
    pub fn failure(check: impl Into<String>, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Finding { status: Severity::Failure, cure: Some(cure.into()), ..Finding::ok(check, message) }
    }
}

/// What does not depend on a configuration.
pub fn machine() -> Vec<Finding> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    vec![
        capabilities(&rights::missing()),
        kernel(read("/proc/sys/kernel/osrelease").trim()),
        af_xdp(&read("/proc/net/protocols")),
        jit(read("/proc/sys/net/core/bpf_jit_enable").trim()),
        match fs::metadata("/sys/kernel/btf/vmlinux") {
            Ok(_) => Finding::ok("btf", "the kernel describes its types"),
            Err(_) => Finding::warning(
                "btf",
                "/sys/kernel/btf/vmlinux is missing; bpftool will not show what maps hold",
                "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's and Ubuntu's are",
            ),
        },
    ]
}

fn capabilities(missing: &[&str]) -> Finding {
    match missing {
        [] => Finding::ok("capabilities", "those for XDP programs and AF_XDP sockets are there"),
        _ => Finding::failure(
            "capabilities",
            format!("{} not there: XDP programs and AF_XDP sockets are refused", missing.join(", ")),
            "run it as root, or in a container with these capabilities added",
        ),
    }
}

fn kernel(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (5, 12) {
        let message = format!("{release} has no BPF compare-and-swap (5.12), which the kernel side needs");
        return Finding::failure("kernel", message, "use Linux 5.18 or later");
    }
    if version < (5, 18) {
        let message =
            format!("{release} has no BPF_PROG_TEST_RUN with live frames (5.18): benches and some tests need it");
        return Finding::warning("kernel", message, "use Linux 5.18 or later");
    }
    Finding::ok("kernel", release)
}

fn af_xdp(protocols: &str) -> Finding {
    match protocols.lines().any(|line| line.starts_with("XDP ")) {
        true => Finding::ok("af_xdp", "the kernel has AF_XDP sockets"),
        false => Finding::failure(
            "af_xdp",
            "the kernel has no AF_XDP sockets",
            "use a kernel with CONFIG_XDP_SOCKETS=y, as Debian's and Ubuntu's are",
        ),
    }
}

fn jit(enabled: &str) -> Finding {
    match enabled {
        "0" => Finding::warning(
            "bpf jit",
            "BPF programs are interpreted, several times slower",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        _ => Finding::ok("bpf jit", "BPF programs are compiled"),
    }
}

/// What concerns the interfaces of a configuration. `jobs` tell how large packets get.
pub fn interfaces(names: &[String], jobs: &[Job]) -> Vec<Finding> {
    let missing = |tool: &str, package: &str| {
        let cure = format!("apt-get install {package}");
        Finding::failure("tools", format!("{tool} is missing, interfaces were not looked at"), cure)
    };
    let Some(links) = output("ip", &["-json", "-details", "link", "show"]) else {
        return vec![missing("ip", "iproute2")];
    };
    let links: Value = serde_json::from_str(&links).unwrap_or_default();
    let links = links.as_array().map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for name in names {
        let Some(link) = links.iter().find(|link| link["ifname"] == name.as_str()) else {
            let known: Vec<_> = links.iter().filter_map(|link| link["ifname"].as_str()).collect();
            let message = format!("there is no such interface here; there are: {}", known.join(", "));
            let cure = "correct [[port]] interface, or run in its network namespace (ip netns exec NAMESPACE ..)";
            findings.push(Finding::failure(name, message, cure));
            continue;
        };
        findings.extend(judge_link(name, link, jobs));
        let queues = output("ethtool", &["-l", name]).unwrap_or_default();
        let queues = channels(&queues);
        match output("ethtool", &["-k", name]) {
            Some(features) => {
                findings.extend(queues.as_ref().map(|queues| judge_queues(name, queues)));
                findings.extend(judge_features(name, kind(link), &features));
            }
            None => findings.push(missing("ethtool", "ethtool")),
        }
        findings.extend(judge_peer(name, link, links, &queues.unwrap_or_default()));
    }
    findings
}

/// What a command prints; `None` where it is missing or fails.
fn output(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn kind(link: &Value) -> &str {
    link["linkinfo"]["info_kind"].as_str().unwrap_or("physical")
}

/// Up, MTU, foreign programs, promiscuous.
fn judge_link(name: &str, link: &Value, jobs: &[Job]) -> Vec<Finding> {
    let flag = |flag: &str| link["flags"].as_array().is_some_and(|flags| flags.iter().any(|found| found == flag));
    let kind = kind(link);
    let mut findings = vec![match (flag("UP"), flag("LOWER_UP")) {
        (false, _) => Finding::warning(name, format!("{kind}, down"), format!("ip link set {name} up")),
        (true, false) => Finding::warning(name, format!("{kind}, up without carrier"), "set the other end up"),
        (true, true) => Finding::ok(name, format!("{kind}, up")),
    }];

    let mtu = link["mtu"].as_u64().unwrap_or(0);
    let needed = jobs.iter().map(|job| (packet_bytes(job), job)).max_by_key(|(bytes, _)| *bytes);
    let check = format!("{name} mtu");
    findings.push(match needed {
        _ if mtu > MAX_MTU.into() => Finding::failure(
            check,
            format!("{mtu}: frames would not fit an AF_XDP frame, nor XDP's one page"),
            format!("ip link set {name} mtu {MAX_MTU}, and the same at its other end"),
        ),
        Some((bytes, job)) if bytes > mtu => Finding::failure(
            check,
            format!("{mtu}: packets of job {} with path MTU {} have {bytes} bytes", job.id, job.path_mtu),
            format!("ip link set {name} mtu {bytes} or more (at most {MAX_MTU}), and the same at its other end"),
        ),
        _ => Finding::ok(check, mtu.to_string()),
    });

    let check = format!("{name} xdp");
    findings.push(match &link["xdp"]["prog"]["id"] {
        Value::Null => Finding::ok(check, "no program is attached"),
        id => Finding::failure(
            check,
            format!("program {id} is attached already: a running switch, or another tool"),
            format!("stop it; where nobody owns it: ip link set {name} xdp off"),
        ),
    });

    if kind != "veth" && link["promiscuity"] == 0 {
        findings.push(Finding::warning(
            format!("{name} promiscuous"),
            "the NIC drops frames for other stations before the switch sees them",
            format!("ip link set {name} promisc on"),
        ));
    }
    findings
}

/// IP bytes of a job's largest packets: headers, payload, ICRC; the largest headers are those of WRITE_ONLY_WITH_IMM.
fn packet_bytes(job: &Job) -> u64 {
    const UDP_BTH_RETH_IMM_ICRC: u64 = 8 + 12 + 16 + 4 + 4;
    let ip = if job.ring.first().is_some_and(|address| address.is_ipv6()) { 40 } else { 20 };
    ip + UDP_BTH_RETH_IMM_ICRC + u64::from(job.path_mtu)
}

/// The current settings of `ethtool -l`; `None` where it has none.
fn channels(text: &str) -> Option<BTreeMap<&str, u32>> {
    let current = text.split("Current hardware settings").nth(1)?;
    let number = |line: &'_ str| -> Option<(usize, u32)> {
        let colon = line.find(':')?;
        Some((colon, line[colon + 1..].trim().parse().ok()?))
    };
    Some(current.lines().filter_map(|line| number(line).map(|(colon, count)| (&line[..colon], count))).collect())
}

/// A port's socket is on queue 0.
fn judge_queues(name: &str, channels: &BTreeMap<&str, u32>) -> Finding {
    let queues: u32 = ["RX", "Combined"].iter().filter_map(|kind| channels.get(kind)).sum();
    let check = format!("{name} queues");
    match queues {
        0 | 1 => Finding::ok(check, "1"),
        _ => Finding::failure(
            check,
            format!("{queues} receive queues, but a port listens on one: packets on the others are dropped"),
            format!("ethtool -L {name} combined 1 (or rx 1 tx 1)"),
        ),
    }
}

fn judge_features(name: &str, kind: &str, text: &str) -> Vec<Finding> {
    let features = features(text);
    let on = |feature: &str| features.get(feature) == Some(&true);
    let mut findings = Vec::new();
    if on("large-receive-offload") {
        findings.push(Finding::failure(
            format!("{name} lro"),
            "large receive offload merges packets; XDP does not work with it",
            format!("ethtool -K {name} lro off"),
        ));
    }
    if on("rx-vlan-offload") && kind != "veth" {
        findings.push(Finding::warning(
            format!("{name} vlan"),
            "VLAN tags are taken out of the packets before the switch sees them; tagged traffic loses its tag",
            format!("ethtool -K {name} rxvlan off"),
        ));
    }
    findings
}

/// The other end of a veth, where it is in this namespace. `queues` are the port's.
fn judge_peer(name: &str, link: &Value, links: &[Value], queues: &BTreeMap<&str, u32>) -> Option<Finding> {
    if kind(link) != "veth" {
        return None;
    }
    let check = format!("{name} peer");
    let Some(end) = links.iter().find(|other| other["ifname"] == link["link"]) else {
        let message = "in another namespace, not looked at; it should have: ethtool -K PEER tx off txvlan off gro on";
        return Some(Finding::ok(check, message));
    };
    let peer = end["ifname"].as_str()?;
    let sending = output("ethtool", &["-l", peer]).unwrap_or_default();
    if let Some(finding) = judge_fit(name, end, queues, &channels(&sending).unwrap_or_default()) {
        return Some(finding);
    }
    let text = output("ethtool", &["-k", peer])?;
    let features = features(&text);
    let is = |feature: &str, on: bool| features.get(feature) == Some(&on);
    let cure = format!("ethtool -K {peer} tx off txvlan off gro on");
    Some(if is("tx-checksumming", true) {
        let message = format!("{peer} leaves checksums to hardware, of which there is none: TCP and UDP will fail");
        Finding::warning(check, message, cure)
    } else if is("tx-vlan-offload", true) {
        Finding::warning(check, format!("{peer} sends VLAN tags beside the packets, where they get lost"), cure)
    } else if is("generic-receive-offload", false) {
        Finding::warning(check, format!("{peer} does not run NAPI, with which it is faster"), cure)
    } else {
        Finding::ok(check, format!("{peer}: checksums and tags in software, NAPI"))
    })
}

/// What of a veth's other end keeps XDP programs from its port; `queues` are the port's, `sending` the other end's.
fn judge_fit(name: &str, end: &Value, queues: &BTreeMap<&str, u32>, sending: &BTreeMap<&str, u32>) -> Option<Finding> {
    let (check, peer) = (format!("{name} peer"), end["ifname"].as_str()?);
    if end["mtu"].as_u64().is_some_and(|mtu| mtu > MAX_MTU.into()) {
        let message = format!("{peer} has an MTU above {MAX_MTU}, so {name} takes no XDP program");
        return Some(Finding::failure(check, message, format!("ip link set {peer} mtu {MAX_MTU}")));
    }
    let (sending, receiving) = (sending.get("TX")?, queues.get("RX")?);
    (sending > receiving).then(|| {
        let message =
            format!("{peer} has {sending} transmit queues, {name} {receiving} receive queues: it takes no XDP program");
        Finding::failure(check, message, format!("ethtool -L {peer} tx {receiving}"))
    })
}

/// `ethtool -k`: feature and whether it is on.
fn features(text: &str) -> BTreeMap<&str, bool> {
    let feature = |line: &'_ str| -> Option<(usize, bool)> {
        let colon = line.find(':')?;
        Some((colon, line[colon + 1..].trim_start().starts_with("on")))
    };
    text.lines().filter_map(|line| feature(line).map(|(colon, on)| (line[..colon].trim(), on))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::json;

    use super::*;
    use crate::functions::symphony::StepSource;

    fn job(path_mtu: u32) -> Job {
        Job {
            id: 3,
            name: "j".into(),
            ring: vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])],
            step_source: StepSource::Message,
            requests_per_step: 1,
            packets_per_step: None,
            path_mtu,
            steps_per_collective: 2,
            step_ns: None,
            idle_ns: 1,
            enabled: true,
        }
    }

    fn status(findings: &[Finding], check: &str) -> Severity {
        findings.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("{check}")).status
    }

    #[test]
    fn capabilities_that_are_missing_are_named() {
        assert_eq!(capabilities(&[]).status, Severity::Ok);
        let finding = capabilities(&["CAP_NET_RAW", "CAP_IPC_LOCK"]);
        assert_eq!(finding.status, Severity::Failure);
        assert!(finding.message.starts_with("CAP_NET_RAW, CAP_IPC_LOCK not there"), "{}", finding.message);
    }

    #[test]
    fn old_kernels_are_told_apart() {
        assert_eq!(kernel("6.18.44-custom").status, Severity::Ok);
        assert_eq!(kernel("5.15.0-91-generic").status, Severity::Warning);
        assert_eq!(kernel("5.4.0").status, Severity::Failure);
        assert_eq!(kernel("").status, Severity::Failure);
    }

    #[test]
    fn a_sound_veth_is_ok_and_a_small_mtu_or_a_foreign_program_is_not() {
        let mut link = json!({
            "ifname": "sw-h1", "flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 2112, "promiscuity": 0,
            "linkinfo": { "info_kind": "veth" },
        });
        assert!(judge_link("sw-h1", &link, &[job(2048)]).iter().all(|finding| finding.status == Severity::Ok));
        link["mtu"] = json!(2111);
        link["xdp"] = json!({ "mode": 1, "prog": { "id": 7 } });
        link["flags"] = json!(["UP"]);
        let findings = judge_link("sw-h1", &link, &[job(1024), job(2048)]);
        assert_eq!(status(&findings, "sw-h1"), Severity::Warning);
        assert_eq!(status(&findings, "sw-h1 mtu"), Severity::Failure);
        assert_eq!(status(&findings, "sw-h1 xdp"), Severity::Failure);
        link["mtu"] = json!(9000);
        assert_eq!(status(&judge_link("sw-h1", &link, &[]), "sw-h1 mtu"), Severity::Failure);
    }

    #[test]
    fn queues_are_counted_from_the_current_settings() {
        let text = "Channel parameters for x:\nPre-set maximums:\nRX:\t\t2\nTX:\t\t2\nOther:\t\tn/a\nCombined:\tn/a\n\
                    Current hardware settings:\nRX:\t\t1\nTX:\t\t1\nOther:\t\tn/a\nCombined:\tn/a\n";
        let judge = |text: &str| channels(text).map(|channels| judge_queues("x", &channels).status);
        assert_eq!(judge(text), Some(Severity::Ok));
        assert_eq!(judge(&text.replace("Combined:\tn/a\n", "Combined:\t8\n")), Some(Severity::Failure));
        assert_eq!(judge(""), None, "no such settings: nothing to say");
        assert_eq!(channels(text), Some([("RX", 1), ("TX", 1)].into()));
    }

    #[test]
    fn a_peer_may_not_have_more_queues_or_a_larger_mtu_than_xdp_takes() {
        let queues = |count| [("RX", count), ("TX", count)].into();
        let judge = |mtu: u32, receiving, sending| {
            judge_fit("p", &json!({ "ifname": "q", "mtu": mtu }), &queues(receiving), &queues(sending))
        };
        assert_eq!(judge(MAX_MTU, 1, 1), None);
        assert_eq!(judge(1500, 4, 2), None);
        let cure = |finding: Option<Finding>| finding.and_then(|finding| finding.cure);
        assert_eq!(cure(judge(1500, 1, 4)).as_deref(), Some("ethtool -L q tx 1"));
        assert_eq!(cure(judge(MAX_MTU + 1, 1, 1)).as_deref(), Some("ip link set q mtu 3500"));
    }

    #[test]
    fn a_peer_elsewhere_is_said_not_to_be_visible() {
        let link = json!({ "ifname": "a", "link_index": 2, "link_netnsid": 0, "linkinfo": { "info_kind": "veth" } });
        let finding = judge_peer("a", &link, std::slice::from_ref(&link), &BTreeMap::new()).unwrap();
        assert!(finding.message.contains("another namespace"), "{}", finding.message);
    }
}
