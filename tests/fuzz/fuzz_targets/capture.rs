//! Any bytes as a capture file: the reader ends, and does not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symphony::capture::Reader;

fuzz_target!(|file: &[u8]| {
    if let Ok(packets) = Reader::new(file) {
        assert!(packets.count() <= file.len());
    }
});
