//! Extension headers behind the BTH (IBTA vol. 1 clause 9.3). Immediate data, AtomicAckETH and IETH are plain numbers.

use super::{be24, be32, be64, put};

/// RDMA extended transport header, 16 bytes: in the first or only packet of a WRITE, and in a READ request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub dma_len: u32,
}

/// Acknowledge extended transport header, 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// ACK with credits, RNR NAK with a timer code, or NAK with a code (clause 9.7.5.2).
    pub syndrome: u8,
    /// Messages that the responder has completed, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Syndrome of an ACK that does not use credits.
    pub const ACK: u8 = 0x1f;
    /// Syndrome of a NAK for a PSN sequence error; the PSN of the packet is the one expected.
    pub const NAK_PSN_SEQUENCE: u8 = 0x60;
    /// Syndrome of a NAK for an invalid request.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// Syndrome of a NAK for a remote access error.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    /// Syndrome of a NAK for a remote operational error.
    pub const NAK_REMOTE_OPERATIONAL: u8 = 0x63;

    /// Whether it is an ACK.
    pub const fn is_ack(self) -> bool {
        self.syndrome >> 5 & 0b11 == 0b00
    }

    /// Whether it is a "receiver not ready" NAK.
    pub const fn is_rnr(self) -> bool {
        self.syndrome >> 5 & 0b11 == 0b01
    }

    /// Whether it is a NAK other than "receiver not ready".
    pub const fn is_nak(self) -> bool {
        self.syndrome >> 5 & 0b11 == 0b11
    }
}

/// Atomic extended transport header, 28 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Value to swap in, or to add.
    pub swap_or_add: u64,
    /// Value to compare with.
    pub compare: u64,
}

/// Datagram extended transport header, 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source queue pair, 24 bits.
    pub src_qpn: u32,
}

// Each header reads from, and is written to, a slice of exactly its length, which the caller has made.

impl Reth {
    /// Length on the wire.
    pub const LEN: usize = 16;

    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Self {
        Reth { va: be64(bytes, 0), rkey: be32(bytes, 8), dma_len: be32(bytes, 12) }
    }

    pub(super) fn write(self, bytes: &mut [u8]) {
        put(bytes, 0, &self.va.to_be_bytes());
        put(bytes, 8, &self.rkey.to_be_bytes());
        put(bytes, 12, &self.dma_len.to_be_bytes());
    }
}

impl Aeth {
    /// Length on the wire.
    pub const LEN: usize = 4;

    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Self {
        Aeth { syndrome: bytes[0], msn: be24(bytes, 1) }
    }

    pub(super) fn write(self, bytes: &mut [u8]) {
        bytes[0] = self.syndrome;
        put(bytes, 1, &self.msn.to_be_bytes()[1..]);
    }
}

impl AtomicEth {
    /// Length on the wire.
    pub const LEN: usize = 28;

    pub(super) fn read(bytes: &[u8]) -> Self {
        AtomicEth { va: be64(bytes, 0), rkey: be32(bytes, 8), swap_or_add: be64(bytes, 12), compare: be64(bytes, 20) }
    }
}

impl Deth {
    /// Length on the wire.
    pub const LEN: usize = 8;

    pub(super) fn read(bytes: &[u8]) -> Self {
        Deth { qkey: be32(bytes, 0), src_qpn: be24(bytes, 5) }
    }
}
