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

use super::ast::{Comparison, Condition, Metric};
use super::cursor::{Cursor, SyntaxError, decimal, decimal_text};
use super::lexer::{Kind, Token};
use crate::control::units::Duration;

/// Rounds that a job remembers.
pub const WINDOW_ROUNDS: u32 = 32;
/// Parentheses within parentheses.
const MAX_DEPTH: u32 = 16;
const EXAMPLE: &str = "write for instance wait_p95 > 20ms for 3 rounds";

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Nanoseconds.
    Time,
    /// Millionths.
    Share,
    /// A number.
    Number,
}

/// Every metric: its name, what it is measured in, what it says.
const METRICS: [(&str, Metric, Quantity, &str); 10] = [
    ("wait_p50", Metric::WaitP50, Quantity::Time, "median over the workers of release - arrival"),
    ("wait_p95", Metric::WaitP95, Quantity::Time, "its 95th percentile"),
    ("wait_max", Metric::WaitMax, Quantity::Time, "the longest of them"),
    ("span", Metric::Span, Quantity::Time, "release - first arrival"),
    ("lag_max", Metric::LagMax, Quantity::Number, "rounds between the first worker and the last"),
    ("late_rate", Metric::LateRate, Quantity::Share, "late contributions, of all"),
    ("retx_rate", Metric::RetxRate, Quantity::Share, "retransmissions, of all packets"),
    ("round_time", Metric::RoundTime, Quantity::Time, "from one release to the next"),
    ("included_min", Metric::IncludedMin, Quantity::Number, "fewest workers whose contribution a round holds"),
    ("silent", Metric::Silent, Quantity::Time, "silent(worker): since any one worker was heard of"),
];

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
    let known = METRICS.iter().find(|(known, ..)| *known == name.text);
    let Some(&(_, metric, quantity, _)) = known else {
        return Err(name.unknown("metric", METRICS.iter().map(|(known, ..)| *known)));
    };
    if metric == Metric::Silent {
        let cure = "write silent(worker) > 5s";
        cursor.expect("(", cure)?;
        cursor.expect("worker", cure)?;
        cursor.expect(")", cure)?;
    }
    let sign = cursor.take();
    let comparison = match sign.text {
        ">" => Comparison::More,
        ">=" => Comparison::AtLeast,
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        _ => return Err(sign.unexpected("`>`, `>=`, `<` or `<=`", EXAMPLE)),
    };
    if metric == Metric::Silent && matches!(comparison, Comparison::Less | Comparison::AtMost) {
        return Err(sign.wrong(format!("silent(worker) {} asks who was heard; write silent(worker) > 5s", sign.text)));
    }
    let value = value(cursor, name.text, quantity)?;
    let rounds = rounds(cursor, metric)?;
    Ok(Condition::Compare { metric, comparison, value, rounds })
}

fn value(cursor: &mut Cursor<'_>, metric: &str, quantity: Quantity) -> Result<u64, SyntaxError> {
    let number = cursor.take();
    if number.kind != Kind::Number {
        let example = match quantity {
            Quantity::Time => "20ms",
            Quantity::Share => "5%",
            Quantity::Number => "1",
        };
        return Err(number.unexpected("a value", &format!("write for instance {metric} > {example}")));
    }
    match quantity {
        Quantity::Time => time(cursor, number, metric),
        Quantity::Share => {
            let unit = cursor.take();
            if unit.text != "%" {
                return Err(unit.unexpected("`%`", &format!("{metric} is a share; write for instance 5%")));
            }
            let share = decimal(number.text, 4).filter(|share| *share <= 1_000_000);
            share.ok_or_else(|| {
                number.wrong(format!(
                    "{}% is no share; use 0 to 100, with at most 4 digits behind the point",
                    number.text
                ))
            })
        }
        Quantity::Number => {
            let unit = cursor.peek();
            if matches!(unit.text, "ns" | "us" | "ms" | "s" | "%") {
                return Err(unit.wrong(format!("{metric} is a number; leave `{}` out", unit.text)));
            }
            let whole = number.text.parse::<u32>().map(u64::from);
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

/// What the metrics are called and say, for help.
pub fn metrics() -> impl Iterator<Item = (&'static str, &'static str)> {
    METRICS.iter().map(|(name, _, _, meaning)| (*name, *meaning))
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |f: &mut fmt::Formatter<'_>, parts: &[Condition], word: &str| {
            parts.iter().enumerate().try_for_each(|(place, part)| {
                let before = if place > 0 { word } else { "" };
                match part {
                    Condition::Compare { .. } => write!(f, "{before}{part}"),
                    Condition::All(_) if word == " or " => write!(f, "{before}{part}"),
                    _ => write!(f, "{before}({part})"),
                }
            })
        };
        let (metric, comparison, value, rounds) = match self {
            Condition::All(parts) => return join(f, parts, " and "),
            Condition::Any(parts) => return join(f, parts, " or "),
            Condition::Compare { metric, comparison, value, rounds } => (metric, comparison, *value, *rounds),
        };
        let sign = match comparison {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::More => ">",
            Comparison::AtLeast => ">=",
        };
        let Some((name, _, quantity, _)) = METRICS.iter().find(|(_, known, ..)| known == metric) else { return Ok(()) };
        let argument = if *metric == Metric::Silent { "(worker)" } else { "" };
        write!(f, "{name}{argument} {sign} ")?;
        match quantity {
            Quantity::Time => write!(f, "{}", Duration(value))?,
            Quantity::Share => write!(f, "{}%", decimal_text(value, 4))?,
            Quantity::Number => write!(f, "{value}")?,
        }
        match rounds {
            1 => Ok(()),
            rounds => write!(f, " for {rounds} rounds"),
        }
    }
}
