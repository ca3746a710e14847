//! The parser alone.

mod common;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use symphony::dataplane::parse;

fn parsing(c: &mut Criterion) {
    let rocev2 = common::packet(0);
    let mut tagged = rocev2.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x0a]);
    let mut arp = rocev2[..64].to_vec();
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Elements(1));
    for (name, bytes) in [("rocev2", &rocev2), ("rocev2-vlan", &tagged), ("arp", &arp)] {
        group.bench_function(name, |b| b.iter(|| parse(black_box(bytes), 0, 0)));
    }
    group.finish();
}

criterion_group!(benches, parsing);
criterion_main!(benches);
