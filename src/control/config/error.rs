//! What is wrong with a configuration, and where: file, line, column, key, value and cure.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{line}:{column}: {wrong}")]
    Wrong {
        /// As named by the user.
        file: String,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong.
        wrong: Wrong,
    },
}

/// A key and what is wrong with its value: the value and the cure.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct Wrong {
    /// Where.
    pub key: Key,
    /// What is wrong, with the value, and the cure.
    pub message: String,
    /// Where in the value, in bytes, where it is a text in which one place is wrong.
    pub within: Option<usize>,
}

/// A path to a key, such as `job[1].ring[0]` (counted from 0, as in the file).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Name(String),
    Index(usize),
}

impl Key {
    /// The key at the top.
    pub fn new(name: &str) -> Self {
        Key::default().name(name)
    }

    /// A key inside a table.
    #[must_use]
    pub fn name(&self, name: &str) -> Self {
        self.with(Segment::Name(name.to_owned()))
    }

    /// An element of an array.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// That this is wrong with the key.
    pub fn wrong(&self, message: impl Into<String>) -> Wrong {
        Wrong { key: self.clone(), message: message.into(), within: None }
    }

    fn with(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Key(segments)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.0.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Name(name) if place > 0 => write!(f, ".{name}")?,
                Segment::Name(name) => f.write_str(name)?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl ConfigError {
    /// An error of the TOML reader: it knows the place, the key is looked up.
    pub(in crate::control) fn from_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().unwrap_or(0..0);
        let key = DeTable::parse(text).map(|document| key_at(document.get_ref(), &at)).unwrap_or_default();
        let mut message = with_guess(error.message());
        message.push_str(&cure(&message, &key, text.get(at.clone()).unwrap_or_default()));
        Self::at(file, text, at.start, key.wrong(message))
    }

    /// An error found in the values: it knows the key, the place is looked up.
    pub(in crate::control) fn from_wrong(file: &str, text: &str, wrong: Wrong) -> Self {
        let start = DeTable::parse(text).map(|document| place_of(&document, &wrong.key)).unwrap_or(0);
        let within = wrong.within.and_then(|within| inside_text(text.get(start..)?, within)).unwrap_or(0);
        Self::at(file, text, start + within, wrong)
    }

    fn at(file: &str, text: &str, offset: usize, wrong: Wrong) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
        ConfigError::Wrong { file: file.to_owned(), line, column, wrong }
    }
}

/// The innermost key whose name or value holds the place. What concerns the whole file has an empty place, and no key.
fn key_at(table: &DeTable<'_>, at: &Range<usize>) -> Key {
    if at.is_empty() {
        return Key::default();
    }
    fn holds(outer: Range<usize>, at: &Range<usize>) -> bool {
        outer.start <= at.start && at.end <= outer.end
    }
    fn inside(value: &DeValue<'_>, at: &Range<usize>, key: Key) -> Key {
        match value {
            DeValue::Table(table) => {
                for (name, value) in table.iter() {
                    if holds(name.span(), at) {
                        return key.name(name.get_ref());
                    }
                    // The span of a `[table]` is its header alone, so look into tables whatever theirs is.
                    let found = inside(value.get_ref(), at, key.name(name.get_ref()));
                    if found.0.len() > key.0.len() + 1 || holds(value.span(), at) {
                        return found;
                    }
                }
                key
            }
            DeValue::Array(array) => {
                for (index, value) in array.iter().enumerate() {
                    let found = inside(value.get_ref(), at, key.index(index));
                    if found.0.len() > key.0.len() + 1 || holds(value.span(), at) {
                        return found;
                    }
                }
                key
            }
            _ => key,
        }
    }
    inside(&DeValue::Table(table.clone()), at, Key::default())
}

