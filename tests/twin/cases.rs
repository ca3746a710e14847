//! The table of cases: what one frame, after those before it, must give on both sides.

use std::net::IpAddr;

use symphony::dataplane::{Bridged, Step};
use symphony::functions::symphony::Job;

use super::frames::Packet;
use super::twins::{Twins, job};

/// What is expected of the last frame.
#[derive(Clone, Copy)]
enum Expect {
    /// No RoCEv2 packet.
    NotRoce,
    /// RoCEv2, but of no flow that is tracked.
    Untracked,
    /// Of a flow, but it takes no part in the job's minimum; the flow leaves it, or not.
    NoStep { leaves: bool },
    /// Steps, progress, lead; whether it is the last of its collective.
    Data(u32, u32, i32, bool),
}
use Expect::{Data, NoStep, NotRoce, Untracked};

/// A packet of the ring's first edge, by opcode and PSN.
fn packet(opcode: u8, psn: u32) -> Packet {
    Packet { opcode, psn, ..Packet::default() }
}

fn cases() -> Vec<(&'static str, Vec<Packet>, Expect)> {
    let first = Packet::default;
    let v6 = |last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
    let first_v6 = || Packet { src: v6(1), dst: v6(2), ..first() };
    let zeroes = || Packet { src: IpAddr::from([0; 16]), dst: IpAddr::from([0; 16]), ..first() };
    let qp = |dest_qpn, packet| Packet { dest_qpn, ..packet };
    vec![
        // The parser.
        ("data of a ring", vec![first()], Data(0, 0, 0, false)),
        ("the same in IPv6", vec![first_v6()], Data(0, 0, 0, false)),
        ("one tag", vec![Packet { tags: vec![0x8100], ..first() }], Data(0, 0, 0, false)),
        ("two tags", vec![Packet { tags: vec![0x88a8, 0x8100], ..first() }], Data(0, 0, 0, false)),
        ("three tags", vec![Packet { tags: vec![0x88a8, 0x8100, 0x8100], ..first() }], NotRoce),
        ("Ethernet padding", vec![Packet { padding: 46, ..first() }], Data(0, 0, 0, false)),
        ("ARP", vec![Packet { ethertype: Some(0x0806), ..first() }], NotRoce),
        ("RoCEv1", vec![Packet { ethertype: Some(0x8915), ..first_v6() }], NotRoce),
        ("TCP", vec![Packet { protocol: 6, ..first() }], NotRoce),
        ("another port", vec![Packet { dport: 4792, ..first() }], NotRoce),
        ("IPv4 options", vec![Packet { header_words: 6, ..first() }], NotRoce),
        ("a short IPv4 header", vec![Packet { header_words: 4, ..first() }], NotRoce),
        ("IPv4 called IPv6", vec![Packet { ethertype: Some(0x86dd), ..first() }], NotRoce),
        ("the first fragment", vec![Packet { fragment: 0x2000, ..first() }], NotRoce),
        ("the last fragment", vec![Packet { fragment: 0x0003, ..first() }], NotRoce),
        ("an IPv6 fragment", vec![Packet { protocol: 44, ..first_v6() }], NotRoce),
        ("IPv4 longer than the frame", vec![Packet { ip_len: Some(1400), ..first() }], NotRoce),
        ("IPv4 shorter than its header", vec![Packet { ip_len: Some(19), ..first() }], NotRoce),
        ("IPv4 too short for UDP's length", vec![Packet { ip_len: Some(63), ..first() }], NotRoce),
        ("IPv6 longer than the frame", vec![Packet { ip_len: Some(1400), ..first_v6() }], NotRoce),
        ("IPv6 too short for UDP's length", vec![Packet { ip_len: Some(50), ..first_v6() }], NotRoce),
        ("UDP longer than IP", vec![Packet { udp_len: Some(1400), ..first() }], NotRoce),
        ("UDP without a whole BTH", vec![Packet { udp_len: Some(19), ..first() }], NotRoce),
        ("UDP without a whole RETH", vec![Packet { udp_len: Some(35), ..first() }], NotRoce),
        ("UDP with just a whole RETH", vec![Packet { udp_len: Some(36), ..first() }], Data(0, 0, 0, false)),
        ("UDP without a whole immediate", vec![Packet { udp_len: Some(23), ..packet(0x09, 0) }], NotRoce),
        // Tables.
        ("an ACK", vec![first(), packet(0x11, 1)], Untracked),
        ("a CNP", vec![first(), packet(0x81, 1)], Untracked),
        ("an UD packet", vec![first(), packet(0x64, 1)], Untracked),
        ("an opcode without a name", vec![first(), packet(0xff, 1)], Untracked),
        ("no edge", vec![Packet { dst: IpAddr::from([10, 1, 0, 3]), ..first() }], Untracked),
        ("zeroes for addresses and queue pair, as in a free slot", vec![qp(0, zeroes())], Untracked),
        ("a READ of a new flow", vec![packet(0x0c, 0)], Untracked),
        // PSNs.
        ("a READ of a known flow", vec![first(), packet(0x0c, 1)], NoStep { leaves: false }),
        ("a READ took 4", vec![first(), packet(0x0c, 1), packet(0x07, 5)], Data(0, 64, 0, false)),
        ("an atomic took 1", vec![first(), packet(0x13, 1), packet(0x07, 2)], Data(0, 64, 0, false)),
        ("a retransmission", vec![first(), packet(0x07, 1), packet(0x07, 1)], Data(0, 128, 0, false)),
        ("a gap", vec![first(), packet(0x09, 2), packet(0x07, 1)], Data(0, 64, 0, false)),
        ("a gap in UC", vec![packet(0x26, 0), packet(0x29, 2), packet(0x26, 3)], Data(1, 256, 0, false)),
        ("a PSN wrap", vec![packet(0x06, 0xff_ffff), packet(0x07, 0)], Data(0, 64, 0, false)),
        // Steps: 4 packets each, 2 a collective.
        ("in the middle", vec![first(), packet(0x07, 1), packet(0x07, 2)], Data(0, 128, 0, false)),
        ("more packets than a step has", (0..8).map(|n| packet(0x07, n)).collect(), Data(0, 255, 0, false)),
        ("the next step", vec![packet(0x0b, 0), packet(0x06, 1)], Data(1, 256, 0, false)),
        ("a SEND's immediate counts too", vec![packet(0x05, 0), packet(0x06, 1)], Data(1, 256, 0, false)),
        ("the end of a collective", vec![packet(0x0b, 0), packet(0x0b, 1)], Data(1, 256, 0, true)),
        ("a message end lost before us", vec![first(), packet(0x09, 2)], Data(0, 64, 0, false)),
        // What takes no part.
        ("a clear-to-send", vec![packet(0x0a, 0)], NoStep { leaves: false }),
        ("a plain end", vec![first(), packet(0x08, 1)], NoStep { leaves: true }),
        ("after a plain end", vec![first(), packet(0x08, 1), packet(0x06, 2)], NoStep { leaves: false }),
        ("adaptive routing's immediate", vec![first(), packet(0x08, 1), packet(0x0b, 2)], Data(0, 64, 0, false)),
        // The job's minimum.
        (
            "a leader",
            vec![qp(1, packet(0x0b, 0)), qp(1, packet(0x06, 1)), qp(2, first()), qp(1, packet(0x07, 2))],
            Data(1, 320, 320, false),
        ),
        ("the laggard", vec![qp(1, packet(0x0b, 0)), qp(1, packet(0x06, 1)), qp(2, first())], Data(0, 0, 0, false)),
        (
            "a laggard that finished holds nobody up",
            vec![qp(2, packet(0x0b, 0)), qp(2, packet(0x0b, 1)), qp(1, packet(0x0b, 0)), qp(1, packet(0x06, 1))],
            Data(1, 256, 0, false),
        ),
    ]
}

