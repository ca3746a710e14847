use std::io::{BufRead, BufReader, Read};
use std::time::Instant;

use crossbeam::channel::Receiver;
use serde_json::{Value, json};

use super::*;
use crate::backend::live::Snapshot;
use crate::control::protocol::{AskError, ask};

/// A control socket in a directory of its own, and the switch's end of the channel.
struct Fixture {
    _directory: tempfile::TempDir,
    config: Config,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/s.sock");
        let text = format!("[switch]\nname = 's'\ncontrol = '{}'\n[[port]]\nrate = '200Mbit'", path.display());
        Fixture { config: Config::parse(&text, "t", Purpose::Live).unwrap(), _directory: directory }
    }

    fn open(&self) -> (ControlSocket, Receiver<live::Request>) {
        let (requests, receiver) = channel::bounded(4);
        (ControlSocket::open(&self.config, requests).unwrap(), receiver)
    }

    fn path(&self) -> &Path {
        &self.config.control
    }
}

/// A switch that does whatever it is told and tells what that was.
fn obedient(receiver: Receiver<live::Request>) -> Receiver<live::Command> {
    let (told, commands) = channel::unbounded();
    thread::spawn(move || {
        for request in receiver {
            let reply = match request.command {
                live::Command::Snapshot => {
                    Reply::Snapshot(Box::new(Snapshot { version: 1, name: "s".into(), ..Snapshot::default() }))
                }
                live::Command::Aggregation => Reply::Aggregation(Vec::new()),
                _ => Reply::Done,
            };
            let _ = told.send(request.command);
            let _ = request.reply.send(Ok(reply));
        }
    });
    commands
}

