//! The whole pure pipeline: parse, ingress, traffic manager with a standing queue, egress, mark, deparse.

mod common;

use common::{Rig, forward, symphony};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use symphony::dataplane::Function;

const BATCH: u64 = 64;
const FLOWS: [u32; 3] = [1, 64, 4096];

fn pipeline(c: &mut Criterion) {
    run(c, "pipeline/forward", || (forward(),));
    run(c, "pipeline/symphony+forward", || (symphony(), forward()));
}

fn run<F: Function>(c: &mut Criterion, name: &str, functions: impl Fn() -> F) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(BATCH));
    for flows in FLOWS {
        let mut rig = Rig::new(functions(), flows);
        group.bench_function(BenchmarkId::from_parameter(flows), |b| {
            b.iter(|| {
                for _ in 0..BATCH {
                    rig.step();
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
