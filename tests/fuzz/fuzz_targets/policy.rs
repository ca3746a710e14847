//! Any text as a condition, an action and a job file: the parser ends, and what it reads it also prints.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symphony::control::serene::{JobFile, parse_action, parse_condition};

fuzz_target!(|text: &str| {
    if let Ok(condition) = parse_condition(text) {
        assert_eq!(parse_condition(&condition.to_string()), Ok(condition));
    }
    if let Ok(action) = parse_action(text) {
        assert_eq!(parse_action(&action.to_string()), Ok(action));
    }
    let _ = JobFile::parse(text, "job.toml");
});
