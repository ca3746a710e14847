//! What several integration tests need: the captures in `tests/data`, and `symphony replay`.

#![allow(dead_code)] // each test binary uses its part

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use symphony::capture::{Packet, Reader};

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Names of all captures, in order.
pub fn captures() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(data(""))
        .expect("tests/data is there")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".pcap"))
        .collect();
    names.sort();
    assert!(names.len() >= 12, "the captures are there");
    names
}

/// The frames of a capture.
pub fn frames(name: &str) -> Vec<Vec<u8>> {
    let file = File::open(data(name)).expect("the capture opens");
    let packets = Reader::new(file).expect("it is a capture");
    packets.map(|packet| packet.expect("it is whole").data).collect()
}

/// Runs `symphony replay`.
pub fn replay(input: &Path, options: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony")).arg("replay").arg(input).args(options).output();
    output.expect("the command starts")
}

/// Runs `symphony replay --json`, which must succeed, and reads its one object.
#[track_caller]
pub fn report(input: &Path, options: &[&str]) -> Value {
    let output = replay(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// The `--config` options for a configuration in `tests/data`.
pub fn config(name: &str) -> [String; 2] {
    ["--config".into(), data(name).display().to_string()]
}

/// A string in JSON.
#[track_caller]
pub fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// The packets of a capture that a test wrote.
pub fn read(path: &Path) -> Vec<Packet> {
    let file = std::fs::File::open(path).expect("it was written");
    Reader::new(file).expect("a capture").map(|packet| packet.expect("whole")).collect()
}
