//! `symphony ring`: one or all ranks of a ring job, with real RoCEv2 packets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration as StdDuration;

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::table::Table;
use crate::backend::host::{self, RankReport, ServerSpec};
use crate::control::units::{Bytes, Duration, Rate};
use crate::dataplane::Nanos;
use crate::roce::dcqcn::Parameters;
use crate::roce::{Collective, Config, Immediate, Outcome, SourcePort};

/// Share of lost sending time from which the machine, not the network, is suspected.
const STARVED: f64 = 0.01;

/// DCQCN's parameter sets are made for this rate.
const NOMINAL_RATE_BPS: f64 = 10e9;

const EXAMPLES: &str = "\
Examples:
  All ranks of a ring between four namespaces that share a bridge or a switch (ip netns list):
    symphony ring --ring 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4 --all --netns h1,h2,h3,h4

  One rank here, the others wherever they are; they wait for each other:
    h1# symphony ring --ring 10.0.0.1,10.0.0.2 --rank 0
    h2# symphony ring --ring 10.0.0.1,10.0.0.2 --rank 1

  A straggler: rank 3 has a NIC of 10 Mbit/s:
    symphony ring --ring .. --all --netns .. --line-rate 200Mbit,200Mbit,200Mbit,10Mbit

Every rank must be told the same --ring, --job, --run, --bytes, --collective, --channels, --requests-per-step,
--path-mtu, --first-psn and --seed. Needs root, or CAP_NET_RAW, and for --netns CAP_SYS_ADMIN.

Exit status: 0 all values right, 1 a rank failed or has a wrong value, 2 could not run.";

/// Arguments.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
#[command(group(clap::ArgGroup::new("which").required(true).args(["rank", "all"])))]
pub struct Args {
    /// Addresses of all ranks in ring order, IPv4 or IPv6
    #[arg(long, value_name = "ADDR,..", value_delimiter = ',', required = true)]
    ring: Vec<IpAddr>,
    /// Run this rank, from 0
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Run every rank
    #[arg(long)]
    all: bool,
    /// Network namespace of the rank, or of each rank in ring order [default: here]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    netns: Vec<String>,
    /// What the ranks do together
    #[arg(long, value_enum, default_value = "all-reduce")]
    collective: Kind,
    /// Each rank's buffer; of a stream: what a sender sends
    #[arg(long, value_name = "BYTES", default_value = "4MiB")]
    bytes: Bytes,
    /// Steps of a stream
    #[arg(long, value_name = "N", default_value_t = 16)]
    steps: u32,
    /// How often, one collective after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    iterations: u32,
    /// Independent rings that share the buffer
    #[arg(long, value_name = "N", default_value_t = 1)]
    channels: u32,
    /// Messages a step (NCCL's Simple protocol: 2)
    #[arg(long, value_name = "N", default_value_t = 2)]
    requests_per_step: u32,
    /// Payload of a packet: 256, 512, 1024, 2048 or 4096; the interface's MTU must be 64 larger (IPv6: 84)
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    path_mtu: u32,
    /// Rate of the emulated NIC, for all or for each rank
    #[arg(long, value_name = "RATE,..", value_delimiter = ',', default_value = "200Mbit")]
    line_rate: Vec<Rate>,
    /// DCQCN parameters: dc55, dc300, hpcc300, hpcc900, mlx4; or none
    #[arg(long, value_name = "SET", default_value = "dc55")]
    cc: String,
    /// Slows DCQCN down by this factor: times x F, rates / F [default: 10 Gbit/s over the fastest line rate]
    #[arg(long, value_name = "F")]
    scale: Option<f64>,
    /// Number of the job
    #[arg(long, value_name = "N", default_value_t = 1)]
    job: u32,
    /// Number of the run; another one gives fresh queue pairs
    #[arg(long, value_name = "N", default_value_t = 0)]
    run: u32,
    /// First PSN of every queue pair
    #[arg(long, value_name = "PSN", default_value = "0", value_parser = psn)]
    first_psn: u32,
    /// Put a request counter into immediates instead of sizes
    #[arg(long)]
    imm_id: bool,
    /// Put the step into the low 14 bits of the UDP source port
    #[arg(long)]
    step_tag: bool,
    /// Seed of the values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on a neighbour that has not answered for so long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    connect_timeout: Duration,
    /// Send again what is not acknowledged for so long
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    retransmit_timeout: Duration,
    /// Stop after so long [default: 20 times what an idle network takes, and a minute]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    /// Even ranks send to the next one, nobody waits
    Stream,
}

