//! The `symphony` command. Everything is in the library, so that it can be tested there.

use std::process::ExitCode;

fn main() -> ExitCode {
    symphony::cli::main()
}
