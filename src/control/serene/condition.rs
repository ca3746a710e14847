//! `when`: metrics, comparisons, `and`, `or`.
//!
//! ```text
//! condition  := all { "or" all }
//! all        := term { "and" term }
//! term       := "(" condition ")" | metric ( ">" | ">=" | "<" | "<=" ) value [ "for" N "rounds" ]
//! metric     := wait_p50 | .. | "silent" "(" "worker" ")"
//! value      := NUMBER ( ns | us | ms | s ) | NUMBER "%" | NUMBER
//! ```

use std::fmt;

use super::cursor::{Cursor, SyntaxError, decimal, decimal_text};
use super::lexer::{Kind, Token};
use crate::control::units::Duration;
use crate::functions::serene::controller::{Comparison, Condition, Metric, Relation, Unit, WINDOW_ROUNDS};

/// Of a share: there may be more retransmissions than packets, but not a hundred of each.
const MAX_MILLIONTHS: u64 = 100_000_000;
/// Parentheses within parentheses.
const MAX_DEPTH: u32 = 16;
const EXAMPLE: &str = "write for instance wait_p95 > 20ms for 3 rounds";

/// Reads a condition.
///
/// # Errors
/// Where it does not follow the grammar.
pub fn parse_condition(text: &str) -> Result<Condition, SyntaxError> {
    let mut cursor = Cursor::new(text);
    let condition = any(&mut cursor, 0)?;
    cursor.end("join comparisons with `and` or `or`")?;
    Ok(condition)
}

fn any(cursor: &mut Cursor<'_>, depth: u32) -> Result<Condition, SyntaxError> {
    let mut parts = Vec::new();
    loop {
        match all(cursor, depth)? {
            Condition::Any(inner) => parts.extend(inner),
            part => parts.push(part),
        }
        if !cursor.eat("or") {
            return Ok(single(parts).unwrap_or_else(Condition::Any));
        }
    }
}

fn all(cursor: &mut Cursor<'_>, depth: u32) -> Result<Condition, SyntaxError> {
    let mut parts = Vec::new();
    loop {
        match term(cursor, depth)? {
            Condition::All(inner) => parts.extend(inner),
            part => parts.push(part),
        }
        if !cursor.eat("and") {
            return Ok(single(parts).unwrap_or_else(Condition::All));
        }
    }
}

/// The only element, or all of them.
fn single(mut parts: Vec<Condition>) -> Result<Condition, Vec<Condition>> {
    match parts.pop() {
        Some(only) if parts.is_empty() => Ok(only),
        last => {
            parts.extend(last);
            Err(parts)
        }
    }
}

fn term(cursor: &mut Cursor<'_>, depth: u32) -> Result<Condition, SyntaxError> {
    let token = cursor.peek();
    if cursor.eat("(") {
        if depth == MAX_DEPTH {
            return Err(token.wrong(format!("more than {MAX_DEPTH} parentheses within each other; write it flatter")));
        }
        let inside = any(cursor, depth + 1)?;
        cursor.expect(")", "close the parenthesis")?;
        return Ok(inside);
    }
    comparison(cursor)
}

fn comparison(cursor: &mut Cursor<'_>) -> Result<Condition, SyntaxError> {
    let name = cursor.take();
    let Some(&(_, metric)) = Metric::NAMES.iter().find(|(known, _)| *known == name.text) else {
        return Err(name.unknown("metric", Metric::NAMES.iter().map(|(known, _)| *known)));
    };
    if metric == Metric::Silent {
        let cure = "write silent(worker) > 5s";
        cursor.expect("(", cure)?;
        cursor.expect("worker", cure)?;
        cursor.expect(")", cure)?;
    }
    let sign = cursor.take();
    let relation = match sign.text {
        ">" => Relation::Greater,
        ">=" => Relation::AtLeast,
        "<" => Relation::Less,
        "<=" => Relation::AtMost,
        _ => return Err(sign.unexpected("`>`, `>=`, `<` or `<=`", EXAMPLE)),
    };
    if metric == Metric::Silent && matches!(relation, Relation::Less | Relation::AtMost) {
        return Err(sign.wrong(format!("silent(worker) {} asks who was heard; write silent(worker) > 5s", sign.text)));
    }
    let value = value(cursor, name.text, metric.unit())?;
    let rounds = rounds(cursor, metric)?;
    Ok(Condition::Compare(Comparison { metric, relation, value, rounds }))
}

