//! From the file's tables to what the core is told, with every check that needs more than one value's type.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use super::error::{Key, Wrong};
use super::file::{
    Datapath, DirectionName, Ecn, FaultTable, File, JobTable, Mode, PolicyName, PortTable, RouteTable, StepSourceName,
    SymphonyTable, ViaTable, packets_per_step,
};
use super::{Config, Purpose};
use crate::control::units::{Duration, Idle};
use crate::dataplane::{Direction, Fault, MacAddress, Nanos, PortConfig, PortId, Red, SwitchConfig};
use crate::functions::forward::{ForwardConfig, NextHop, Prefix, Route, RouteMatch};
use crate::functions::symphony::{Job, Parameters, Policy, StepSource};

const MAX_PORTS: usize = 64;
const MAX_JOBS: usize = 1024;
const MAX_EDGES: usize = 65536;
/// Registers keep times in 1024 ns ticks of 32 bits, which wrap after 73 minutes.
const MAX_TIME_NS: Nanos = 3_600_000_000_000;
/// Step time taken where `step_size` or every port's rate is unknown, so that `"10 steps"` are 100 ms.
const ASSUMED_STEP_NS: Nanos = 10_000_000;

/// Compiles jobs and parameters, at start and at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compiler {
    /// What for.
    pub purpose: Purpose,
    /// The slowest port's emulated line rate, where any has one.
    pub slowest_rate_bps: Option<u64>,
}

pub(super) fn config(file: File, purpose: Purpose) -> Result<Config, Wrong> {
    let switch = Key::new("switch");
    let name = &file.switch.name;
    if !is_name(name) {
        return Err(switch.name("name").wrong(no_name(name)));
    }
    if purpose == Purpose::Live && file.switch.datapath == Datapath::Xdp {
        return Err(switch.name("datapath").wrong("the xdp datapath is not built yet; use \"afxdp\""));
    }
    let control = file.switch.control.clone().unwrap_or_default();
    if control.is_empty() || control.len() > 90 {
        let length = control.len();
        return Err(switch
            .name("control")
            .wrong(format!("the path has {length} bytes; Unix sockets take 1 to 90 here")));
    }
    if file.serene.is_some() && file.ports.len() == MAX_PORTS {
        let wrong =
            format!("{MAX_PORTS} ports and [serene], which takes one for its control plane; leave one port out");
        return Err(Key::new("port").index(MAX_PORTS - 1).wrong(wrong));
    }
    let (ports, interfaces) = ports(&file.ports, purpose)?;
    let forward = forward(&file, &ports)?;
    let config = Config {
        name: name.clone(),
        control: PathBuf::from(control),
        switch: SwitchConfig {
            buffer_bytes: positive(file.switch.buffer.0, &switch.name("buffer"))?,
            seed: file.switch.seed.into(),
            ports,
        },
        interfaces,
        forward,
        parameters: Parameters::default(),
        jobs: Vec::new(),
        serene: None,
        file,
    };
    let compiler = config.compiler(purpose);
    let parameters = compiler.parameters(&config.file.symphony, &Key::new("symphony"))?;
    let jobs = compiler.jobs(&config.file.jobs)?;
    Ok(Config { parameters, jobs, ..config })
}

fn ports(tables: &[PortTable], purpose: Purpose) -> Result<(Vec<PortConfig>, Vec<String>), Wrong> {
    let key = Key::new("port");
    if tables.len() > MAX_PORTS {
        return Err(key.index(MAX_PORTS).wrong(format!("{} ports; a switch has at most {MAX_PORTS}", tables.len())));
    }
    let (mut ports, mut interfaces): (Vec<PortConfig>, Vec<String>) = Default::default();
    for (index, table) in tables.iter().enumerate() {
        let key = key.index(index);
        let name = table.name.clone().unwrap_or_default();
        let interface = table.interface.clone().unwrap_or_default();
        if !is_name(&name) {
            return Err(key.name("name").wrong(no_name(&name)));
        }
        if ports.iter().any(|port| port.name == name) {
            return Err(key.name("name").wrong(format!("two ports are called {name:?}; give each its own name")));
        }
        if interface.is_empty() || interface.len() > 15 || interface.contains(|c: char| c == '/' || c.is_whitespace()) {
            let wrong = format!("{interface:?} cannot be an interface; `ip -br link` lists them (1 to 15 bytes)");
            return Err(key.name("interface").wrong(wrong));
        }
        if let Some(other) = interfaces.iter().position(|other| *other == interface) {
            let wrong =
                format!("{interface:?} is the interface of port {:?} already; a port has its own", ports[other].name);
            return Err(key.name("interface").wrong(wrong));
        }
        if table.rate.is_some_and(|rate| rate.0 == 0) {
            return Err(key.name("rate").wrong("0 sends nothing; leave `rate` out for as fast as it goes"));
        }
        ports.push(PortConfig {
            name,
            rate_bps: table.rate.map(|rate| rate.0),
            buffer_bytes: positive(table.buffer.0, &key.name("buffer"))?,
            red: red(&table.ecn, &key.name("ecn"))?,
            pfc: None,
            // What a capture has lost is lost already.
            fault: fault(table.fault.as_ref(), &key.name("fault"))?.filter(|_| purpose == Purpose::Live),
        });
        interfaces.push(interface);
    }
    Ok((ports, interfaces))
}

