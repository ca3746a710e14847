//! What several integration tests need: the captures in `tests/data`.

#![allow(dead_code)] // each test binary uses its part

use std::fs::{self, File};
use std::path::PathBuf;

use symphony::capture::Reader;

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
