//! A module imports only from floors below its own (the table in `src/lib.rs`).

use std::{fs, path::Path};

const FLOORS: [(&str, u8); 10] = [
    ("wire", 0),
    ("capture", 0),
    ("dataplane", 1),
    ("functions", 2),
    ("roce", 2),
    ("worker", 2),
    ("training", 2),
    ("backend", 3),
    ("control", 4),
    ("cli", 5),
];

fn floor(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

fn rust_files(dir: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).expect("src is readable") {
        let path = entry.expect("src is readable").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Every `crate::NAME` in a line, outside of comments.
fn imports(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or("");
    code.match_indices("crate::").map(move |(at, found)| {
        let rest = &code[at + found.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn every_module_imports_only_from_floors_below() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > FLOORS.len(), "the walk found the sources");
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&src).expect("it was found there");
        let Some(own) = relative.components().next().and_then(|c| c.as_os_str().to_str()) else { continue };
        let Some(own_floor) = floor(own) else { continue }; // lib.rs, main.rs
        for (number, line) in fs::read_to_string(&file).expect("sources are UTF-8").lines().enumerate() {
            for used in imports(line) {
                if used != own && floor(used).is_some_and(|f| f >= own_floor) {
                    wrong.push(format!("{}:{}: {own} (floor {own_floor}) uses {used}", relative.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
