//! The simulator's engine: events a second (an event: one packet at one hop, or one timer).

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use symphony::backend::sim::{Discipline, Fabric, Job, Paths, Setup, Topology, run};
use symphony::dataplane::Red;
use symphony::functions::symphony::Parameters;
use symphony::roce::{Collective, dcqcn};

const TEN_GBIT: u64 = 10_000_000_000;

/// Four rings of eight ranks, spread over 32 hosts so that they meet in the spines.
fn multi(symphony: Option<Parameters>) -> Setup {
    let job = |number: u32| Job {
        class: "all".into(),
        hosts: (0..8).map(|rank| (number + 4 * ((rank * 3 + number) % 8)) % 32).collect(),
        collective: Collective::AllReduce,
        iterations: 1,
        compute_ns: 0,
        chunk_bytes: 1_000_000,
        channels: 1,
        requests_per_step: 1,
        path_mtu: 4096,
        nic_bps: vec![TEN_GBIT; 8],
        start_at: vec![0; 8],
        congestion_control: Some(dcqcn::Parameters::DC55),
        step_size_known: true,
        known: true,
        idle_ns: 10_000_000,
    };
    Setup {
        model: Default::default(),
        seed: 1,
        fabric: Fabric {
            topology: Topology::LeafSpine { leaves: 8, hosts_per_leaf: 4, spines: 4 },
            host_bps: TEN_GBIT,
            fabric_bps: TEN_GBIT,
            slow_links: Vec::new(),
            shared_nic: true,
            delay_ns: 1000,
            red: Some(Red { kmin_bytes: 40_000, kmax_bytes: 160_000, pmax: 0.2 }),
            buffer_bytes: 64 << 20,
            pfc: None,
            paths: Paths::PerFlow,
        },
        jobs: (0..4).map(job).collect(),
        background: Vec::new(),
        symphony,
        discipline: Discipline::Fifo,
        limit_ns: 10_000_000_000,
    }
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
