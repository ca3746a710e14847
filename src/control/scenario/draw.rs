//! From a scenario's tables and a seed to a setup.
//!
//! Each kind of randomness has a stream of its own, so that a change to one leaves the others as they are.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::file::{CollectiveName, FabricTable, File, JobTable, LONGEST, ModelName, PathsName, Place, TopologyName};
use crate::backend::sim::astra::{self, Window};
use crate::backend::sim::{Discipline, Fabric, Job, Model, Paths, Setup, SlowLink, Topology, Transfer};
use crate::control::config::{Key, Wrong};
use crate::control::units::Idle;
use crate::dataplane::{Nanos, Pfc, Red};
use crate::roce::{Collective, dcqcn};

/// ChaCha streams of a seed. The skew of jobs comes first: it is drawn as the live demo draws it.
#[derive(Clone, Copy)]
enum Stream {
    Skew,
    Jitter,
    Places,
    Stragglers,
    SlowLinks,
    Background,
}

/// Ports of a fat tree's switches at most: 3456 hosts, and the next would have more than addresses tell apart.
const LARGEST_TREE: u32 = 24;
/// Foreign transfers at most, of all `[[background]]` together.
const MOST_TRANSFERS: usize = 1 << 18;
/// Steps of all iterations of a job at most.
const MOST_STEPS: u64 = 1 << 24;

/// Draws what is random and puts everything together.
pub fn setup(file: &File, seed: u64, cc: dcqcn::Parameters) -> Result<Setup, Wrong> {
    let topology = topology(&file.fabric)?;
    let shape = Shape::of(topology);
    Ok(Setup {
        seed,
        fabric: fabric(file, topology, shape, seed)?,
        jobs: jobs(file, shape, seed, cc)?,
        model: model(file)?,
        background: background(file, shape, seed, cc)?,
        symphony: None,
        discipline: Discipline::Fifo,
        limit_ns: file.limit.0,
    })
}

fn model(file: &File) -> Result<Model, Wrong> {
    let window = if file.window { Window::ByRate } else { Window::Unbounded };
    match file.model {
        ModelName::Astra => Ok(Model::Astra(astra::Parameters { window, skip_drained: false })),
        ModelName::Roce if file.window => Err(Key::new("window").wrong("hosts of model \"roce\" have none")),
        ModelName::Roce => Ok(Model::Roce),
    }
}

/// Random numbers of one stream.
struct Draw(ChaCha8Rng);

impl Draw {
    fn new(seed: u64, stream: Stream) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64);
        Draw(rng)
    }

    /// From 0 to below `end`; 0 where that is 0. The bias of the remainder is below 2^-20 for all that is drawn here.
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64().checked_rem(end).unwrap_or(0)
    }

    /// One of the things, taken away.
    fn take(&mut self, things: &mut Vec<u32>) -> Option<u32> {
        let index = self.below(things.len() as u64) as usize;
        (index < things.len()).then(|| things.swap_remove(index))
    }

    /// Exponential.
    fn exponential(&mut self, mean: Nanos) -> Nanos {
        let uniform = (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64; // 0 to below 1
        (-(1.0 - uniform).ln() * mean as f64) as Nanos
    }
}

