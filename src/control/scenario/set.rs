//! `--set key.path=value`: one value changed before the tables are interpreted.

use serde::Deserialize;
use toml::{Table, Value};

use super::file::File;
use crate::control::config::{Key, Wrong, with_guess};

/// The file with one value changed.
pub fn set(file: &File, assignment: &str) -> Result<File, Wrong> {
    let Some((path, value)) = assignment.split_once('=') else {
        return Err(Key::default().wrong("write key=value, for instance job.chunk=2MB"));
    };
    let key = Key::new(path.trim());
    let segments = segments(path).ok_or_else(|| key.wrong("is no key; write for instance job[0].chunk"))?;
    let whole = |error: toml::ser::Error| key.wrong(error.to_string());
    let mut tree = Value::try_from(file).map_err(whole)?;
    put(&mut tree, &segments, &self::value(value), &key)?;
    File::deserialize(tree).map_err(|error| key.wrong(with_guess(error.message())))
}

/// A step down the tree.
enum Segment<'a> {
    Name(&'a str),
    Index(usize),
}

/// `job[0].chunk` as name, index, name.
fn segments(path: &str) -> Option<Vec<Segment<'_>>> {
    let mut segments = Vec::new();
    for part in path.trim().split('.') {
        let mut pieces = part.split('[');
        segments.push(Segment::Name(pieces.next().filter(|name| !name.is_empty())?));
        for piece in pieces {
            segments.push(Segment::Index(piece.strip_suffix(']')?.parse().ok()?));
        }
    }
    Some(segments)
}

/// As TOML, or the text itself: `2MB` needs no quotes.
fn value(text: &str) -> Value {
    let parsed = toml::from_str(&format!("value = {text}")).ok().and_then(|mut table: Table| table.remove("value"));
    parsed.unwrap_or_else(|| Value::String(text.trim().to_owned()))
}

/// Puts the value at the end of the path; in every element where the path leaves out an array's index.
fn put(tree: &mut Value, path: &[Segment<'_>], value: &Value, key: &Key) -> Result<(), Wrong> {
    let Some((first, rest)) = path.split_first() else {
        *tree = value.clone();
        return Ok(());
    };
    match (first, tree) {
        (Segment::Name(name), Value::Table(table)) => {
            let next = table.entry(*name).or_insert_with(|| Value::Table(Table::new()));
            put(next, rest, value, key)
        }
        (Segment::Index(index), Value::Array(array)) => match (array.len(), array.get_mut(*index)) {
            (_, Some(element)) => put(element, rest, value, key),
            (length, None) => Err(key.wrong(format!("there is no [{index}]; there are {length}, counted from 0"))),
        },
        (Segment::Name(_), Value::Array(array)) if array.iter().any(Value::is_table) => {
            array.iter_mut().try_for_each(|element| put(element, path, value, key))
        }
        _ => Err(key.wrong("the path goes through a value that has no keys of its own")),
    }
}
