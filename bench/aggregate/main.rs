//! How many values a second the switch adds up, next to a UDP parameter server on the same veths:
//!
//! ```sh
//! cargo build --release && cargo run --release --example aggregate      # as root
//! ```
//!
//! Workers, each a thread in a namespace of its own, push vectors as fast as they get sums back (bsp, nothing is computed
//! in between). Switch and server are one thread each. A value counts when it is added: workers x segments x lanes a round.
//! `busy` is the share of a processor that the switch's or server's thread used; `ns/packet` is that time by packets in and
//! out, kernel time of its system calls included. Where `busy` is far below 100 %, the workers were the limit.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use symphony::backend::aggregation::{Client, ClientConfig, ParameterServer, ServerConfig};
use symphony::backend::host::netns;

const PREFIX: &str = "sym-agg";
const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 255, 254), 24190);
const JOB: u8 = 1;

#[derive(Parser)]
struct Args {
    /// Worker threads, each in a namespace of its own
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    workers: Vec<u8>,
    /// Packets of a vector
    #[arg(long, default_value_t = 100)]
    segments: u32,
    /// Values of a packet
    #[arg(long, default_value_t = 256)]
    lanes: usize,
    /// Seconds to measure each
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Repeats; medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One measurement.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Row {
    aggregator: &'static str,
    workers: u8,
    mvalues_per_s: f64,
    rounds_per_s: f64,
    busy: f64,
    ns_per_packet: f64,
    retransmissions: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut rows = Vec::new();
    for &workers in &args.workers {
        let mut of = [Vec::new(), Vec::new()];
        for _ in 0..args.rounds.max(1) {
            for (rows, in_switch) in of.iter_mut().zip([true, false]) {
                rows.push(measure(&args, workers, in_switch)?);
            }
        }
        rows.extend(of.iter().map(|rows| median(rows)));
    }
    if args.json {
        println!("{}", serde_json::json!({ "version": 1, "rows": rows }));
        return Ok(());
    }
    println!("aggregator  workers  Mvalues/s  rounds/s   busy  ns/packet   retx");
    for row in rows {
        println!(
            "{:<10}  {:>7}  {:>9.1}  {:>8.0}  {:>4.0} %  {:>9.0}  {:>5.0}",
            row.aggregator,
            row.workers,
            row.mvalues_per_s,
            row.rounds_per_s,
            100.0 * row.busy,
            row.ns_per_packet,
            row.retransmissions
        );
    }
    Ok(())
}

fn median(rows: &[Row]) -> Row {
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| a.mvalues_per_s.total_cmp(&b.mvalues_per_s));
    sorted[sorted.len() / 2]
}

fn measure(args: &Args, workers: u8, in_switch: bool) -> Result<Row> {
    let lab = Lab::up(args, workers)?;
    let switch = lab.switch()?;
    let listen = SocketAddrV4::new(member(workers, 24190).ip().to_owned(), 24190);
    let server = (!in_switch).then(|| Server::start(args, workers, listen)).transpose()?;
    let aggregator = if in_switch { SERVICE } else { listen };
    let thread = server.as_ref().map_or_else(|| format!("{0}/task/{0}", switch.0.id()), |server| server.thread.clone());

    let ready = Barrier::new(usize::from(workers) + 1);
    let (args_ref, ready_ref) = (args, &ready);
    let (cpu_ns, results, elapsed) = thread::scope(|scope| -> Result<_> {
        let pushers: Vec<_> =
            (0..workers).map(|worker| scope.spawn(move || push(args_ref, aggregator, worker, ready_ref))).collect();
        ready.wait();
        let (before, start) = (cpu_time_ns(&thread)?, Instant::now());
        let results = pushers.into_iter().map(|pusher| pusher.join().map_err(|_| anyhow!("a worker panicked"))?);
        let results = results.collect::<Result<Vec<_>>>()?;
        Ok((cpu_time_ns(&thread)? - before, results, start.elapsed().as_secs_f64()))
    })?;
    let rounds = results.iter().map(|result| result.rounds).min().unwrap_or(0) as f64;
    let packets: u64 = results.iter().map(|result| result.packets).sum();
    let values = rounds * f64::from(workers) * f64::from(args.segments) * args.lanes as f64;
    Ok(Row {
        aggregator: if in_switch { "switch" } else { "server" },
        workers,
        mvalues_per_s: values / elapsed / 1e6,
        rounds_per_s: rounds / elapsed,
        busy: cpu_ns as f64 / 1e9 / elapsed,
        ns_per_packet: cpu_ns as f64 / packets.max(1) as f64,
        retransmissions: results.iter().map(|result| result.retransmissions as f64).sum(),
    })
}

