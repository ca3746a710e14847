//! Tests of the driver and of the protocol as a whole.

mod lab;
mod loopback;
mod oracle;
mod properties;