fn red(ecn: &Ecn, key: &Key) -> Result<Option<Red>, Wrong> {
    let Ecn::Red(table) = ecn else { return Ok(None) };
    if table.kmin > table.kmax {
        let wrong = format!("{} is above kmax = {}; kmin <= kmax", table.kmin, table.kmax);
        return Err(key.name("kmin").wrong(wrong));
    }
    fraction(table.pmax, &key.name("pmax"))?;
    Ok(Some(Red { kmin_bytes: table.kmin.0, kmax_bytes: table.kmax.0, pmax: table.pmax }))
}

pub(super) fn fault(table: Option<&FaultTable>, key: &Key) -> Result<Option<Fault>, Wrong> {
    let Some(table) = table else { return Ok(None) };
    let FaultTable { direction, loss, duplicate, delay, delay_jitter, reorder, corrupt } = *table;
    for (name, value) in [("loss", loss), ("duplicate", duplicate), ("reorder", reorder), ("corrupt", corrupt)] {
        fraction(value, &key.name(name))?;
    }
    if delay_jitter > delay {
        let wrong = format!("{delay_jitter} is more than delay = {delay}; no packet comes before it was sent");
        return Err(key.name("delay_jitter").wrong(wrong));
    }
    if reorder > 0.0 && delay == Duration(0) {
        let wrong = format!("{reorder}, but no packet is held back that another could overtake; give a delay");
        return Err(key.name("reorder").wrong(wrong));
    }
    Ok(Some(Fault {
        direction: match direction {
            DirectionName::In => Direction::In,
            DirectionName::Out => Direction::Out,
            DirectionName::Both => Direction::Both,
        },
        loss,
        duplicate,
        delay_ns: time(delay, &key.name("delay"))?,
        delay_jitter_ns: delay_jitter.0,
        reorder,
        corrupt,
    }))
}

fn forward(file: &File, ports: &[PortConfig]) -> Result<ForwardConfig, Wrong> {
    let key = Key::new("route");
    if file.forwarding.mode == Mode::Learning {
        return match file.routes.is_empty() {
            true => Ok(ForwardConfig::Learning),
            false => Err(key.index(0).wrong("a learning switch takes no routes; set [forwarding] mode = \"static\"")),
        };
    }
    let mut routes: Vec<Route> = Vec::new();
    for (index, table) in file.routes.iter().enumerate() {
        let key = key.index(index);
        let route = route(table, ports, &key)?;
        if routes.iter().any(|other| other.matches == route.matches) {
            let wrong = format!("{:?} is matched twice; put all next hops into one `via`", table.matches);
            return Err(key.name("match").wrong(wrong));
        }
        routes.push(route);
    }
    Ok(ForwardConfig::Static(routes))
}

fn route(table: &RouteTable, ports: &[PortConfig], key: &Key) -> Result<Route, Wrong> {
    let matches = match table.matches.contains('/') {
        true => RouteMatch::Prefix(prefix(&table.matches, &key.name("match"))?),
        false => RouteMatch::Mac(mac(&table.matches).ok_or_else(|| {
            let wrong = format!("{:?} is neither a MAC (02:00:00:00:00:01) nor a prefix (10.0.0.0/24)", table.matches);
            key.name("match").wrong(wrong)
        })?),
    };
    if table.via.is_empty() {
        return Err(key.name("via").wrong("no next hop; name at least one { port = .. }"));
    }
    let routed = matches!(matches, RouteMatch::Prefix(_));
    let via =
        table.via.iter().enumerate().map(|(index, via)| next_hop(via, routed, ports, &key.name("via").index(index)));
    Ok(Route { matches, via: via.collect::<Result<_, _>>()? })
}

