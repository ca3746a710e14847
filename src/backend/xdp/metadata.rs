//! What the program found out about a frame: the 32 bytes before it.

use crate::dataplane::{Bridged, Nanos, Step};
use crate::wire::Opcode;

/// Bytes of metadata before a frame: `struct packet_metadata` in `ebpf/abi.h`.
pub const METADATA_BYTES: usize = 32;

const TRACKED: u8 = 1 << 0;
const DATA: u8 = 1 << 1;
const ARMED: u8 = 1 << 2;
const LEAVES: u8 = 1 << 3;

/// The kernel side's findings about one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// When the program saw it, `CLOCK_MONOTONIC`.
    pub received_at: Nanos,
    /// BTH opcode; 0 when it is no RoCEv2 packet.
    pub opcode: Opcode,
    /// Packet sequence number; 0 when it is no RoCEv2 packet.
    pub psn: u32,
    /// What tracking found out.
    pub bridged: Bridged,
}

impl Metadata {
    /// Reads the bytes before a frame. Any bytes are valid.
    pub fn from_bytes(bytes: &[u8; METADATA_BYTES]) -> Self {
        fn field<const N: usize>(bytes: &[u8; METADATA_BYTES], offset: usize) -> [u8; N] {
            std::array::from_fn(|i| bytes[offset + i])
        }
        let flags = bytes[31];
        Metadata {
            received_at: u64::from_ne_bytes(field(bytes, 0)),
            psn: u32::from_ne_bytes(field(bytes, 24)),
            opcode: Opcode(bytes[30]),
            bridged: Bridged {
                tracked: flags & TRACKED != 0,
                step: if flags & DATA != 0 { Step::Data } else { Step::None },
                armed: flags & ARMED != 0,
                leaves: flags & LEAVES != 0,
                progress: u32::from_ne_bytes(field(bytes, 8)),
                lead: i32::from_ne_bytes(field(bytes, 12)),
                steps_done: u32::from_ne_bytes(field(bytes, 16)),
                flow: u32::from_ne_bytes(field(bytes, 20)),
                job: u16::from_ne_bytes(field(bytes, 28)),
                ..Bridged::default() // what only userspace sets
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_from_its_place() {
        let mut bytes = [0; METADATA_BYTES];
        bytes[0..8].copy_from_slice(&0x0102_0304_0506_0708u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&0x1000u32.to_ne_bytes());
        bytes[12..16].copy_from_slice(&(-5i32).to_ne_bytes());
        bytes[16..20].copy_from_slice(&16u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(&77u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&0xff_fffeu32.to_ne_bytes());
        bytes[28..30].copy_from_slice(&3u16.to_ne_bytes());
        bytes[30] = 0x0b;
        bytes[31] = 0b1111;
        let bridged = Bridged {
            tracked: true,
            step: Step::Data,
            armed: true,
            leaves: true,
            job: 3,
            flow: 77,
            steps_done: 16,
            progress: 0x1000,
            lead: -5,
            ..Bridged::default()
        };
        let expected =
            Metadata { received_at: 0x0102_0304_0506_0708, opcode: Opcode::WRITE_ONLY_IMM, psn: 0xff_fffe, bridged };
        assert_eq!(Metadata::from_bytes(&bytes), expected);
    }
}
