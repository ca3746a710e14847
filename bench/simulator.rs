//! The simulator's engine: events a second (an event: one packet at one hop, or one timer).

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use symphony::backend::sim::{Fabric, Job, Paths, Setup, Topology, run};
use symphony::functions::symphony::Parameters;

/// Four rings of eight ranks, spread over 32 hosts so that they meet in the spines.
fn multi(symphony: Option<Parameters>) -> Setup {
    let job = |number: u32| Job {
        idle_ns: 10_000_000,
        ..Job::new((0..8).map(|rank| (number + 4 * ((rank * 3 + number) % 8)) % 32).collect(), 1_000_000)
    };
    let topology = Topology::LeafSpine { leaves: 8, hosts_per_leaf: 4, spines: 4 };
    let fabric = Fabric { paths: Paths::PerFlow, ..Fabric::new(topology) };
    Setup { symphony, ..Setup::new(fabric, (0..4).map(job).collect()) }
}

fn engine(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulator");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    for (name, symphony) in [("base", None), ("symphony", Some(Parameters::default()))] {
        let setup = multi(symphony);
        let events = run(&setup).map_or(0, |results| results.events);
        group.throughput(Throughput::Elements(events));
        group.bench_function(BenchmarkId::new("multi", name), |b| b.iter(|| run(&setup)));
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
