//! The traffic manager alone: one packet in, one out, with a standing queue in which RED draws, or none.

mod common;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use symphony::dataplane::{Phv, PortConfig, SwitchConfig, TrafficManager};

fn traffic_manager(c: &mut Criterion) {
    let mut group = c.benchmark_group("traffic_manager");
    group.throughput(Throughput::Elements(1));
    for (line, rate_bps) in [("no-rate", None), ("100G", Some(100_000_000_000))] {
        for standing in [0, 64] {
            let ports = common::config().ports.into_iter().map(|port| PortConfig { rate_bps, ..port }).collect();
            let mut tm = TrafficManager::new(&SwitchConfig { ports, ..common::config() });
            let phv = Phv { frame_bytes: 1082, ..Phv::default() };
            for n in 0..standing {
                tm.enqueue(0, 0, &phv, n);
            }
            let mut now = 0;
            group.bench_function(BenchmarkId::new(line, standing), |b| {
                b.iter(|| {
                    now += 1000;
                    if tm.admit(0, &phv).is_ok() {
                        tm.enqueue(0, now, &phv, 0);
                    }
                    tm.dequeue(0, now)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, traffic_manager);
criterion_main!(benches);