#[test]
fn the_table_of_cases_holds_on_both_sides() {
    let _turn = super::turn();
    let Some(mut twins) = Twins::new() else { return };
    // One epoch, so that the minimum is not forgotten between two frames.
    twins.set_epoch(1 << 40);
    for (what, packets, expect) in cases() {
        let v4 = Job { packets_per_step: Some(4), ..job(1) };
        let v6 = v4.ring.iter().enumerate().map(|(n, _)| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n as u16 + 1]));
        let v6 = Job { id: 2, ring: v6.collect(), ..v4.clone() };
        let slots = [twins.add_job(&v4), twins.add_job(&v6)];
        let got = packets.iter().map(|packet| twins.feed(&packet.bytes())).last().expect("a case has frames");
        let last = &packets[packets.len() - 1];

        let untracked = Bridged { tracked: true, ..Bridged::default() };
        let job = slots[usize::from(last.src.is_ipv6())];
        let of_flow = Bridged { job, flow: got.bridged.flow, ..untracked };
        let bridged = match expect {
            NotRoce | Untracked => untracked,
            NoStep { leaves } => Bridged { leaves, ..of_flow },
            Data(steps_done, progress, lead, leaves) => {
                Bridged { step: Step::Data, steps_done, progress, lead, leaves, ..of_flow }
            }
        };
        assert_eq!(got.bridged, bridged, "{what}");
        let roce = if matches!(expect, NotRoce) { (0, 0) } else { (last.opcode, last.psn) };
        assert_eq!((got.opcode.0, got.psn), roce, "{what}");
        twins.check_everything();
        twins.remove_job(1);
        twins.remove_job(2);
    }
}

#[test]
fn a_job_is_tracked_only_while_it_is_enabled_and_armed_only_after_it_was_idle() {
    let _turn = super::turn();
    let Some(mut twins) = Twins::new() else { return };
    let idle_ns = 20_000_000; // far longer than what the machine may do between two packets
    twins.add_job(&Job { idle_ns, ..job(1) });
    let feed = |twins: &mut Twins, psn| twins.feed(&packet(0x0b, psn).bytes()).bridged;
    assert!(!feed(&mut twins, 0).armed);
    assert_eq!(feed(&mut twins, 1).steps_done, 1);
    twins.pause(idle_ns);
    let restarted = feed(&mut twins, 2);
    assert!(restarted.armed);
    assert_eq!((restarted.step, restarted.steps_done), (Step::Data, 0));
    assert_eq!(feed(&mut twins, 3).steps_done, 1);

    twins.enable_job(1, false);
    assert_eq!(feed(&mut twins, 4), Bridged { tracked: true, ..Bridged::default() });
    twins.enable_job(1, true);
    let anew = feed(&mut twins, 5);
    assert!(!anew.armed);
    assert_eq!((anew.step, anew.steps_done), (Step::Data, 0));
    twins.check_everything();
}