fn psn(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.ok().filter(|psn| *psn <= crate::roce::psn::MASK).ok_or("write 0 to 16777215, or 0x0 to 0xffffff".into())
}

/// Runs the ranks and reports how they fared.
///
/// # Errors
/// What keeps them from running.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut configs =
        (0..args.ring.len() as u32).map(|rank| config(&args, rank)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(rank) = args.rank {
        ensure!((rank as usize) < configs.len(), "--rank {rank}: the ring has ranks 0 to {}", configs.len() - 1);
        configs = vec![configs.swap_remove(rank as usize)];
    }
    let ideal_ns = configs.iter().map(ideal_ns).max().unwrap_or(0);
    let limit = args.timeout.map_or(args.connect_timeout.0 + 20 * ideal_ns + 60_000_000_000, |timeout| timeout.0);
    let stop = super::run::stop_on_signals().context("cannot catch SIGINT and SIGTERM")?;
    // Buffers are filled before the start: a millisecond a MiB is plenty.
    let filled = (configs.len() as u64 * args.bytes.0) >> 20;
    let start_at = host::now() + 50_000_000 + filled * 1_000_000;
    configs.iter_mut().for_each(|config| config.start_at = start_at);

    let reports = host::run(&servers(&args, configs.clone())?, StdDuration::from_nanos(limit), &stop)?;
    let result = RingResult::new(&args, &configs[0], reports);
    for line in &result.warnings {
        tracing::warn!("{line}");
    }
    match args.json {
        true => super::print_json(&result)?,
        false => super::print(result.table())?,
    }
    Ok(ExitCode::from(if result.verified { 0 } else { super::FAILED }))
}

/// One value for all ranks, or one for each.
fn pick<'a, T>(values: &'a [T], rank: u32, ranks: usize, flag: &str) -> anyhow::Result<&'a T> {
    match values {
        [all] => Ok(all),
        each if each.len() == ranks => Ok(&each[rank as usize]),
        _ => bail!("{flag} has {} values for {ranks} ranks: give one, or one for each rank", values.len()),
    }
}

fn config(args: &Args, rank: u32) -> anyhow::Result<Config> {
    let base = Config::new(args.job, &args.ring, rank)?;
    let collective = match args.collective {
        Kind::AllReduce => Collective::AllReduce,
        Kind::AllGather => Collective::AllGather,
        Kind::ReduceScatter => Collective::ReduceScatter,
        Kind::Stream => Collective::Stream { steps: args.steps },
    };
    let pieces = match collective {
        Collective::Stream { steps } => steps.max(1),
        _ => base.ranks,
    };
    let chunk = args.bytes.0.div_ceil(u64::from(pieces) * u64::from(args.channels.max(1))).next_multiple_of(4);
    let line_rate_bps = pick(&args.line_rate, rank, args.ring.len(), "--line-rate")?.0;
    ensure!(line_rate_bps > 0, "--line-rate 0: sends nothing; use for instance 200Mbit");
    let fastest = args.line_rate.iter().map(|rate| rate.0).max().unwrap_or(0);
    let scale = args.scale.unwrap_or((NOMINAL_RATE_BPS / fastest as f64).max(1e-3));
    ensure!(scale.is_finite() && (1e-3..=1e6).contains(&scale), "--scale {scale}: use 0.001 to 1000000");
    let congestion_control = match args.cc.as_str() {
        "none" => None,
        name => Some(
            Parameters::named(name)
                .with_context(|| format!("--cc {name}: use one of {}, none", Parameters::NAMES.join(", ")))?
                .scaled(scale),
        ),
    };
    let config = Config {
        run: args.run,
        collective,
        iterations: args.iterations,
        chunk_bytes: u32::try_from(chunk)
            .with_context(|| format!("--bytes {} makes steps of {chunk} bytes: more than 1 GiB", args.bytes))?,
        channels: args.channels,
        requests_per_step: args.requests_per_step,
        path_mtu: args.path_mtu,
        line_rate_bps,
        congestion_control,
        first_psn: args.first_psn,
        immediate: if args.imm_id { Immediate::RequestId } else { Immediate::Size },
        source_port: if args.step_tag { SourcePort::StepTag } else { SourcePort::Verbs },
        retransmit_timeout_ns: args.retransmit_timeout.0,
        connect_timeout_ns: args.connect_timeout.0,
        seed: args.seed,
        ..base
    };
    config.check()?;
    Ok(config)
}