/// Who is connected to whom.
pub(super) fn topology(table: &FabricTable) -> Result<Topology, Wrong> {
    let fabric = Key::new("fabric");
    let number = |name: &str, value: Option<u32>, most: u32| match value {
        Some(value) if (1..=most).contains(&value) => Ok(value),
        Some(value) => Err(fabric.name(name).wrong(format!("{value}; use 1 to {most}"))),
        None => Err(fabric.name(name).wrong("missing; this topology needs it")),
    };
    let keys = [
        ("hosts", table.hosts, TopologyName::Single),
        ("leaves", table.leaves, TopologyName::LeafSpine),
        ("hosts_per_leaf", table.hosts_per_leaf, TopologyName::LeafSpine),
        ("spines", table.spines, TopologyName::LeafSpine),
        ("k", table.k, TopologyName::FatTree),
    ];
    if let Some((name, ..)) = keys.iter().find(|(_, value, of)| value.is_some() && *of != table.topology) {
        return Err(fabric.name(name).wrong("this topology has none; leave it out"));
    }
    Ok(match table.topology {
        TopologyName::Single => Topology::Single { hosts: number("hosts", table.hosts, 64)? },
        TopologyName::LeafSpine => {
            let hosts_per_leaf = number("hosts_per_leaf", table.hosts_per_leaf, 63)?;
            Topology::LeafSpine {
                leaves: number("leaves", table.leaves, 64)?,
                hosts_per_leaf,
                spines: number("spines", table.spines, 64 - hosts_per_leaf)?,
            }
        }
        TopologyName::FatTree => match number("k", table.k, LARGEST_TREE)? {
            k if k.is_multiple_of(2) => Topology::FatTree { k },
            k => return Err(fabric.name("k").wrong(format!("{k} is odd; half of a switch's ports go up"))),
        },
    })
}

/// A topology as places and slow links see it.
#[derive(Clone, Copy)]
struct Shape {
    leaves: u32,
    hosts_per_leaf: u32,
    uplinks: u32,
}

impl Shape {
    fn of(topology: Topology) -> Self {
        match topology {
            Topology::Single { hosts } => Shape { leaves: 1, hosts_per_leaf: hosts, uplinks: 0 },
            Topology::LeafSpine { leaves, hosts_per_leaf, spines } => Shape { leaves, hosts_per_leaf, uplinks: spines },
            Topology::FatTree { k } => Shape { leaves: k * k / 2, hosts_per_leaf: k / 2, uplinks: k / 2 },
        }
    }

    fn hosts(self) -> u32 {
        self.leaves * self.hosts_per_leaf
    }
}

fn fabric(file: &File, topology: Topology, shape: Shape, seed: u64) -> Result<Fabric, Wrong> {
    let table = &file.fabric;
    let mut draw = Draw::new(seed, Stream::SlowLinks);
    let mut slow_links = Vec::new();
    for (index, link) in file.slow_links.iter().enumerate() {
        let key = Key::new("slow_link").index(index);
        if shape.uplinks == 0 {
            return Err(key.wrong("a single switch has no uplinks; leave it out"));
        }
        let place = |name: &str, value: Option<u32>, end: u32, drawn: u64| match value {
            None if end > 0 => Ok(drawn as u32),
            Some(value) if value < end => Ok(value),
            value => {
                let value = value.map_or(String::new(), |value| format!("{value}; "));
                Err(key.name(name).wrong(format!("{value}there are {end}, counted from 0")))
            }
        };
        let (leaf, uplink) = (draw.below(shape.leaves.into()), draw.below(shape.uplinks.into()));
        if link.rate.0 == 0 {
            return Err(key.name("rate").wrong("0 sends nothing; use for instance \"5Gbit\""));
        }
        slow_links.push(SlowLink {
            leaf: place("leaf", link.leaf, shape.leaves, leaf)?,
            uplink: place("uplink", link.uplink, shape.uplinks, uplink)?,
            bps: link.rate.0,
        });
    }
    let (kmin_bytes, kmax_bytes, pmax) = (table.ecn.kmin.0, table.ecn.kmax.0, table.ecn.pmax);
    Ok(Fabric {
        topology,
        host_bps: table.rate.0,
        fabric_bps: table.spine_rate.unwrap_or(table.rate).0,
        slow_links,
        shared_nic: table.shared_nic,
        delay_ns: table.delay.0,
        red: table.ecn.enabled.then_some(Red { kmin_bytes, kmax_bytes, pmax }),
        buffer_bytes: table.buffer.0,
        pfc: table.pfc.then(|| pfc(table)),
        paths: match table.paths {
            PathsName::PerFlow => Paths::PerFlow,
            PathsName::PerStep => Paths::PerStep,
            PathsName::CollisionFree => Paths::CollisionFree,
        },
    })
}

