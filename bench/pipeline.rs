//! The whole pure pipeline, a batch of 64 packets at a time: parse, ingress, traffic manager with a standing queue, egress, mark, deparse.

//!
//! `live`: with what the kernel side found in the metadata, as behind AF_XDP; else the Rust stages track too, as in replay.

mod common;

use std::time::{Duration, Instant};

use common::{BATCH, Rig, forward, symphony};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use symphony::dataplane::Function;

const FLOWS: [u32; 3] = [1, 64, 4096];

fn pipeline(c: &mut Criterion) {
    run(c, "pipeline/forward", false, || (forward(),));
    run(c, "pipeline/live symphony+forward", true, || (symphony(), forward()));
    run(c, "pipeline/symphony+forward", false, || (symphony(), forward()));
}

fn run<F: Function>(c: &mut Criterion, name: &str, kernel_tracks: bool, functions: impl Fn() -> F) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(BATCH as u64));
    for flows in FLOWS {
        let mut rig = Rig::new(functions(), flows, kernel_tracks);
        group.bench_function(BenchmarkId::from_parameter(flows), |b| {
            // Writing the headers is the driver's work, not the pipeline's.
            b.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for _ in 0..iterations {
                    rig.arrive(BATCH);
                    let begin = Instant::now();
                    rig.process();
                    spent += begin.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
