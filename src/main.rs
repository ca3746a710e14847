//! The `symphony` command.
fn main() {}