/// The threshold of HPCC's ns-3 model; headroom for a round trip at the fastest link's rate and a packet at either end.
fn pfc(table: &FabricTable) -> Pfc {
    const LONGEST_FRAME_BYTES: u64 = 4096 + 128;
    let bps = table.spine_rate.map_or(table.rate, |spine| spine.max(table.rate)).0;
    let on_its_way = u128::from(bps) * u128::from(2 * table.delay.0) / 8_000_000_000;
    Pfc::dynamic(3, on_its_way as u64 + 2 * LONGEST_FRAME_BYTES)
}

fn jobs(file: &File, shape: Shape, seed: u64, cc: dcqcn::Parameters) -> Result<Vec<Job>, Wrong> {
    let mut free: Vec<u32> = (0..shape.hosts()).collect();
    let [mut places, mut skews, mut jitters, mut stragglers] =
        [Stream::Places, Stream::Skew, Stream::Jitter, Stream::Stragglers].map(|stream| Draw::new(seed, stream));
    let mut jobs = Vec::new();
    for (index, table) in file.jobs.iter().enumerate() {
        let key = Key::new("job").index(index);
        for _ in 0..table.count {
            let hosts = hosts(table, shape, &mut free, &mut places, &key)?;
            let start = table.start.0 + skews.below(table.skew.0);
            let start_at = hosts.iter().map(|_| start + jitters.below(table.jitter.0)).collect();
            let mut job = Job {
                class: table.class.clone(),
                collective: match table.collective {
                    CollectiveName::AllReduce => Collective::AllReduce,
                    CollectiveName::AllGather => Collective::AllGather,
                    CollectiveName::ReduceScatter => Collective::ReduceScatter,
                    CollectiveName::Stream => Collective::Stream { steps: table.steps.unwrap_or(1) },
                },
                iterations: table.iterations,
                compute_ns: table.compute.0,
                chunk_bytes: table.chunk.0 as u32, // at most 1 GiB
                channels: table.channels,
                requests_per_step: table.requests_per_step,
                path_mtu: table.path_mtu,
                nic_bps: vec![file.fabric.rate.0; hosts.len()],
                start_at,
                congestion_control: Some(cc),
                step_size_known: table.step_size_known,
                known: table.known,
                idle_ns: idle_ns(table, file.fabric.rate.0),
                hosts,
            };
            check(&job, &key)?;
            hold_up(&mut job, table, &mut stragglers, &key)?;
            jobs.push(job);
        }
    }
    Ok(jobs)
}

fn idle_ns(table: &JobTable, bps: u64) -> Nanos {
    match table.idle {
        Idle::Time(time) => time.0,
        Idle::Steps(steps) => {
            let bits = u128::from(steps) * u128::from(table.chunk.0) * u128::from(table.channels) * 8;
            Nanos::try_from(bits * 1_000_000_000 / u128::from(bps.max(1))).unwrap_or(Nanos::MAX).min(LONGEST.0)
        }
    }
}

/// What is wrong with a job as a whole.
fn check(job: &Job, key: &Key) -> Result<(), Wrong> {
    let ranks = job.hosts.len() as u32;
    for (rank, &host) in (0u32..).zip(&job.hosts) {
        let next = (rank + 1) % ranks;
        if job.collective.sends(rank, ranks) && job.hosts[next as usize] == host {
            return Err(key.name("hosts").wrong(format!(
                "ranks {rank} and {next} are neighbours on host {host}, and a switch sends nothing back where it came \
                 from; put another host between them, or leave out one of them"
            )));
        }
    }
    let steps = u64::from(job.collective.steps(ranks)) * u64::from(job.iterations);
    if steps > MOST_STEPS {
        let wrong = format!(
            "{} of {} steps; all together at most {MOST_STEPS}",
            job.iterations,
            steps / u64::from(job.iterations)
        );
        return Err(key.name("iterations").wrong(wrong));
    }
    Ok(())
}