struct Pushed {
    rounds: u64,
    packets: u64,
    retransmissions: u64,
}

/// A worker: pushes until time is up, and one of the rounds of all ends it for everybody.
fn push(args: &Args, aggregator: SocketAddrV4, worker: u8, ready: &Barrier) -> Result<Pushed> {
    netns::enter(&format!("{PREFIX}-h{}", worker + 1))?;
    let local = member(worker, 7001);
    let joined = Client::join(ClientConfig::new(aggregator, local, JOB, worker, args.segments, args.lanes));
    ready.wait(); // also where it failed, so that nobody waits for ever
    let mut client = joined?;
    let values = vec![1; args.segments as usize * args.lanes];
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < args.seconds {
        client.push_quantised(&values)?;
        rounds += 1;
    }
    let counters = *client.counters();
    client.leave()?;
    Ok(Pushed {
        rounds,
        packets: counters.packets_sent + counters.packets_received,
        retransmissions: counters.retransmissions,
    })
}

/// Worker `worker`'s address; the one after the last worker's is the server's.
fn member(worker: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, worker + 1), port)
}

/// Processor time of a thread, given as `PID/task/TID`.
fn cpu_time_ns(thread: &str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).context("/proc/PID/schedstat has another form here")
}

/// Namespaces, and a configuration for a switch between them.
struct Lab {
    directory: tempfile::TempDir,
}

impl Lab {
    fn up(args: &Args, workers: u8) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("switch.toml");
        script(&["--config-out", &config.display().to_string(), &(workers + 1).to_string()])?;
        let members: Vec<String> = (0..workers).map(|worker| format!("\"{}\"", member(worker, 7001))).collect();
        let job = format!(
            "[job]\nid = {JOB}\nmembers = [{}]\nsegments = {}\nlanes = {}\nscale_log2 = 0\nstart = \"bsp\"\n",
            members.join(", "),
            args.segments,
            args.lanes
        );
        std::fs::write(directory.path().join("job.toml"), job)?;
        let serene = format!("\n[serene]\naddress = \"{}\"\nload = [\"job.toml\"]\n", SERVICE.ip());
        let text = std::fs::read_to_string(&config)? + &serene;
        std::fs::write(&config, text)?;
        Ok(Lab { directory })
    }

    fn switch(&self) -> Result<Switch> {
        // Beside this example's directory.
        let own = std::env::current_exe()?;
        let symphony = own.parent().and_then(Path::parent).context("where is target/release?")?.join("symphony");
        ensure!(symphony.exists(), "{} is missing; cargo build --release", symphony.display());
        let child = Command::new("ip")
            .args(["netns", "exec", &format!("{PREFIX}-sw")])
            .arg(symphony)
            .args(["run", "--config"])
            .arg(self.directory.path().join("switch.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the switch")?;
        thread::sleep(Duration::from_millis(1500)); // until it forwards
        Ok(Switch(child))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = script(&["--down"]);
    }
}

fn script(arguments: &[&str]) -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/netns-scripts/up.sh");
    let output = Command::new("bash").arg(path).args(["--prefix", PREFIX]).args(arguments).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// `ip netns exec` becomes the switch, so its number is the switch's.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// As in /proc.
    thread: String,
    handle: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(args: &Args, workers: u8, listen: SocketAddrV4) -> Result<Self> {
        let config = ServerConfig {
            netns: Some(format!("{PREFIX}-h{}", workers + 1)),
            listen,
            job: JOB,
            workers,
            segments: args.segments,
            lanes: args.lanes,
        };
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let handle = thread::spawn({
            let stop = stop.clone();
            move || {
                // Bound here, since binding takes the thread into the namespace.
                let server = match ParameterServer::bind(config) {
                    Ok(server) => server,
                    Err(error) => return drop(tell.send(Err(error.to_string()))),
                };
                let own = std::fs::read_link("/proc/thread-self").unwrap_or_default();
                let _ = tell.send(Ok(own.display().to_string()));
                server.run(&stop);
            }
        });
        let thread = told.recv()?.map_err(|error| anyhow!(error))?;
        Ok(Server { stop, thread, handle: Some(handle) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
