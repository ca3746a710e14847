//! Tests of the driver and of the protocol as a whole.

mod loopback;
