//! `then` and `start`: strategies and what else a policy can do.
//!
//! ```text
//! action     := strategy | "ssp" "(" slack ".." slack ")" | "drop_member" "(" ( "worker" | NUMBER ) ")" | "hold"
//! strategy   := "bsp" | "asp" | "ssp" "(" slack ")"
//!             | "partial" "(" count [ "," "late" "=" late ] ")"
//!             | "timed" "(" time [ "," "kmin" "=" count ] [ "," "late" "=" late ] ")"
//! count      := NUMBER | "n" [ "-" NUMBER ] | "ceil" "(" NUMBER "*" "n" ")"
//! late       := "drop" | "return"
//! ```
//! The first argument may have its name too (`k =`, `slack =`, `deadline =`), and named ones come in any order.

use super::condition::time;
use std::fmt;

use super::cursor::{Cursor, SyntaxError, decimal};
use super::lexer::{Kind, Token};
use crate::dataplane::Nanos;
use crate::functions::serene::controller::Action;
use crate::functions::serene::{Late, MAX_SLACK, Quorum, RING_DEPTH, Strategy};
use crate::wire::aggregation::MAX_WORKERS;

/// A strategy's name, and how it is written.
pub const STRATEGIES: [(&str, &str); 5] = [
    ("bsp", "bsp"),
    ("partial", "partial(k = n-1, late = return)"),
    ("ssp", "ssp(3)"),
    ("asp", "asp"),
    ("timed", "timed(30ms, kmin = n-1, late = drop)"),
];
/// Of `timed`: shorter than a round trip through a busy switch, a round would end before the others can be there.
const MIN_DEADLINE_NS: Nanos = 1_000_000;

/// Reads a strategy.
///
/// # Errors
/// As [`parse_action`], and what is no strategy.
pub fn parse_strategy(text: &str) -> Result<Strategy, SyntaxError> {
    let wrong = |message: String| SyntaxError { at: text.len() - text.trim_start().len(), message };
    match parse_action(text)? {
        Action::Swap(strategy) => Ok(strategy),
        Action::SspWithin { low, .. } => {
            Err(wrong(format!("a range of slacks is for a policy, which chooses in it; write ssp({low})")))
        }
        other => Err(wrong(format!("{other} is for policies; use one of {}", examples()))),
    }
}

/// Reads an action.
///
/// # Errors
/// Where it does not follow the grammar, or a number is out of its range.
pub fn parse_action(text: &str) -> Result<Action, SyntaxError> {
    let mut cursor = Cursor::new(text);
    let action = action(&mut cursor)?;
    cursor.end("name one thing to do")?;
    Ok(action)
}

fn action(cursor: &mut Cursor<'_>) -> Result<Action, SyntaxError> {
    let name = cursor.take();
    match name.text {
        "hold" => no_arguments(cursor, &name).map(|()| Action::Hold),
        "drop_member" => member(cursor).map(Action::DropMember),
        "bsp" => no_arguments(cursor, &name).map(|()| Action::Swap(Strategy::Bsp)),
        "asp" => no_arguments(cursor, &name).map(|()| Action::Swap(Strategy::Asp)),
        "ssp" => {
            let mut action = None;
            arguments(cursor, &["slack"], |cursor, _| {
                action = Some(ssp(cursor)?);
                Ok(())
            })?;
            action.ok_or_else(|| missing(&name, "how many rounds ahead a worker may be"))
        }
        "partial" => {
            let (mut k, mut late) = (None, Late::Drop);
            arguments(cursor, &["k", "late"], |cursor, argument| {
                match argument {
                    "k" => k = Some(count(cursor)?),
                    _ => late = self::late(cursor)?,
                }
                Ok(())
            })?;
            let k = k.ok_or_else(|| missing(&name, "k, how many contributions end a round"))?;
            Ok(Action::Swap(Strategy::Partial { k, late }))
        }
        "timed" => {
            let (mut deadline, mut kmin, mut late) = (None, Quorum::Exactly(1), Late::Drop);
            arguments(cursor, &["deadline", "kmin", "late"], |cursor, argument| {
                match argument {
                    "deadline" => deadline = Some(self::deadline(cursor)?),
                    "kmin" => kmin = count(cursor)?,
                    _ => late = self::late(cursor)?,
                }
                Ok(())
            })?;
            let deadline_ns =
                deadline.ok_or_else(|| missing(&name, "how long after its first arrival a round ends"))?;
            Ok(Action::Swap(Strategy::Timed { deadline_ns, kmin, late }))
        }
        _ => {
            let strategies = STRATEGIES.iter().map(|(name, _)| *name);
            Err(name.unknown("action", strategies.chain(["drop_member", "hold"])))
        }
    }
}

/// How each strategy is written.
fn examples() -> String {
    STRATEGIES.map(|(_, example)| example).join(", ")
}

/// `( worker )`, or a worker's number.
fn member(cursor: &mut Cursor<'_>) -> Result<Option<u8>, SyntaxError> {
    const CURE: &str = "write drop_member(worker), with silent(worker) in `when`, or a worker's number";
    cursor.expect("(", CURE)?;
    let token = cursor.peek();
    let member =
        if cursor.eat("worker") {
            None
        } else {
            let number = cursor.whole("`worker`", CURE)?;
            let worker = u8::try_from(number).ok().filter(|worker| *worker < MAX_WORKERS);
            Some(worker.ok_or_else(|| {
                token.wrong(format!("worker {number}; they are numbered from 0 to {}", MAX_WORKERS - 1))
            })?)
        };
    cursor.expect(")", CURE)?;
    Ok(member)
}

fn no_arguments(cursor: &Cursor<'_>, name: &Token<'_>) -> Result<(), SyntaxError> {
    let token = cursor.peek();
    match token.text {
        "(" => Err(token.wrong(format!("{} takes nothing; write {} alone", name.text, name.text))),
        _ => Ok(()),
    }
}

