//! Forwarding: learning L2, or static L2/L3 with ECMP groups.

mod config;

pub use config::{ForwardConfig, NextHop, Prefix, Route, RouteMatch};