fn next_hop(table: &ViaTable, routed: bool, ports: &[PortConfig], key: &Key) -> Result<NextHop, Wrong> {
    let Some(port) = ports.iter().position(|port| port.name == table.port) else {
        let known: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
        let wrong = format!("no port is called {:?}; there are: {}", table.port, known.join(", "));
        return Err(key.name("port").wrong(wrong));
    };
    let mac = match (&table.mac, routed) {
        (Some(text), true) => Some(mac(text).filter(|mac| mac[0] & 1 == 0).ok_or_else(|| {
            key.name("mac").wrong(format!("{text:?} is no station's MAC; write it as 02:00:00:00:00:01"))
        })?),
        (None, true) => return Err(key.wrong("a routed packet needs its next hop's MAC; add mac = \"..\"")),
        (Some(_), false) => return Err(key.name("mac").wrong("a MAC route does not rewrite MACs; leave `mac` out")),
        (None, false) => None,
    };
    Ok(NextHop { port: port as PortId, mac, source_mac: None })
}

impl Compiler {
    /// Symphony's parameters.
    ///
    /// # Errors
    /// The first value out of its range; `key` is what the table is called.
    pub fn parameters(&self, table: &SymphonyTable, key: &Key) -> Result<Parameters, Wrong> {
        let threshold = table.threshold * 256.0;
        if !(1.0..=1e9).contains(&threshold) {
            let wrong = format!("{} steps; use 1/256 or more (default 0.125, safest 1)", table.threshold);
            return Err(key.name("threshold").wrong(wrong));
        }
        if !(0.0..=1000.0).contains(&table.queue) {
            let wrong = format!("{}; use a fraction of kmin such as 0.25, or 0 for any non-empty queue", table.queue);
            return Err(key.name("queue").wrong(wrong));
        }
        if !(0.0..=1e6).contains(&table.min_step) {
            let wrong =
                format!("{}; use a number of recoveries such as 2, or 0 to mark jobs of any step", table.min_step);
            return Err(key.name("min_step").wrong(wrong));
        }
        fraction(table.blind_probability, &key.name("blind_probability"))?;
        let epoch = table.epoch.0;
        let shift = epoch
            .checked_ilog2()
            .filter(|shift| (10..=40).contains(shift))
            .ok_or_else(|| key.name("epoch").wrong(format!("{}; use 1024ns to 1099s, about 20 steps", table.epoch)))?;
        Ok(Parameters {
            enabled: table.enabled,
            policy: match table.policy {
                PolicyName::OwnerMin => Policy::OwnerMin,
                PolicyName::Gold => Policy::Gold,
                PolicyName::Null => Policy::Null,
                PolicyName::Blind => Policy::Blind { probability: table.blind_probability },
            },
            threshold: threshold.round() as i32,
            growing: table.growing,
            queue_fraction: table.queue,
            only_below_kmin: table.only_below_kmin,
            gap_ns: time(table.gap, &key.name("gap"))?,
            epoch_ns: 1 << shift,
            gold_idle_ns: time(table.gold_idle, &key.name("gold_idle"))?,
            recovery_ns: time(table.recovery, &key.name("recovery"))?,
            min_step: table.min_step,
        })
    }

