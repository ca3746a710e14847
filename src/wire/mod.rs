//! Bytes <-> fields: Ethernet, VLAN, ARP, IPv4, IPv6, UDP, RoCEv2 with its ICRC, the aggregation header, and the ECN rewrite.
//!
//! A module a protocol with two types: a view on bytes (`Packet`, `Frame`), whose `new_checked` guarantees that no
//! accessor panics afterwards and that every length it hands out lies inside the buffer, and a plain struct (`Repr`).
//! [`roce`] puts them together for whole RoCEv2 packets. Nothing here knows what a switch or a queue pair is.

pub mod aggregation;
pub mod arp;
pub mod bth;
mod checksum;
mod ecn;
pub mod ethernet;
pub mod extension;
pub mod icrc;
pub mod ipv4;
pub mod ipv6;
mod opcode;
pub mod roce;
pub mod udp;
#[cfg(test)]
mod vectors;

pub use ecn::Ecn;
pub use opcode::{Headers, Opcode};

/// UDP destination port of RoCEv2 (IANA).
pub const ROCE_PORT: u16 = 4791;

/// UDP port of the aggregation service ([`aggregation`]), to which requests go and from which answers come.
pub const AGGREGATION_PORT: u16 = 24190;

/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Why bytes are not the packet that they were taken for, or a packet could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The buffer ends before the header or the length that a header announces.
    #[error("{0}: the bytes end before the packet does")]
    Truncated(&'static str),
    /// A length field contradicts the header that carries it.
    #[error("{0}: a length field contradicts its own header")]
    BadLength(&'static str),
    /// Not the protocol (IP version, EtherType, protocol number, UDP port).
    #[error("not {0}")]
    WrongProtocol(&'static str),
    /// A fragment; RoCEv2 never fragments.
    #[error("an IP fragment")]
    Fragment,
    /// The ICRC does not match.
    #[error("wrong ICRC")]
    BadIcrc,
    /// Source and destination are of different IP versions.
    #[error("source and destination are of different IP versions")]
    MixedFamilies,
    /// The opcode has headers that [`roce::Repr`] does not hold (atomics, datagrams, invalidate).
    #[error("opcode {0} has headers that this form does not hold")]
    Unsupported(Opcode),
    /// The headers or the payload given do not fit the opcode or the lengths announced.
    #[error("headers or payload do not fit opcode {0}")]
    Mismatch(Opcode),
    /// The packet does not fit the buffer, or 16 bits of length.
    #[error("the packet is too long for the buffer or for IP")]
    TooLong,
}

/// `N` bytes. Panics outside of `data`, as the views' `new_checked` rules out.
#[inline]
fn bytes<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]); // one check, not one a byte
    bytes
}

/// 16 bits, big-endian.
#[inline]
fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(data, at))
}

/// 24 bits, big-endian, of a field with a byte before it: read with that byte as one word.
#[inline]
fn be24(data: &[u8], at: usize) -> u32 {
    be32(data, at - 1) & 0xff_ffff
}

/// 32 bits, big-endian.
#[inline]
fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(data, at))
}

/// 64 bits, big-endian.
#[inline]
fn be64(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(data, at))
}

/// Writes `bytes` at `at`.
#[inline]
fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    data[at..at + bytes.len()].copy_from_slice(bytes);
}
