//! The command's manners: statuses 0, 1, 2; stdout for the result alone; one JSON object, for errors too.

use assert_cmd::Command;
use serde_json::Value;

fn symphony(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("symphony").unwrap().args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// The one object on stdout.
fn object(stdout: &str) -> Value {
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let object: Value = serde_json::from_str(stdout).unwrap();
    assert_eq!(object["version"], 1, "{stdout}");
    object
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn what_could_not_run_is_status_2_with_the_reason_on_stderr_and_in_the_object() {
    for arguments in [
        &["check", "--config", "/nonexistent.toml"][..],
        &["run", "--config", "/nonexistent.toml"],
        &["ctl", "--socket", "/nonexistent.sock", "jobs"],
        &["ctl", "--socket", "/nonexistent.sock", "set", "threshold"],
        &["ctl", "--socket", "/nonexistent.sock", "status"],
        &["ctl", "--socket", "/nonexistent.sock", "trace", "--follow"],
        &["ctl", "--socket", "/nonexistent.sock", "swap", "bsp"],
        &["ctl", "--socket", "/nonexistent.sock", "swap", "ssp(3..8)"],
        &["ctl", "--socket", "/nonexistent.sock", "job", "load", "/nonexistent.toml"],
        &["explode"],
        &["run"],
    ] {
        let (status, stdout, stderr) = symphony(arguments);
        assert_eq!((status, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty(), "{arguments:?}");

        let (status, stdout, stderr) = symphony(&[arguments, &["--json"]].concat());
        assert_eq!(status, 2, "{arguments:?}");
        // On one line in the object, on several for people.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let error = words(object(&stdout)["error"].as_str().unwrap());
        assert!(words(&stderr).contains(&error), "{arguments:?}: {error} is not in {stderr}");
    }
}

#[test]
fn a_wrong_configuration_is_status_1_of_check_with_place_and_cure() {
    let file = file("[switch]\nname = 'x'\nbufer = '1MB'\n");
    let (status, stdout, _) = symphony(&["check", "--json", "--config", file.path().to_str().unwrap()]);
    assert_eq!(status, 1);
    let findings = object(&stdout)["findings"].clone();
    let message =
        findings.as_array().unwrap().iter().find(|finding| finding["check"] == "configuration").unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned();
    assert!(
        message.contains(":3:1: switch.bufer: unknown field") && message.contains("did you mean `buffer`?"),
        "{message}"
    );
}

#[test]
fn a_configuration_without_ports_does_not_pass_the_check_since_the_switch_would_not_start() {
    let file = file("[switch]\nname = 'x'\n");
    let (status, stdout, _) = symphony(&["check", "--json", "--config", file.path().to_str().unwrap()]);
    assert_eq!(status, 1);
    let findings = object(&stdout)["findings"].clone();
    let ports = findings.as_array().unwrap().iter().find(|finding| finding["check"] == "ports").unwrap().clone();
    assert_eq!(ports["status"], "failure");
    assert!(ports["cure"].as_str().unwrap().contains("[[port]]"), "{ports}");
}

#[test]
fn a_job_file_is_answered_with_the_entries_it_compiles_to_or_with_place_and_cure() {
    let text = "[job]\nid = 1\nmembers = ['10.0.0.1:7001', '10.0.0.2:7001']\nsegments = 3\n\
                [[policy]]\nwhen = 'span > 20ms for 3 rounds'\nthen = 'partial(k = n-1, late = return)'\n";
    let good = file(text);
    let (status, stdout, stderr) = symphony(&["check", good.path().to_str().unwrap()]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert!(stdout.contains("rule[job=1, bank=1] -> set_rule(vis=DEFERRED, need=1, slack=0, late=RETURN"), "{stdout}");
    let (status, stdout, _) = symphony(&["check", "--json", good.path().to_str().unwrap()]);
    assert_eq!((status, &object(&stdout)["job"]["policies"][0]["step"]["norm"]), (0, &Value::from(2)));

    let wrong = file(&text.replace("span", "spam"));
    let (status, stdout, _) = symphony(&["check", "--json", wrong.path().to_str().unwrap()]);
    let message = object(&stdout)["findings"][0]["message"].as_str().unwrap().to_owned();
    assert_eq!(status, 1);
    assert!(
        message.contains(":6:9: policy[0].when: unknown metric `spam`") && message.contains("did you mean `span`?"),
        "{message}"
    );
    assert_eq!(symphony(&["check", "/nonexistent.toml"]).0, 2);
}

#[test]
fn the_printed_configuration_can_be_used_again() {
    let first = file("[switch]\nname = 'x'\n[[port]]\n[[job]]\nring = ['10.0.0.1', '10.0.0.2']\n");
    let print = |path: &std::path::Path| symphony(&["run", "--print-config", "--config", path.to_str().unwrap()]);
    let (status, printed, stderr) = print(first.path());
    assert_eq!(status, 0, "{stderr}");
    let second = file(&printed);
    assert_eq!(print(second.path()), (0, printed, String::new()));
}

#[test]
fn help_and_version_go_to_stdout_with_status_0() {
    let job_load = ["ctl", "job", "load", "--help"];
    for arguments in
        [&["--help"][..], &["--version"], &["ctl", "job", "add", "--help"], &job_load, &["check", "--help"]]
    {
        let (status, stdout, stderr) = symphony(arguments);
        assert_eq!((status, stderr.as_str()), (0, ""));
        assert!(!stdout.is_empty());
    }
}

#[test]
fn a_reader_who_leaves_early_is_no_error() {
    let program = assert_cmd::cargo::cargo_bin("symphony");
    let mut child =
        std::process::Command::new(program).args(["check"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take()); // before a byte is read
    let status = child.wait().unwrap().code().unwrap();
    assert!(status < 2, "a check that ran ends with 0 or 1, not {status}");
}
