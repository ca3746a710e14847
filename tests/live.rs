//! The live switch between network namespaces. Needs root; says SKIPPED and why otherwise.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use symphony::backend::afxdp::{RunSpec, Runner};
use symphony::dataplane::{PortConfig, SwitchConfig};
use symphony::functions::forward::ForwardConfig;
use symphony::functions::symphony::Parameters;

fn sh(command: &str) {
    let output = Command::new("sh").arg("-ec").arg(command).output().unwrap();
    assert!(
        output.status.success(),
        "{command}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn ping() {
    sh(
        "for h in 1 2; do ip netns del afx-h$h 2>/dev/null || true; ip netns add afx-h$h; ip link add afx-s$h type veth peer name eth0 netns afx-h$h; ip link set afx-s$h up; ip netns exec afx-h$h ip addr add 10.9.0.$h/24 dev eth0;  ip netns exec afx-h$h ip link set eth0 up; ip netns exec afx-h$h ethtool -K eth0 tx off >/dev/null; done",
    );
    let port = |n: &str| PortConfig { name: n.into(), rate_bps: None, buffer_bytes: 1_000_000, red: None };
    let spec = RunSpec {
        name: "t".into(),
        switch: SwitchConfig { buffer_bytes: 32 << 20, seed: 1, ports: vec![port("p1"), port("p2")] },
        interfaces: vec!["afx-s1".into(), "afx-s2".into()],
        forwarding: ForwardConfig::Learning,
        parameters: Parameters::default(),
        jobs: vec![],
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let t = thread::spawn(move || {
        let (_s, r) = crossbeam::channel::bounded(1);
        let mut runner = Runner::new(spec).map_err(|e| e.to_string()).unwrap();
        println!("running");
        runner.run(&flag, r).map_err(|e| e.to_string()).unwrap()
    });
    thread::sleep(std::time::Duration::from_millis(500));
    sh("ip netns exec afx-h1 ping -c 5 -i 0.2 10.9.0.2");
    sh("top -b -n 1 -H | head -12 | tail -6");
    stop.store(true, Ordering::Relaxed);
    println!("{:?}", t.join().unwrap().conservation);
    sh("ip netns del afx-h1; ip netns del afx-h2");
}