fn missing(name: &Token<'_>, what: &str) -> SyntaxError {
    let example = STRATEGIES.iter().find(|(known, _)| *known == name.text).map_or("", |(_, example)| example);
    name.wrong(format!("{} needs to be told {what}; write for instance {example}", name.text))
}

/// `( [name =] value , name = value .. )`; `set` reads the value of the argument that it is given the name of.
fn arguments<'a>(
    cursor: &mut Cursor<'a>,
    names: &[&'static str],
    mut set: impl FnMut(&mut Cursor<'a>, &'static str) -> Result<(), SyntaxError>,
) -> Result<(), SyntaxError> {
    if !cursor.eat("(") {
        return Ok(());
    }
    let mut given: Vec<&str> = Vec::new();
    loop {
        let token = cursor.peek();
        let named = cursor.ahead(1).text == "=";
        let name = if named { names.iter().find(|name| **name == token.text) } else { names.first() };
        let Some(&name) = name else { return Err(token.unknown("argument", names.iter().copied())) };
        if given.contains(&name) {
            return Err(match (named, names) {
                (true, _) => token.wrong(format!("`{name}` is given twice; leave one out")),
                (false, [_]) => token.unexpected("`)`", "this takes one number"),
                (false, _) => {
                    token.unexpected("a name", &format!("name all but the first: {} =", names[1..].join(" =, ")))
                }
            });
        }
        given.push(name);
        if named {
            cursor.take();
            cursor.take();
        }
        set(cursor, name)?;
        if !cursor.eat(",") {
            return cursor.expect(")", "close the arguments, or separate them by commas");
        }
    }
}

/// `3`, or `3..8`.
fn ssp(cursor: &mut Cursor<'_>) -> Result<Action, SyntaxError> {
    let token = cursor.peek();
    let low = slack(cursor)?;
    if !cursor.eat("..") {
        return Ok(Action::Swap(Strategy::Ssp { slack: low }));
    }
    let high = slack(cursor)?;
    if low >= high {
        return Err(token
            .wrong(format!("{low}..{high} leaves nothing to choose; put the lower slack first, or write ssp({low})")));
    }
    Ok(Action::SspWithin { low, high })
}

fn slack(cursor: &mut Cursor<'_>) -> Result<u8, SyntaxError> {
    let token = cursor.peek();
    let slack = cursor.whole("a number of rounds", "write for instance ssp(3)")?;
    u8::try_from(slack).ok().filter(|slack| (1..=MAX_SLACK).contains(slack)).ok_or_else(|| {
        token.wrong(format!(
            "a slack of {slack} rounds; use 1 to {MAX_SLACK} (the switch keeps {RING_DEPTH} rounds apart), bsp for 0, asp for no bound"
        ))
    })
}

fn deadline(cursor: &mut Cursor<'_>) -> Result<Nanos, SyntaxError> {
    let number = cursor.take();
    if number.kind != Kind::Number {
        return Err(number.unexpected("a time", "write for instance timed(30ms)"));
    }
    let deadline = time(cursor, number, "deadline")?;
    if deadline < MIN_DEADLINE_NS {
        return Err(
            number.wrong("a deadline of less than 1ms is shorter than a round trip through a busy switch; use more")
        );
    }
    Ok(deadline)
}

fn late(cursor: &mut Cursor<'_>) -> Result<Late, SyntaxError> {
    let token = cursor.take();
    match token.text {
        "drop" => Ok(Late::Drop),
        "return" => Ok(Late::Return),
        _ => Err(token.unknown("fate of what is late", ["drop", "return"])),
    }
}

fn count(cursor: &mut Cursor<'_>) -> Result<Quorum, SyntaxError> {
    const CURE: &str = "write a number, n, n-1 or ceil(0.75*n)";
    let token = cursor.peek();
    match token.text {
        "n" => {
            cursor.take();
            if !cursor.eat("-") {
                return Ok(Quorum::AllBut(0));
            }
            let number = cursor.peek();
            let out = cursor.whole("a number of workers", CURE)?;
            let out = u8::try_from(out).ok().filter(|out| *out < 32);
            out.map(Quorum::AllBut)
                .ok_or_else(|| number.wrong(format!("n-{} leaves nobody; a job has at most 32 workers", number.text)))
        }
        "ceil" => {
            cursor.take();
            cursor.expect("(", CURE)?;
            let number = cursor.take();
            let share = decimal(number.text, 3).filter(|_| number.kind == Kind::Number);
            let share = share.and_then(|share| u16::try_from(share).ok()).filter(|share| (1..=1000).contains(share));
            let share = share.ok_or_else(|| number.unexpected("a share", "use 0.001 to 1, such as ceil(0.75*n)"))?;
            cursor.expect("*", CURE)?;
            cursor.expect("n", CURE)?;
            cursor.expect(")", CURE)?;
            Ok(Quorum::PerMille(share))
        }
        _ => {
            let exactly = cursor.whole("a number of workers", CURE)?;
            let exactly = u8::try_from(exactly).ok().filter(|count| (1..=32).contains(count));
            exactly
                .map(Quorum::Exactly)
                .ok_or_else(|| token.wrong(format!("{} workers; a job has 1 to 32", token.text)))
        }
    }
}

/// As the grammar has it, so that it can be read again.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Swap(strategy) => strategy.fmt(f),
            Action::SspWithin { low, high } => write!(f, "ssp({low}..{high})"),
            Action::DropMember(None) => f.write_str("drop_member(worker)"),
            Action::DropMember(Some(worker)) => write!(f, "drop_member({worker})"),
            Action::Hold => f.write_str("hold"),
        }
    }
}
