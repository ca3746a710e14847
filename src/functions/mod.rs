//! What runs in the switch's stages. Each function is a set of stages with its tables and registers; they do not know
//! each other.

pub mod forward;
pub mod serene;
pub mod symphony;
