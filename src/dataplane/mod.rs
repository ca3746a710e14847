//! The switch: parser -> ingress stages -> traffic manager -> egress stages -> deparser, shaped like a Tofino2.
//!
//! Everything here is pure. Time (`now: Nanos`) is an argument, frames are handles that a driver owns
//! ([`Frames`]), randomness comes from seeded streams. Drivers in `backend/` feed [`Switch`].

mod config;
mod counters;
mod deparser;
mod drop_reason;
mod fault;
mod frames;
mod function;
mod line;
mod parser;
mod pfc;
mod phv;
mod red;
mod register;
mod switch;
mod tables;
mod trace;
mod traffic_manager;

pub use config::{Direction, Fault, Pfc, PfcThreshold, PortConfig, Red, SwitchConfig};
pub use counters::{Conservation, Counters, Drops, Marks, PortCounters};
pub use deparser::deparse;
pub use drop_reason::DropReason;
pub use frames::{FrameBytes, Frames, HeadersOnly, HeapFrames, NoBytes};
pub use function::{Cx, Egress, Emission, Function, Verdict};
pub use parser::{parse, parse_l2_l3};
pub use phv::{Bridged, Class, IpAddress, L3, MacAddress, Phv, PortId, PortSet, Roce, Service, Step, VlanTags};
pub(crate) use register::pair;
pub use register::{Register, StatefulAlu};
pub use switch::Switch;
pub use tables::{ExactTable, FoldHasher, LpmTable, TableFull};
pub use trace::{Event, NoTrace, Tracer};
pub use traffic_manager::{Departure, Replica, TrafficManager};

/// Nanoseconds on a clock of the driver's choice that never runs backwards (live: `CLOCK_MONOTONIC`).
pub type Nanos = u64;