/// Where the value of a key begins; where it is not written, its nearest table.
fn place_of(document: &toml::Spanned<DeTable<'_>>, key: &Key) -> usize {
    let mut start = document.span().start;
    let root = DeValue::Table(document.get_ref().clone());
    let mut value = &root;
    for segment in &key.0 {
        let next = match (segment, value) {
            (Segment::Name(name), DeValue::Table(table)) => table.get(name.as_str()),
            (Segment::Index(index), DeValue::Array(array)) => array.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        start = next.span().start;
        value = next.get_ref();
    }
    start
}

/// Where the byte `within` of a TOML string is behind the beginning of what was written, the quotes. `None` where that cannot
/// be told, behind an escape.
fn inside_text(written: &str, within: usize) -> Option<usize> {
    let quote = written.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let multiline = written.starts_with(&quote.to_string().repeat(3));
    let quotes = if multiline { 3 } else { 1 };
    // A newline right behind the quotes of a multi-line string is not part of it.
    let newline = written[quotes..].strip_prefix("\r\n").or(written[quotes..].strip_prefix('\n')).filter(|_| multiline);
    let begin = newline.map_or(quotes, |rest| written.len() - rest.len());
    let escaped = quote == '"' && written.get(begin..begin + within)?.contains('\\');
    (!escaped).then_some(begin + within)
}

/// What to write instead, where a reader's message says only what it met; `written` is what stands at its place.
fn cure(message: &str, key: &Key, written: &str) -> String {
    if message == "duplicate key" {
        return format!(" `{written}`; leave one of them");
    }
    match key.0.as_slice() {
        [Segment::Name(table)] if message.ends_with("expected a sequence") => format!("; write [[{table}]]"),
        _ if message.ends_with("expected a sequence") => "; write [ .., .. ]".to_owned(),
        [] if message.starts_with("missing field `switch`") => "; write [switch] and a name = \"..\"".to_owned(),
        _ => String::new(),
    }
}

/// A reader's message, with a guess at what was meant where a name is unknown.
pub(in crate::control) fn with_guess(message: &str) -> String {
    match did_you_mean(message) {
        Some(name) => format!("{message}; did you mean `{name}`?"),
        None => message.to_owned(),
    }
}

/// The name that an "unknown field" or "unknown variant" message most likely means.
fn did_you_mean(message: &str) -> Option<&str> {
    let mut names = message.strip_prefix("unknown ")?.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let (distance, name) = names.map(|name| (edit_distance(given, name), name)).min()?;
    (distance <= 1 + given.len() / 4).then_some(name)
}

/// Levenshtein's, with two neighbours that are swapped as one edit; by rows.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut row) = (Vec::new(), (0..=b.len()).collect::<Vec<usize>>());
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let mut distance = (row[j] + usize::from(a[i] != b[j])).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                distance = distance.min(before[j - 1] + 1);
            }
            next.push(distance);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_guessed_and_a_far_one_is_not() {
        let message = "unknown field `bufer`, expected one of `name`, `buffer`, `rate`";
        assert_eq!(did_you_mean(message), Some("buffer"));
        assert_eq!(did_you_mean("unknown field `colour`, expected one of `name`, `rate`"), None);
        assert_eq!(did_you_mean("invalid type: integer `5`, expected `rate`"), None);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "ab"), 2);
        assert_eq!(edit_distance("bps", "bsp"), 1);
    }

    #[test]
    fn a_place_inside_a_string_is_found_behind_its_quotes() {
        assert_eq!(inside_text("\"bsp\"", 1), Some(2));
        assert_eq!(inside_text("'bsp'", 0), Some(1));
        assert_eq!(inside_text("\"\"\"\nbsp\"\"\"", 2), Some(6));
        assert_eq!(inside_text("\"\\u0062sp\"", 7), None, "behind an escape");
        assert_eq!(inside_text("'a\\b'", 3), Some(4), "no escape in a literal string");
        assert_eq!(inside_text("5", 0), None);
        assert_eq!(inside_text("\"\"", 9), None);
    }
}