fn value(cursor: &mut Cursor<'_>, metric: &str, unit: Unit) -> Result<f64, SyntaxError> {
    let number = cursor.take();
    if number.kind != Kind::Number {
        let example = match unit {
            Unit::Nanoseconds => "20ms",
            Unit::Ratio => "5%",
            Unit::Count => "1",
        };
        return Err(number.unexpected("a value", &format!("write for instance {metric} > {example}")));
    }
    match unit {
        Unit::Nanoseconds => time(cursor, number, metric).map(|time| time as f64),
        Unit::Ratio => {
            let unit = cursor.take();
            if unit.text != "%" {
                return Err(unit.unexpected("`%`", &format!("{metric} is a share; write for instance 5%")));
            }
            let millionths = decimal(number.text, 4).filter(|millionths| *millionths <= MAX_MILLIONTHS);
            millionths.map(|millionths| millionths as f64 / 1e6).ok_or_else(|| {
                let message = "is no share; use 0 to 10000%, with at most 4 digits behind the point";
                number.wrong(format!("{}% {message}", number.text))
            })
        }
        Unit::Count => {
            let unit = cursor.peek();
            if matches!(unit.text, "ns" | "us" | "ms" | "s" | "%") {
                return Err(unit.wrong(format!("{metric} is a number; leave `{}` out", unit.text)));
            }
            let whole = number.text.parse::<u32>().map(f64::from);
            whole.map_err(|_| number.wrong(format!("{} is no whole number up to {}", number.text, u32::MAX)))
        }
    }
}

/// The number that was taken, and its unit.
pub(super) fn time(cursor: &mut Cursor<'_>, number: Token<'_>, what: &str) -> Result<u64, SyntaxError> {
    let unit = cursor.peek();
    if unit.kind != Kind::Name || unit.text == "for" {
        return Err(unit.unexpected("a unit", &format!("{what} is a time; write for instance 20ms (ns, us, ms, s)")));
    }
    cursor.take();
    if !matches!(unit.text, "ns" | "us" | "ms" | "s") {
        return Err(unit.unknown("unit", ["ns", "us", "ms", "s"]));
    }
    let text = format!("{}{}", number.text, unit.text);
    match text.parse::<Duration>() {
        Ok(time) if time.0 <= 3_600_000_000_000 => Ok(time.0),
        Ok(_) => Err(number.wrong(format!("{text} is more than an hour"))),
        Err(_) => Err(number.wrong(format!("{text} is no whole number of nanoseconds; write for instance 20ms"))),
    }
}

fn rounds(cursor: &mut Cursor<'_>, metric: Metric) -> Result<u32, SyntaxError> {
    let token = cursor.peek();
    if !cursor.eat("for") {
        return Ok(1);
    }
    if metric == Metric::Silent {
        return Err(token.wrong("silent(worker) is a time, and a silent worker may end all rounds; leave `for ..` out"));
    }
    let number = cursor.peek();
    let rounds = cursor.whole("a number of rounds", "write for instance `for 3 rounds`")?;
    if !(1..=WINDOW_ROUNDS).contains(&rounds) {
        return Err(
            number.wrong(format!("{rounds} rounds; a job remembers {WINDOW_ROUNDS}, so use 1 to {WINDOW_ROUNDS}"))
        );
    }
    if !cursor.eat("rounds") {
        cursor.expect("round", "write for instance `for 3 rounds`")?;
    }
    Ok(rounds)
}

/// As the grammar has it, so that it can be read again.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, word) = match self {
            Condition::Compare(comparison) => return comparison.fmt(f),
            Condition::All(parts) => (parts, " and "),
            Condition::Any(parts) => (parts, " or "),
        };
        for (place, part) in parts.iter().enumerate() {
            f.write_str(if place > 0 { word } else { "" })?;
            match (self, part) {
                (_, Condition::Compare(_)) | (Condition::Any(_), Condition::All(_)) => part.fmt(f)?,
                _ => write!(f, "({part})")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Less => "<",
            Relation::AtMost => "<=",
            Relation::Greater => ">",
            Relation::AtLeast => ">=",
        };
        let name = Metric::NAMES.iter().find(|(_, known)| *known == self.metric).map_or("", |(name, _)| name);
        let argument = if self.metric == Metric::Silent { "(worker)" } else { "" };
        write!(f, "{name}{argument} {relation} ")?;
        match self.metric.unit() {
            Unit::Nanoseconds => write!(f, "{}", Duration(self.value as u64))?,
            Unit::Ratio => write!(f, "{}%", decimal_text((self.value * 1e6).round() as u64, 4))?,
            Unit::Count => write!(f, "{}", self.value)?,
        }
        match self.rounds {
            1 => Ok(()),
            rounds => write!(f, " for {rounds} rounds"),
        }
    }
}
