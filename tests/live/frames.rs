//! Frames as no well-behaved host sends them, and a raw socket to send them by.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, setsockopt, socket, sockopt,
};

/// Sends raw frames by `eth0` of the calling thread's namespace.
pub struct RawSocket {
    fd: OwnedFd,
    eth0: LinkAddr,
}

impl RawSocket {
    pub fn new() -> Self {
        let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).unwrap();
        setsockopt(&fd, sockopt::SndBuf, &(4 << 20)).unwrap();
        let eth0 = getifaddrs()
            .unwrap()
            .filter(|interface| interface.interface_name == "eth0")
            .find_map(|interface| interface.address?.as_link_addr().copied())
            .expect("eth0 exists");
        assert_eq!(eth0.family(), Some(AddressFamily::Packet));
        RawSocket { fd, eth0 }
    }

    /// Whether the kernel took it.
    pub fn send(&self, frame: &[u8]) -> bool {
        sendto(self.fd.as_raw_fd(), frame, &self.eth0, MsgFlags::empty()).is_ok()
    }
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    // From host 1 to host 2.
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header with a right checksum. `words` is IHL.
fn ipv4(words: u8, total: u16, fragment: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x40 | words, 2];
    header.extend(total.to_be_bytes());
    header.extend([0, 0]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    header.resize(20.max(usize::from(words) * 4), 1);
    let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(payload);
    header
}

fn udp(dport: u16, length: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0xc0, 0];
    header.extend(dport.to_be_bytes());
    header.extend(length.to_be_bytes());
    header.extend([0, 0]);
    header.extend(payload);
    header
}

fn roce(payload: &[u8]) -> Vec<u8> {
    let udp = udp(4791, 8 + payload.len() as u16, payload);
    ethernet(0x0800, &ipv4(5, 20 + udp.len() as u16, 0x4000, 17, &udp))
}

/// WRITE_ONLY of 64 bytes to queue pair 0x11, with an immediate or without, and with an ICRC that cannot be right.
pub fn write_with_wrong_icrc(psn: u32, immediate: bool) -> Vec<u8> {
    let mut packet = vec![if immediate { 0x0b } else { 0x0a }, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0x80];
    packet.extend(&psn.to_be_bytes()[1..]);
    packet.resize(12 + 16 + if immediate { 4 } else { 0 } + 64, 0);
    packet.extend([0xde, 0xad, 0xbe, 0xef]);
    roce(&packet)
}

/// One of each kind, with a name.
pub fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let whole = write_with_wrong_icrc(1, false);
    let mut frames = vec![
        ("RoCEv1", ethernet(0x8915, &[0x60; 80])),
        ("wrong ICRC", whole.clone()),
        ("no BTH at all", roce(&[])),
        ("half a BTH", roce(&[0x0a; 6])),
        ("BTH without its RETH", roce(&[0x0a; 12])),
        ("unknown opcode", roce(&[0xff; 40])),
        ("garbage on port 4791", roce(&(0..=255).collect::<Vec<u8>>())),
        ("IPv4 options", {
            let udp = udp(4791, 48, &[0x0a; 40]);
            ethernet(0x0800, &ipv4(8, 32 + udp.len() as u16, 0, 17, &udp))
        }),
        ("IHL below 5", ethernet(0x0800, &ipv4(3, 60, 0, 17, &[0; 40]))),
        ("IPv4 total length beyond the frame", ethernet(0x0800, &ipv4(5, 9000, 0, 17, &udp(4791, 40, &[0x0a; 32])))),
        ("IPv4 total length of zero", ethernet(0x0800, &ipv4(5, 0, 0, 17, &udp(4791, 40, &[0x0a; 32])))),
        ("UDP length beyond the packet", ethernet(0x0800, &ipv4(5, 60, 0, 17, &udp(4791, 9000, &[0x0a; 32])))),
        ("UDP length of zero", ethernet(0x0800, &ipv4(5, 60, 0, 17, &udp(4791, 0, &[0x0a; 32])))),
        ("first fragment", ethernet(0x0800, &ipv4(5, 60, 0x2000, 17, &udp(4791, 200, &[0x0a; 32])))),
        ("later fragment", ethernet(0x0800, &ipv4(5, 60, 0x0010, 17, &[0x0a; 40]))),
        ("IPv6 header cut short", ethernet(0x86dd, &[0x60; 20])),
        ("IPv6 payload length beyond the frame", {
            let mut packet = vec![0x60, 0, 0, 0, 0xff, 0xff, 17, 64];
            packet.resize(60, 0xfd);
            ethernet(0x86dd, &packet)
        }),
        ("ARP cut short", ethernet(0x0806, &[0, 1, 8])),
        ("multicast source", {
            let mut frame = whole.clone();
            frame[6] = 0x03;
            frame
        }),
        ("PAUSE", {
            let mut frame = ethernet(0x8808, &[0, 1, 0xff, 0xff]);
            frame[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 1]);
            frame
        }),
        ("no payload", ethernet(0x0800, &[])),
    ];
    let tags = |count: usize| {
        let mut frame = whole[..12].to_vec();
        for tag in 0..count {
            frame.extend([0x81, 0x00, 0x20, tag as u8 + 1]);
        }
        frame.extend(&whole[12..]);
        frame
    };
    frames.extend([("one VLAN tag", tags(1)), ("two VLAN tags", tags(2)), ("three VLAN tags", tags(3))]);
    frames.push(("VLAN tag and nothing more", whole[..12].iter().copied().chain([0x81, 0, 0, 1]).collect()));
    // A raw socket does not send less than an Ethernet header.
    frames.extend((14..whole.len()).map(|length| ("truncated", whole[..length].to_vec())));
    frames
}