/// Host of each rank of one job.
fn hosts(table: &JobTable, shape: Shape, free: &mut Vec<u32>, places: &mut Draw, key: &Key) -> Result<Vec<u32>, Wrong> {
    if let Some(hosts) = &table.hosts {
        if let Some(rank) = hosts.iter().position(|host| *host >= shape.hosts()) {
            let wrong = format!("there is no host {}; there are {}, counted from 0", hosts[rank], shape.hosts());
            return Err(key.name("hosts").index(rank).wrong(wrong));
        }
        if hosts.len() < 2 {
            return Err(key.name("hosts").wrong(format!("{} host(s); a ring has at least 2 ranks", hosts.len())));
        }
        free.retain(|host| !hosts.contains(host));
        return Ok(hosts.clone());
    }
    let ranks = table.ranks.ok_or_else(|| key.name("ranks").wrong("missing; say how many ranks, or on which hosts"))?;
    if ranks < 2 {
        return Err(key.name("ranks").wrong(format!("{ranks}; a ring has at least 2")));
    }
    let mut hosts = Vec::new();
    for rank in 0..ranks {
        let host = match table.place {
            Place::InOrder => (!free.is_empty()).then(|| free.remove(0)),
            Place::Stride => {
                let leaf = rank % shape.leaves;
                let place = free.iter().position(|host| host / shape.hosts_per_leaf == leaf);
                place.map(|place| free.remove(place))
            }
            Place::Random => places.take(free),
        };
        hosts.push(host.ok_or_else(|| {
            key.name("ranks").wrong(format!("{ranks}: no host is left for rank {rank}; use fewer ranks or more hosts"))
        })?);
    }
    // Later jobs take the lowest host that is left, whatever was drawn before.
    free.sort_unstable();
    Ok(hosts)
}

/// Slows and delays the stragglers of a job.
fn hold_up(job: &mut Job, table: &JobTable, stragglers: &mut Draw, key: &Key) -> Result<(), Wrong> {
    let drawn = stragglers.below(job.hosts.len() as u64) as u32;
    let Some(straggler) = &table.straggler else { return Ok(()) };
    for &rank in straggler.ranks.as_deref().unwrap_or(&[drawn]) {
        let (Some(nic), Some(start)) = (job.nic_bps.get_mut(rank as usize), job.start_at.get_mut(rank as usize)) else {
            let wrong = format!("there is no rank {rank}; there are {}, counted from 0", job.hosts.len());
            return Err(key.name("straggler").name("ranks").wrong(wrong));
        };
        *nic = ((*nic as f64 * straggler.nic_percent / 100.0) as u64).max(1);
        *start += straggler.late.0;
    }
    Ok(())
}

fn background(file: &File, shape: Shape, seed: u64, cc: dcqcn::Parameters) -> Result<Vec<Transfer>, Wrong> {
    let mut draw = Draw::new(seed, Stream::Background);
    let mut transfers = Vec::new();
    for (index, table) in file.background.iter().enumerate() {
        if table.senders == 0 || table.senders >= shape.hosts() {
            let wrong = format!("{}; use 1 to {}: the receiver is another host", table.senders, shape.hosts() - 1);
            return Err(Key::new("background").index(index).name("senders").wrong(wrong));
        }
        let mut start_at = draw.exponential(table.mean_gap.0);
        while start_at < table.until.0 {
            if transfers.len() >= MOST_TRANSFERS {
                let wrong = format!(
                    "{}: more than {MOST_TRANSFERS} transfers until then; use less, or a longer mean_gap",
                    table.until
                );
                return Err(Key::new("background").index(index).name("until").wrong(wrong));
            }
            let mut others: Vec<u32> = (0..shape.hosts()).collect();
            let to = draw.take(&mut others).unwrap_or(0);
            for _ in 0..table.senders {
                let from = draw.take(&mut others).unwrap_or(0);
                let bytes = table.bytes.0 as u32; // at most 1 GiB
                transfers.push(Transfer { from, to, bytes, start_at, congestion_control: Some(cc) });
            }
            start_at += draw.exponential(table.mean_gap.0).max(1);
        }
    }
    Ok(transfers)
}