    fn jobs(&self, tables: &[JobTable]) -> Result<Vec<Job>, Wrong> {
        let key = Key::new("job");
        if tables.len() > MAX_JOBS {
            return Err(key.index(MAX_JOBS).wrong(format!("{} jobs; a switch knows at most {MAX_JOBS}", tables.len())));
        }
        let mut jobs: Vec<Job> = Vec::new();
        let mut edges: HashMap<(IpAddr, IpAddr), u32> = HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            let key = key.index(index);
            let job = self.job(table, &key)?;
            if jobs.iter().any(|other| other.id == job.id) {
                return Err(key.name("id").wrong(format!("{} is the id of two jobs; give each its own", job.id)));
            }
            for (rank, (&src, &dst)) in job.ring.iter().zip(job.ring.iter().cycle().skip(1)).enumerate() {
                if let Some(other) = edges.insert((src, dst), job.id) {
                    let wrong = format!(
                        "jobs {other} and {} both claim the edge {src} -> {dst}; give the ranks of each job addresses \
                         of their own",
                        job.id
                    );
                    return Err(key.name("ring").index(rank).wrong(wrong));
                }
            }
            if edges.len() > MAX_EDGES {
                return Err(key.name("ring").wrong(format!("more than {MAX_EDGES} edges in all; use smaller rings")));
            }
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// One job. That no other job has its id or one of its edges is checked where the others are known.
    ///
    /// # Errors
    /// The first value that cannot be; `key` is what the table is called.
    pub fn job(&self, table: &JobTable, key: &Key) -> Result<Job, Wrong> {
        let mut table = table.clone();
        table.fill(0);
        let ring = ring(&table.ring, &key.name("ring"))?;
        let name = table.name.as_deref().unwrap_or_default();
        if !is_name(name) {
            return Err(key.name("name").wrong(no_name(name)));
        }
        let requests = table.requests_per_step;
        if requests == 0 {
            return Err(key.name("requests_per_step").wrong("0; a step has at least 1 request (NCCL Simple: 2)"));
        }
        if table.step_source == StepSourceName::Imm && !requests.is_power_of_two() {
            let wrong = format!("{requests} is no power of two, which step_source = \"imm\" needs; use 1, 2, 4, ..");
            return Err(key.name("requests_per_step").wrong(wrong));
        }
        self.path_mtu(table.path_mtu, &key.name("path_mtu"))?;
        let packets = packets(&table, key)?;
        let steps = table.steps_per_collective.unwrap_or_default();
        if !(1..=65535).contains(&steps) {
            let wrong = format!("{steps}; use 1 to 65535 (2(n-1) for an all-reduce of n ranks)");
            return Err(key.name("steps_per_collective").wrong(wrong));
        }
        Ok(Job {
            id: table.id.unwrap_or_default(),
            name: name.to_owned(),
            ring,
            step_source: match table.step_source {
                StepSourceName::Message => StepSource::Message,
                StepSourceName::Psn => StepSource::Psn,
                StepSourceName::Imm => StepSource::Imm,
                StepSourceName::UdpSport => StepSource::UdpSport,
            },
            requests_per_step: requests,
            packets_per_step: packets,
            path_mtu: table.path_mtu,
            steps_per_collective: steps,
            step_ns: packets.and_then(|packets| self.step_ns(packets, table.path_mtu)),
            idle_ns: self.idle(&table, &key.name("idle"))?,
            enabled: table.enabled,
        })
    }

    fn path_mtu(&self, path_mtu: u32, key: &Key) -> Result<(), Wrong> {
        match path_mtu {
            256 | 512 | 1024 | 2048 => Ok(()),
            4096 if self.purpose == Purpose::Replay => Ok(()),
            4096 => Err(key.wrong(
                "packets of path MTU 4096 do not fit an AF_XDP frame (a chunk of 4096 bytes less headroom, headers \
                 and all); set the path MTU of the hosts' queue pairs to 2048 or 1024",
            )),
            other => Err(key.wrong(format!("{other} is no RoCE path MTU; use 256, 512, 1024 or 2048"))),
        }
    }

    /// How long a step takes at the slowest port's rate, where one has a rate.
    fn step_ns(&self, packets: u32, path_mtu: u32) -> Option<Nanos> {
        let bits = u128::from(packets) * u128::from(path_mtu) * 8;
        let ns = bits * 1_000_000_000 / u128::from(self.slowest_rate_bps?.max(1));
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Idle time in ns. A step takes `step_size` at the slowest port's rate; where either is unknown, 10 ms.
    fn idle(&self, table: &JobTable, key: &Key) -> Result<Nanos, Wrong> {
        let idle = match (table.idle, table.step_size, self.slowest_rate_bps) {
            (Idle::Time(idle), _, _) => idle,
            (Idle::Steps(steps), Some(size), Some(rate)) => {
                let bits = u128::from(steps).saturating_mul((u128::from(size.0) * 8).min(u64::MAX.into()));
                let ns = bits.saturating_mul(1_000_000_000) / u128::from(rate.max(1));
                Duration(u64::try_from(ns).unwrap_or(u64::MAX))
            }
            (Idle::Steps(steps), _, _) => Duration(u64::from(steps) * ASSUMED_STEP_NS),
        };
        if idle.0 < 1024 {
            return Err(key.wrong(format!("{idle} is too short; use 2us or more")));
        }
        time(idle, key)
    }
}

fn packets(table: &JobTable, key: &Key) -> Result<Option<u32>, Wrong> {
    let key = key.name("packets_per_step");
    if let Some(size) = table.step_size {
        let computed = packets_per_step(size.0, table.requests_per_step, table.path_mtu);
        if computed.is_none() || computed != table.packets_per_step || computed == Some(0) {
            let wrong = format!(
                "{} packets a step, but step_size = {size} with path_mtu = {} and requests_per_step = {} makes {}; give \
                 only one of them",
                table.packets_per_step.unwrap_or_default(),
                table.path_mtu,
                table.requests_per_step,
                computed.unwrap_or_default()
            );
            return Err(key.wrong(wrong));
        }
    }
    match (table.packets_per_step, table.step_source) {
        (Some(0), _) => Err(key.wrong("0; leave it out where the step's size is not known")),
        (None, StepSourceName::Psn) => {
            Err(key.wrong("step_source = \"psn\" counts packets; give step_size, or packets_per_step"))
        }
        (packets, _) => Ok(packets),
    }
}

fn ring(texts: &[String], key: &Key) -> Result<Vec<IpAddr>, Wrong> {
    if texts.len() < 2 {
        return Err(key.wrong(format!("{} address(es); a ring has at least 2 ranks", texts.len())));
    }
    let mut ring: Vec<IpAddr> = Vec::with_capacity(texts.len());
    let mut seen = HashMap::new();
    for (rank, text) in texts.iter().enumerate() {
        let key = key.index(rank);
        let address = text
            .parse::<IpAddr>()
            .map_err(|_| key.wrong(format!("{text:?} is no IP address; write 10.0.0.1 or fd00::1")))?;
        let address = address.to_canonical(); // ::ffff:10.0.0.1 is 10.0.0.1, here and in the kernel
        if address.is_unspecified() || address.is_multicast() {
            return Err(key.wrong(format!("{address} is no host's address")));
        }
        if let Some(other) = seen.insert(address, rank) {
            return Err(key.wrong(format!("{address} is rank {other} already; each rank has its own address")));
        }
        if ring.first().is_some_and(|first| first.is_ipv4() != address.is_ipv4()) {
            return Err(key.wrong(format!("{address}: a ring is IPv4 or IPv6, not both")));
        }
        ring.push(address);
    }
    Ok(ring)
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn no_name(text: &str) -> String {
    format!("{text:?} is no name; use 1 to 64 letters, digits, `.`, `_`, `-`")
}

fn positive(bytes: u64, key: &Key) -> Result<u64, Wrong> {
    if bytes == 0 { Err(key.wrong("0 holds no packet; use for instance \"1MB\"")) } else { Ok(bytes) }
}

fn time(time: Duration, key: &Key) -> Result<Nanos, Wrong> {
    if time.0 > MAX_TIME_NS { Err(key.wrong(format!("{time} is more than an hour"))) } else { Ok(time.0) }
}

fn fraction(value: f64, key: &Key) -> Result<(), Wrong> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(key.wrong(format!("{value} is no probability; use 0 to 1"))) }
}

pub(super) fn mac(text: &str) -> Option<MacAddress> {
    let mut mac = MacAddress::default();
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

fn prefix(text: &str, key: &Key) -> Result<Prefix, Wrong> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let (address, limit): (Ipv6Addr, u8) = match address.parse().ok()? {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped(), 32),
            IpAddr::V6(v6) => (v6, 128),
        };
        let length = length.parse::<u8>().ok().filter(|length| *length <= limit)?;
        Some((address, 128 - limit + length))
    });
    let Some((address, bits)) = parsed else {
        return Err(key.wrong(format!("{text:?} is no prefix; write 10.0.0.0/24 or fd00::/64")));
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    if address.to_bits() & !mask != 0 {
        let network = Ipv6Addr::from_bits(address.to_bits() & mask).to_canonical();
        return Err(key.wrong(format!("{text:?} has bits behind the prefix; write {network} in front")));
    }
    Ok(Prefix { address: address.octets(), bits })
}
