//! Bytes <-> fields: Ethernet, VLAN, IPv4, IPv6, UDP, RoCEv2 with its ICRC, and the ECN rewrite.
//!
//! Two types a protocol: a view on bytes (`Packet`) whose `new_checked` guarantees that no accessor panics, and a plain
//! struct (`Repr`).

mod ecn;
mod opcode;

pub use ecn::Ecn;
pub use opcode::Opcode;
