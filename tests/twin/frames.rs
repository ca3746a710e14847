//! Frames byte by byte, independent of the crate's own writers.

use std::net::IpAddr;

/// A RoCEv2 frame and the ways in which it can be wrong. Lengths are right unless overridden.
#[derive(Clone, Debug)]
pub struct Packet {
    pub src: IpAddr,
    pub dst: IpAddr,
    /// TPIDs of the tags.
    pub tags: Vec<u16>,
    /// Instead of the one that goes with the addresses.
    pub ethertype: Option<u16>,
    pub protocol: u8,
    /// IPv4: flags and offset.
    pub fragment: u16,
    /// IPv4: 32-bit words.
    pub header_words: u8,
    pub sport: u16,
    pub dport: u16,
    pub opcode: u8,
    pub dest_qpn: u32,
    pub psn: u32,
    pub dma_len: u32,
    pub immediate: u32,
    pub payload_bytes: usize,
    /// Instead of the right ones.
    pub ip_len: Option<u16>,
    pub udp_len: Option<u16>,
    /// Behind the IP packet.
    pub padding: usize,
}

impl Default for Packet {
    /// The first packet of a WRITE in the ring 10.1.0.1 -> 10.1.0.2.
    fn default() -> Self {
        Packet {
            src: IpAddr::from([10, 1, 0, 1]),
            dst: IpAddr::from([10, 1, 0, 2]),
            tags: Vec::new(),
            ethertype: None,
            protocol: 17,
            fragment: 0x4000,
            header_words: 5,
            sport: 0xc001,
            dport: 4791,
            opcode: 0x06,
            dest_qpn: 0x11,
            psn: 0,
            dma_len: 4096,
            immediate: 0,
            payload_bytes: 16,
            ip_len: None,
            udp_len: None,
            padding: 0,
        }
    }
}

impl Packet {
    pub fn bytes(&self) -> Vec<u8> {
        let udp = self.udp();
        let ip = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let len = self.ip_len.unwrap_or((20 + udp.len()) as u16);
                let mut ip = vec![0x40 | self.header_words, 0x02];
                ip.extend(len.to_be_bytes());
                ip.extend([0, 0]);
                ip.extend(self.fragment.to_be_bytes());
                ip.extend([64, self.protocol, 0, 0]);
                ip.extend(src.octets());
                ip.extend(dst.octets());
                ip
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let len = self.ip_len.unwrap_or(udp.len() as u16);
                let mut ip = vec![0x60, 0x20, 0, 0];
                ip.extend(len.to_be_bytes());
                ip.extend([self.protocol, 64]);
                ip.extend(src.octets());
                ip.extend(dst.octets());
                ip
            }
            mixed => panic!("one family a packet: {mixed:?}"),
        };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tpid in &self.tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend([0x60, 0x05]);
        }
        let ethertype = self.ethertype.unwrap_or(if self.src.is_ipv4() { 0x0800 } else { 0x86dd });
        frame.extend(ethertype.to_be_bytes());
        frame.extend(ip);
        frame.extend(udp);
        frame.extend(vec![0; self.padding]);
        frame
    }

    fn udp(&self) -> Vec<u8> {
        let mut bth = vec![self.opcode, 0, 0xff, 0xff, 0xc0]; // FECN and BECN are no part of the queue pair's number
        bth.extend(&self.dest_qpn.to_be_bytes()[1..]);
        bth.push(0x80); // nor is AckReq one of the PSN
        bth.extend(&self.psn.to_be_bytes()[1..]);
        bth.extend(self.extensions());
        bth.extend(vec![0xda; self.payload_bytes]);
        bth.extend([0; 4]); // ICRC
        let len = self.udp_len.unwrap_or((8 + bth.len()) as u16);
        let mut udp = self.sport.to_be_bytes().to_vec();
        udp.extend(self.dport.to_be_bytes());
        udp.extend(len.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(bth);
        udp
    }

    fn extensions(&self) -> Vec<u8> {
        let mut reth = vec![0; 12];
        reth.extend(self.dma_len.to_be_bytes());
        let immediate = self.immediate.to_be_bytes().to_vec();
        match self.opcode {
            0x06 | 0x0a | 0x0c | 0x26 | 0x2a => reth,
            0x0b | 0x2b => [reth, immediate].concat(),
            0x03 | 0x05 | 0x09 | 0x23 | 0x25 | 0x29 => immediate,
            0x0d | 0x0f..=0x11 | 0x16 | 0x17 => vec![0; 4],
            0x12 | 0x65 => vec![0; 12],
            0x13 | 0x14 => vec![0; 28],
            0x64 => vec![0; 8],
            _ => Vec::new(),
        }
    }
}
