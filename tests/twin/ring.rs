//! Random but plausible traffic of one sender: messages in packets, with everything that can happen to them.

use std::net::IpAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::frames::Packet;

/// A number below `n`.
pub fn below(rng: &mut ChaCha8Rng, n: u32) -> u32 {
    rng.next_u32() % n
}

/// Whether something happens that does so in `percent` of cases.
pub fn chance(rng: &mut ChaCha8Rng, percent: u32) -> bool {
    below(rng, 100) < percent
}

pub fn pick<'a, T>(rng: &mut ChaCha8Rng, from: &'a [T]) -> &'a T {
    &from[below(rng, from.len() as u32) as usize]
}

/// One queue pair's sending side.
pub struct Sender {
    template: Packet,
    psn: u32,
    /// Opcodes of UC are 0x20 above those of RC.
    class: u8,
    write: bool,
    /// Of its messages, in per cent.
    with_immediate: u32,
    /// Packets that are left of the message in hand.
    left: u32,
    ends_with_immediate: bool,
    counter: u32,
    tag: u16,
    sent: Vec<Packet>,
}

impl Sender {
    pub fn new(rng: &mut ChaCha8Rng, src: IpAddr, dst: IpAddr) -> Self {
        let psn = match below(rng, 3) {
            0 => 0,
            1 => 0xff_fff0 + below(rng, 16),
            _ => below(rng, 1 << 24),
        };
        let dest_qpn = below(rng, 3) + if chance(rng, 50) { 0 } else { 0xff_fff0 };
        Sender {
            template: Packet { src, dst, dest_qpn, ..Packet::default() },
            psn,
            class: if chance(rng, 15) { 0x20 } else { 0 },
            write: chance(rng, 70),
            with_immediate: *pick(rng, &[100, 100, 90, 50, 0]),
            left: 0,
            ends_with_immediate: true,
            counter: if chance(rng, 80) { 0 } else { rng.next_u32() },
            tag: rng.next_u32() as u16,
            sent: Vec::new(),
        }
    }

    /// The next packet of its stream.
    pub fn next(&mut self, rng: &mut ChaCha8Rng) -> Packet {
        let start = self.left == 0;
        if start {
            self.left = 1 + below(rng, 5);
            self.ends_with_immediate = chance(rng, self.with_immediate);
        }
        self.left -= 1;
        let operation = match (start, self.left == 0, self.ends_with_immediate, self.write) {
            (true, true, true, true) => 0x0b,
            (true, true, true, false) => 0x05,
            (true, true, false, true) => 0x0a,
            (true, true, false, false) => *pick(rng, &[0x04, 0x17]),
            (true, false, _, true) => 0x06,
            (true, false, _, false) => 0x00,
            (false, false, _, true) => 0x07,
            (false, false, _, false) => 0x01,
            (false, true, true, true) => 0x09,
            (false, true, true, false) => 0x03,
            (false, true, false, true) => 0x08,
            (false, true, false, false) => *pick(rng, &[0x02, 0x16]),
        };
        let class = if operation < 0x10 { self.class } else { 0 };
        let packet = self.make(operation | class, 1);
        if self.left == 0 && self.ends_with_immediate {
            self.counter = self.counter.wrapping_add(1);
            self.tag = self.tag.wrapping_add(u16::from(chance(rng, 60)));
        }
        packet
    }

    /// A request without data: READ or atomic.
    pub fn other(&mut self, rng: &mut ChaCha8Rng) -> Packet {
        let opcode = *pick(rng, &[0x0c, 0x0c, 0x13, 0x14]);
        let dma_len = *pick(rng, &[0, 1, 1024, 1025, 70_000, u32::MAX]);
        self.template.dma_len = dma_len;
        let psns = if opcode == 0x0c { dma_len.div_ceil(1024).max(1) } else { 1 };
        self.make(opcode, psns)
    }

    /// A packet of its stream's addresses and PSN, which does not belong to the stream.
    pub fn stray(&self, opcode: u8) -> Packet {
        Packet { opcode, psn: self.psn, ..self.template.clone() }
    }

    /// What a go-back-N sender repeats: up to eight packets from somewhere in what was sent lately.
    pub fn again(&self, rng: &mut ChaCha8Rng) -> Vec<Packet> {
        if self.sent.is_empty() {
            return Vec::new();
        }
        let from = self.sent.len() - 1 - below(rng, self.sent.len().min(12) as u32) as usize;
        self.sent.iter().skip(from).take(1 + below(rng, 8) as usize).cloned().collect()
    }

    /// The queue pair is made anew, or the tag jumps.
    pub fn restart(&mut self, rng: &mut ChaCha8Rng) {
        *self =
            Sender { sent: std::mem::take(&mut self.sent), ..Sender::new(rng, self.template.src, self.template.dst) };
    }

    fn make(&mut self, opcode: u8, psns: u32) -> Packet {
        let packet = Packet {
            opcode,
            psn: self.psn,
            immediate: self.counter,
            sport: 0xc000 | self.tag & 0x3fff,
            ..self.template.clone()
        };
        self.psn = self.psn.wrapping_add(psns) & 0xff_ffff;
        self.sent.push(packet.clone());
        packet
    }
}
