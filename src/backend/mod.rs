//! Drivers that feed the pure core, and the only home of `unsafe`.

#![allow(unsafe_code)]

pub mod afxdp;
pub mod aggregation;
pub(crate) mod clock;
pub mod controllers;
pub mod host;
pub mod live;
pub mod replay;
pub mod sim;
mod sockopt;
pub mod xdp;