fn say(path: &Path, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn commands_reach_the_switch_compiled_and_answers_come_back() {
    let fixture = Fixture::new();
    let (_socket, receiver) = fixture.open();
    let commands = obedient(receiver);

    let answer = ask(fixture.path(), Command::Snapshot).unwrap();
    assert_eq!(answer["snapshot"]["name"], "s");
    assert_eq!(commands.recv(), Ok(live::Command::Snapshot));

    let Value::Object(parameters) = json!({ "threshold": 0.25, "gap": "50us", "policy": "gold" }) else {
        unreachable!()
    };
    let answer = ask(fixture.path(), Command::Set { parameters }).unwrap();
    assert_eq!(answer["symphony"]["threshold"], 0.25);
    let Ok(live::Command::SetParameters(parameters)) = commands.recv() else { panic!("parameters are set") };
    assert_eq!((parameters.threshold, parameters.gap_ns), (64, 50_000));
    let Value::Object(parameters) = json!({ "queue": 0 }) else { unreachable!() };
    ask(fixture.path(), Command::Set { parameters }).unwrap();
    let Ok(live::Command::SetParameters(parameters)) = commands.recv() else { panic!("parameters are set") };
    assert_eq!((parameters.threshold, parameters.queue_fraction), (64, 0.0), "what was set before stays");

    let job =
        serde_json::from_value(json!({ "id": 7, "ring": ["10.0.0.1", "10.0.0.2"], "step_size": "64KiB" })).unwrap();
    ask(fixture.path(), Command::AddJob { job }).unwrap();
    let Ok(live::Command::AddJob(job)) = commands.recv() else { panic!("a job is added") };
    assert_eq!((job.id, job.packets_per_step, job.idle_ns), (7, Some(64), 26_214_400), "at the port's rate");

    ask(fixture.path(), Command::EnableJob { id: 7, enabled: false }).unwrap();
    assert_eq!(commands.recv(), Ok(live::Command::EnableJob(7, false)));
    ask(fixture.path(), Command::RemoveJob { id: 7 }).unwrap();
    assert_eq!(commands.recv(), Ok(live::Command::RemoveJob(7)));

    assert_eq!(ask(fixture.path(), Command::Aggregation).unwrap()["aggregation"], json!([]));
    assert_eq!(commands.recv(), Ok(live::Command::Aggregation));
    let file = json!({ "job": { "id": 3, "members": ["10.0.0.1:7001"], "segments": 2 } });
    let file = serde_json::from_value(file).unwrap();
    ask(fixture.path(), Command::LoadAggregation { file }).unwrap();
    let Ok(live::Command::LoadAggregation(job)) = commands.recv() else { panic!("a job is loaded") };
    assert_eq!((job.id, job.lanes), (3, 256));
    ask(fixture.path(), Command::Swap { job: 3, strategy: "ssp(3)".into() }).unwrap();
    let strategy = crate::functions::serene::Strategy::Ssp { slack: 3 };
    assert_eq!(commands.recv(), Ok(live::Command::Swap { job: 3, strategy }));
    let refused = ask(fixture.path(), Command::Swap { job: 3, strategy: "ssp(30)".into() }).unwrap_err().to_string();
    assert!(refused.starts_with("\"ssp(30)\": a slack of 30 rounds; use 1 to 15"), "{refused}");
    ask(fixture.path(), Command::UnloadAggregation { job: 3 }).unwrap();
    assert_eq!(commands.recv(), Ok(live::Command::UnloadAggregation(3)));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason_and_never_reaches_the_switch() {
    let fixture = Fixture::new();
    let (_socket, receiver) = fixture.open();
    for (line, expected) in [
        ("", "this is no request"),
        ("[[[[", "this is no request"),
        ("{\"version\":1}", "missing field `command`"),
        ("{\"version\":1,\"command\":\"explode\"}", "unknown variant `explode`"),
        ("{\"version\":2,\"command\":\"snapshot\"}", "use version 1"),
        ("{\"version\":1,\"command\":\"set\",\"parameters\":{\"treshold\":1}}", "did you mean `threshold`?"),
        (
            "{\"version\":1,\"command\":\"set\",\"parameters\":{\"threshold\":-1}}",
            "threshold: -1 steps; use 1/256 or more",
        ),
        (
            "{\"version\":1,\"command\":\"set\",\"parameters\":{\"gap\":5}}",
            "gap: invalid type: integer `5`, expected text with a unit",
        ),
        ("{\"version\":1,\"command\":\"add_job\",\"job\":{\"ring\":[\"10.0.0.1\",\"10.0.0.2\"]}}", "needs one"),
        ("{\"version\":1,\"command\":\"add_job\",\"job\":{\"id\":1,\"ring\":[\"10.0.0.1\"]}}", "at least 2 ranks"),
    ] {
        let answer = say(fixture.path(), format!("{line}\n").as_bytes());
        assert_eq!((&answer["version"], &answer["ok"]), (&json!(1), &json!(false)));
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(say(fixture.path(), format!("{deep}\n").as_bytes())["ok"], false);
    assert_eq!(say(fixture.path(), b"\xff\x00\xfe\n")["ok"], false);
    assert!(receiver.is_empty());
}

#[test]
fn one_connection_takes_many_requests_even_in_one_write() {
    let fixture = Fixture::new();
    let (_socket, receiver) = fixture.open();
    let _commands = obedient(receiver);
    let mut stream = UnixStream::connect(fixture.path()).unwrap();
    stream.write_all("{\"version\":1,\"command\":\"snapshot\"}\n".repeat(20).as_bytes()).unwrap();
    let answers: Vec<_> = BufReader::new(stream).lines().take(20).map(Result::unwrap).collect();
    assert!(answers.iter().all(|line| line.contains("\"ok\":true")));
}

#[test]
fn a_line_without_end_is_cut_off() {
    let fixture = Fixture::new();
    let (_socket, _receiver) = fixture.open();
    let mut stream = UnixStream::connect(fixture.path()).unwrap();
    let _ = stream.write_all(&vec![b'x'; MAX_LINE_BYTES + 65536]); // the end of it may find the door closed
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("more than 1048576 bytes"));
}

#[test]
fn clients_that_hang_fill_their_places_and_no_more() {
    let fixture = Fixture::new();
    let (socket, receiver) = fixture.open();
    let _commands = obedient(receiver);
    let hanging: Vec<_> = (0..MAX_CLIENTS).map(|_| UnixStream::connect(fixture.path()).unwrap()).collect();
    for _ in 0..50 {
        let refused = ask(fixture.path(), Command::Snapshot);
        assert!(
            matches!(&refused, Err(AskError::Refused(why)) if why.contains("clients"))
                || matches!(refused, Err(AskError::Broken(_))),
            "{refused:?}"
        );
    }
    drop(hanging);
    let start = Instant::now();
    while ask(fixture.path(), Command::Snapshot).is_err() || socket.shared.clients.load(Ordering::Relaxed) > 1 {
        assert!(start.elapsed() < Duration::from_secs(5), "places become free when clients go");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_switch_that_is_stopping_is_said_to_be() {
    let fixture = Fixture::new();
    let (_socket, receiver) = fixture.open();
    drop(receiver);
    let error = ask(fixture.path(), Command::Snapshot).unwrap_err().to_string();
    assert_eq!(error, "the switch is stopping");
}

#[test]
fn the_socket_is_private_and_gone_afterwards() {
    let fixture = Fixture::new();
    let (socket, _receiver) = fixture.open();
    assert_eq!(fs::metadata(fixture.path()).unwrap().permissions().mode() & 0o777, 0o600);
    drop(socket);
    assert!(!fixture.path().exists());
    assert_eq!(fs::read_dir(fixture.path().parent().unwrap()).unwrap().count(), 0, "nothing is left beside it");
}

#[test]
fn a_live_switch_keeps_its_socket_and_a_dead_one_loses_it() {
    let fixture = Fixture::new();
    let (socket, _receiver) = fixture.open();
    let (requests, _) = channel::bounded(1);
    let error = ControlSocket::open(&fixture.config, requests.clone()).unwrap_err();
    assert!(matches!(error, SocketError::InUse(_)), "{error}");
    drop(socket);

    drop(UnixListener::bind(fixture.path()).unwrap()); // as a killed process leaves it: a file, and nobody behind it
    let (socket, receiver) = fixture.open();
    let _commands = obedient(receiver);
    assert!(ask(fixture.path(), Command::Snapshot).is_ok());
    drop(socket);

    fs::write(fixture.path(), "precious").unwrap();
    let error = ControlSocket::open(&fixture.config, requests).unwrap_err();
    assert!(matches!(error, SocketError::NotASocket(_)), "{error}");
    assert_eq!(fs::read_to_string(fixture.path()).unwrap(), "precious");
}

#[test]
fn an_old_switch_does_not_remove_the_socket_of_its_successor() {
    let fixture = Fixture::new();
    let (old, _receiver) = fixture.open();
    fs::remove_file(fixture.path()).unwrap();
    let (_new, _receiver) = fixture.open();
    drop(old);
    assert!(fixture.path().exists());
}