/// Time to send everything at line rate.
fn ideal_ns(config: &Config) -> Nanos {
    let steps = u64::from(config.collective.steps(config.ranks)) * u64::from(config.iterations);
    let bits = u128::from(config.chunk_bytes) * u128::from(config.channels) * u128::from(steps) * 8;
    (bits * 1_000_000_000 / u128::from(config.line_rate_bps)).min(u128::from(u64::MAX / 32)) as Nanos
}

/// Ranks by namespace.
fn servers(args: &Args, configs: Vec<Config>) -> anyhow::Result<Vec<ServerSpec>> {
    let mut servers: BTreeMap<Option<String>, Vec<Config>> = BTreeMap::new();
    for config in configs {
        let netns = match args.netns.as_slice() {
            [] => None,
            names => Some(pick(names, config.rank, args.ring.len(), "--netns")?.clone()),
        };
        servers.entry(netns).or_default().push(config);
    }
    Ok(servers.into_iter().map(|(netns, ranks)| ServerSpec { netns, ranks }).collect())
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct RingResult {
    version: u32,
    job: u32,
    run: u32,
    ranks: u32,
    bytes: u64,
    step_bytes: u64,
    steps: u32,
    packets_per_step: u32,
    path_mtu: u32,
    /// All ranks that ran here finished, with the right values.
    verified: bool,
    /// Start to the last of them; null when one did not finish.
    jct_ms: Option<f64>,
    results: Vec<Value>,
    warnings: Vec<String>,
}

impl RingResult {
    fn new(args: &Args, config: &Config, mut reports: Vec<RankReport>) -> Self {
        reports.sort_by_key(|report| report.rank);
        let ms = |from: Nanos, to: Nanos| to.saturating_sub(from) as f64 / 1e6;
        let finished: Option<Vec<f64>> = reports.iter().map(|r| r.finish.map(|finish| ms(r.start, finish))).collect();
        let rank = |report: &RankReport| {
            let wrong = report.verified.and_then(Result::err);
            let error = match report.outcome {
                Outcome::Failed(failure) => Some(failure.to_string()),
                Outcome::Running => Some(format!("stopped after {} steps", report.steps.len())),
                Outcome::Finished { .. } => wrong.map(|wrong| wrong.to_string()),
            };
            json!({
                "rank": report.rank,
                "address": args.ring[report.rank as usize],
                "finish_ms": report.finish.map(|finish| ms(report.start, finish)),
                "steps_ms": report.steps.iter().map(|&step| ms(report.start, step)).collect::<Vec<_>>(),
                "verified": matches!(report.verified, Some(Ok(()))),
                "error": error,
                "counters": report.counters,
                "malformed": report.malformed,
                "refused": report.refused,
                "host": {
                    "late_max_us": report.starvation.late_max_ns as f64 / 1e3,
                    "share_lost": report.starvation.share_lost,
                    "receive_overflows": report.starvation.receive_overflows,
                    "cpu_ms": report.starvation.cpu_ns as f64 / 1e6,
                },
            })
        };
        RingResult {
            version: 1,
            job: args.job,
            run: args.run,
            ranks: config.ranks,
            bytes: args.bytes.0,
            step_bytes: u64::from(config.chunk_bytes) * u64::from(config.channels),
            steps: config.collective.steps(config.ranks) * config.iterations,
            packets_per_step: config.packets_per_step(),
            path_mtu: config.path_mtu,
            verified: reports.iter().all(|report| matches!(report.verified, Some(Ok(())))),
            jct_ms: finished.map(|times| times.into_iter().fold(0.0, f64::max)),
            warnings: reports.iter().flat_map(warnings).collect(),
            results: reports.iter().map(rank).collect(),
        }
    }

    /// For people.
    fn table(&self) -> String {
        let columns = [
            ("rank", "/rank"),
            ("address", "/address"),
            ("ms", "/finish_ms"),
            ("packets", "/counters/packets_sent"),
            ("sent again", "/counters/retransmitted_packets"),
            ("CE", "/counters/ce_received"),
            ("CNPs", "/counters/cnps_received"),
            ("values right", "/verified"),
            ("error", "/error"),
        ];
        let results = json!(self.results);
        let table = Table::of_objects(&results, &columns);
        let verdict = match (self.verified, self.jct_ms) {
            (true, Some(ms)) => {
                format!("{} steps of {} bytes in {ms:.1} ms, all values right", self.steps, self.step_bytes)
            }
            (_, Some(_)) => "WRONG VALUES".into(),
            (_, None) => "NOT FINISHED".into(),
        };
        format!("{table}\n{verdict}")
    }
}

/// What makes a rank's figures doubtful, and what to do.
fn warnings(report: &RankReport) -> Vec<String> {
    let (rank, host) = (report.rank, &report.starvation);
    let mut warnings = Vec::new();
    if host.share_lost > STARVED {
        warnings.push(format!(
            "rank {rank} lost {:.1} % of its sending time (at most {:.1} ms at once) because this machine was too busy, not \
             because of the network: use a lower --line-rate, or fewer ranks",
            host.share_lost * 100.0,
            host.late_max_ns as f64 / 1e6
        ));
    }
    if host.receive_overflows > 0 {
        warnings.push(format!(
            "rank {rank}: the kernel threw {} packets away that were read too slowly: use a lower --line-rate",
            host.receive_overflows
        ));
    }
    if let Some(why) = &report.last_refusal {
        warnings.push(format!(
            "rank {rank}: its kernel refused to send {} packets, the last one because: {why}",
            report.refused
        ));
    }
    for (reason, count) in &report.malformed {
        warnings.push(format!("rank {rank} received {count} packets that are no good: {reason}"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("ring").chain(line.split(' '))).map(|line| line.args)
    }

    const RING: &str = "--ring 10.0.0.1,10.0.0.2,10.0.0.3";

    #[test]
    fn a_buffer_is_cut_into_steps_of_whole_values() {
        let config = |more: &str| config(&parse(&format!("{RING} --all {more}")).unwrap(), 0).unwrap();
        assert_eq!(config("--bytes 1000B").chunk_bytes, 336);
        assert_eq!(config("--bytes 1000B --channels 2").chunk_bytes, 168);
        assert_eq!(config("--bytes 1GB --collective stream --steps 100").chunk_bytes, 10_000_000);
        assert_eq!(config("--bytes 3KiB").packets_per_step(), 2);
    }

    #[test]
    fn dcqcn_is_scaled_to_the_fastest_rank() {
        let args = parse(&format!("{RING} --all --line-rate 100Mbit,200Mbit,10Mbit")).unwrap();
        let scaled = Some(Parameters::DC55.scaled(50.0));
        assert!((0..3).all(|rank| config(&args, rank).unwrap().congestion_control == scaled));
        assert_eq!(config(&args, 2).unwrap().line_rate_bps, 10_000_000);
    }

    #[test]
    fn ranks_in_one_namespace_share_a_server() {
        let args = parse(&format!("{RING} --all --netns a,b,a")).unwrap();
        let configs = (0..3).map(|rank| config(&args, rank).unwrap()).collect();
        let servers = servers(&args, configs).unwrap();
        let names: Vec<_> = servers.iter().map(|s| (s.netns.as_deref(), s.ranks.len())).collect();
        assert_eq!(names, [(Some("a"), 2), (Some("b"), 1)]);
    }

    #[test]
    fn wrong_arguments_are_answered_with_the_cure() {
        let error = |more: &str| {
            let args = parse(&format!("{RING} {more}")).map_err(|error| error.to_string());
            args.map_or_else(|error| error, |args| config(&args, 0).unwrap_err().to_string())
        };
        assert!(error("--all --line-rate 1Gbit,2Gbit").contains("one for each rank"));
        assert!(error("--all --path-mtu 1500").contains("256, 512, 1024, 2048 or 4096"));
        assert!(error("--all --cc bbr").contains("dc55, dc300"));
        assert!(error("--all --first-psn 0x1000000").contains("0xffffff"));
        assert!(error("--all --rank 0").contains("cannot be used with"));
        assert!(error("--bytes 1MB").contains("required"));
    }
}
