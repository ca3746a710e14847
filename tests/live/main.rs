//! The live switch between network namespaces, by its front door: `symphony run`. Needs root; says SKIPPED and why
//! otherwise. In a debug build the switch itself checks after every few passes that no frame of the UMEM is lost.

mod failures;
mod frames;
mod job;
mod net;
mod serene;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use frames::{RawSocket, hostile, write_with_wrong_icrc};
use net::{Net, Switch, address, eventually, sh, try_sh};

#[test]
fn arp_nd_ping_and_tcp_work_through_it() {
    let Some(net) = Net::new("plain", 2) else { return };
    let switch = Switch::start(&net, "", "");
    assert!(net.ping(1, "10.9.0.2", 3), "ARP and IPv4");
    assert!(net.ping(1, "fd09::2", 3), "ND and IPv6");

    let (ready, listening) = std::sync::mpsc::channel();
    let server = net.spawn(2, move || {
        let listener = TcpListener::bind((address(2), 9000)).unwrap();
        ready.send(()).unwrap();
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    listening.recv().unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let bytes = sent.clone();
    let client = net.spawn(1, move || TcpStream::connect((address(2), 9000)).unwrap().write_all(&bytes).unwrap());
    client.join().unwrap();
    assert!(server.join().unwrap() == sent, "a megabyte by TCP");

    let last = switch.stop();
    assert!(last["conservation"]["rx"].as_u64().unwrap() > 700, "{last}");
}

#[test]
fn hostile_frames_are_forwarded_or_dropped_by_a_counted_reason() {
    let Some(net) = Net::new("hostile", 3) else { return };
    let switch = Switch::start(&net, "", "[[job]]\nid = 1\nring = [\"10.9.0.1\", \"10.9.0.2\"]\n");
    assert!(net.ping(1, "10.9.0.2", 1));
    let rounds = 20;
    let sender = net.spawn(1, move || {
        let socket = RawSocket::new();
        let mut sent = 0;
        for (name, frame) in std::iter::repeat_n(hostile(), rounds).flatten() {
            assert!(socket.send(&frame), "{name}");
            sent += 1;
        }
        // Longer than the interface's MTU: the kernel does not send it.
        assert!(!socket.send(&[2; 9000]));
        sent
    });
    let sent: u64 = sender.join().unwrap();
    assert!(net.ping(1, "10.9.0.2", 3), "it still forwards");
    let last = switch.stop();
    assert!(last["conservation"]["rx"].as_u64().unwrap() >= sent, "{sent} sent: {last}");
    for reason in ["link_local", "bad_source_mac"] {
        assert_eq!(last["drops"][reason], rounds, "{reason}: {last}");
    }
}

#[test]
fn jobs_come_and_go_while_it_runs() {
    let Some(net) = Net::new("jobs", 2) else { return };
    let switch = Switch::start(&net, "", "");
    assert!(net.ping(1, "10.9.0.2", 1));
    let send = |psns: std::ops::Range<u32>| {
        let sender = net.spawn(1, move || {
            let socket = RawSocket::new();
            psns.for_each(|psn| assert!(socket.send(&write_with_wrong_icrc(psn, true))));
        });
        sender.join().unwrap();
    };
    let flows = || switch.ctl("flows").unwrap()["flows"].as_array().unwrap().clone();
    let add = "job add --id 7 --ring 10.9.0.1,10.9.0.2";

    send(0..5);
    assert!(flows().is_empty(), "of no job");
    switch.ctl(add).unwrap();
    assert!(switch.ctl(add).is_none(), "the id is taken");
    assert!(switch.ctl("job add --id 8 --ring 10.9.0.2,10.9.0.1,10.9.0.9 --path-mtu 4096").is_none(), "does not fit");
    send(5..10);
    let flow = flows().remove(0);
    assert_eq!((&flow["job"], &flow["qpn"], &flow["packets"]), (&7.into(), &0x11.into(), &5.into()), "{flow}");
    assert_eq!((&flow["messages"], &flow["takes_part"]), (&5.into(), &true.into()), "{flow}");
    switch.ctl("job disable 7").unwrap();
    send(10..15);
    assert_eq!(flows()[0]["packets"], 5, "not tracked while it is off");
    switch.ctl("job remove 7").unwrap();
    assert!(flows().is_empty());
    assert!(switch.ctl("job remove 7").is_none());
    switch.ctl(add).unwrap();
    switch.stop();
}

#[test]
fn a_frame_that_is_too_long_for_its_way_out_is_dropped_by_that_reason() {
    let Some(net) = Net::new("long", 2) else { return };
    sh(&format!("ip -n {} link set p2 mtu 1280", net.switch()));
    let switch = Switch::start(&net, "", "");
    assert!(net.ping(1, "10.9.0.2", 1));
    assert!(!net.ping(1, "10.9.0.2 -s 1400", 2));
    assert!(net.ping(1, "10.9.0.2 -s 1000", 2));
    let last = switch.stop();
    assert_eq!(last["drops"]["too_long"], 2, "{last}");
}

#[test]
fn a_port_goes_down_and_up_on_either_end_of_its_veth() {
    let Some(net) = Net::new("updown", 3) else { return };
    let switch = Switch::start(&net, "", "");
    assert!(net.ping(1, "10.9.0.2", 1) && net.ping(1, "10.9.0.3", 1));
    for (namespace, interface) in [(net.switch(), "p2"), (net.host(2), "eth0")] {
        sh(&format!("ip -n {namespace} link set {interface} down"));
        switch.wait_for("down");
        assert!(!net.ping(1, "10.9.0.2", 1));
        assert!(net.ping(1, "10.9.0.3", 2), "the rest goes on");
        sh(&format!("ip -n {namespace} link set {interface} up"));
        assert!(net.reaches(1, 2), "{interface} is up again");
    }
    let last = switch.stop();
    assert!(last["drops"]["port_down"].as_u64().unwrap() > 0, "{last}");
}

#[test]
fn a_peer_namespace_is_deleted_and_comes_back() {
    let Some(net) = Net::new("gone", 3) else { return };
    let switch = Switch::start(&net, "", "");
    // The first port, whose socket would be the UMEM's own.
    assert!(net.ping(2, "10.9.0.1", 1) && net.ping(2, "10.9.0.3", 1));
    sh(&format!("ip netns del {}", net.host(1)));
    switch.wait_for("removed");
    assert!(net.ping(2, "10.9.0.3", 2), "the rest goes on");
    assert!(!net.ping(2, "10.9.0.1", 1));
    net.add_host(1);
    switch.wait_for("attached again");
    assert!(net.reaches(2, 1));
    switch.stop();
}

#[test]
fn sigterm_detaches_and_a_killed_switch_leaves_nothing_behind() {
    let Some(net) = Net::new("signals", 2) else { return };
    let switch = Switch::start(&net, "", "");
    assert!(net.ping(1, "10.9.0.2", 1));
    assert!(net.links().contains("xdp"), "{}", net.links());
    switch.stop();
    assert!(!net.links().contains("xdp"), "{}", net.links());

    Switch::start(&net, "", "").kill();
    let switch = Switch::start(&net, "", ""); // at once
    assert!(net.ping(1, "10.9.0.2", 2));
    switch.kill();
    assert!(eventually(|| !net.links().contains("xdp")), "{}", net.links());
}

/// Two hosts send to a third one, far more than its port of 20 Mbit/s takes: for 3 s, or as many as
/// `SYMPHONY_LIVE_FULL_SECONDS` says.
#[test]
fn full_queues_drop_and_leak_nothing() {
    let Some(net) = Net::new("full", 3) else { return };
    let switch = Switch::start(&net, "rate = \"20Mbit\"\nbuffer = \"200KB\"", "");
    assert!(net.ping(1, "10.9.0.3", 1) && net.ping(2, "10.9.0.3", 1));
    let seconds = std::env::var("SYMPHONY_LIVE_FULL_SECONDS").map_or(3, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let senders = [1, 2].map(|host| {
        net.spawn(host, move || {
            let socket = UdpSocket::bind((address(host), 0)).unwrap();
            while Instant::now() < until {
                for length in [18, 500, 1472] {
                    let _ = socket.send_to(&vec![host as u8; length], (address(3), 9)); // ECONNREFUSED comes back by ICMP
                }
            }
        })
    });
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert!(net.reaches(1, 3), "the queue drains");
    let last = switch.stop();
    assert!(last["drops"]["tail_drop"].as_u64().unwrap() > 1000, "{last}");
    let out = last["ports"][2]["tx_bytes"].as_u64().unwrap() as f64 * 8.0 / seconds as f64;
    assert!((15e6..25e6).contains(&out), "{out} bit/s");
}

/// A port listens on queue 0 alone; what comes in on another one is dropped in the kernel.
#[test]
fn what_the_kernel_side_drops_is_among_the_drops() {
    let Some(net) = Net::new("queues", 2) else { return };
    let (sw, ns) = (net.switch(), net.host(1));
    sh(&format!(
        "ip -n {sw} link del p1
         ip -n {sw} link add p1 numrxqueues 4 numtxqueues 4 type veth peer name eth0 numrxqueues 4 numtxqueues 4 netns {ns}
         ip -n {sw} link set p1 up
         ip -n {ns} link set eth0 up
         ip -n {ns} addr add 10.9.0.1/24 dev eth0
         ip -n {ns} neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0"
    ));
    let switch = Switch::start(&net, "", "");
    let sender = net.spawn(1, || {
        // One flow a socket; the kernel spreads flows over queues.
        for _ in 0..64 {
            UdpSocket::bind((address(1), 0)).unwrap().send_to(b"whichever queue", (address(2), 9)).unwrap();
        }
    });
    sender.join().unwrap();
    let last = switch.stop();
    let lost = last["drops"]["no_socket"].as_u64().unwrap();
    assert!(lost > 8, "{last}");
    assert_eq!(last["kernel"]["drop_no_socket"], lost, "{last}");
    assert!(last["conservation"]["dropped"].as_u64().unwrap() >= lost, "{last}");
}

#[test]
fn what_is_wrong_is_said_with_its_cure() {
    let Some(net) = Net::new("errors", 2) else { return };
    let config = net.file("switch.toml");
    let refused = |interface: &str| {
        let text = format!("[switch]\nname = \"t\"\n[[port]]\nname = \"a\"\ninterface = \"{interface}\"\n");
        std::fs::write(&config, text).unwrap();
        let symphony = env!("CARGO_BIN_EXE_symphony");
        let output = try_sh(&format!("ip netns exec {} {symphony} run --config {config}", net.switch()));
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let missing = refused("nowhere");
    assert!(missing.contains("\"nowhere\"") && missing.contains("p1, p2") | missing.contains("p2, p1"), "{missing}");
    sh(&format!("ip -n {} link set p1 mtu 9000", net.switch()));
    let large = refused("p1");
    assert!(large.contains("9000") && large.contains("ip link set p1 mtu 3500"), "{large}");
}

#[test]
fn without_root_it_says_so() {
    use std::os::unix::{fs::MetadataExt, process::CommandExt};
    let config = std::env::temp_dir().join(format!("symlive-{}-noroot.toml", std::process::id()));
    std::fs::write(&config, "[switch]\nname = \"t\"\n[[port]]\nname = \"a\"\ninterface = \"lo\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.arg("run").arg("--config").arg(&config);
    if std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
        command.uid(65534).gid(65534);
    }
    match command.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("sudo"), "{said}");
        }
        Err(error) => println!("SKIPPED: nobody may not run the binary: {error}"),
    }
    std::fs::remove_file(&config).unwrap();
}
