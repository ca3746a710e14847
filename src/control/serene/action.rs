//! `then` and `start`: strategies and what else a policy can do.
//!
//! ```text
//! action     := strategy | "drop_member" "(" "worker" ")" | "hold"
//! strategy   := "bsp" | "asp" | "ssp" "(" slack ")"
//!             | "partial" "(" count [ "," "late" "=" late ] ")"
//!             | "timed" "(" time [ "," "kmin" "=" count ] [ "," "late" "=" late ] ")"
//! count      := NUMBER | "n" [ "-" NUMBER ] | "ceil" "(" NUMBER "*" "n" ")"
//! late       := "drop" | "return"
//! ```
//! The first argument may have its name too (`k =`, `slack =`, `deadline =`), and named ones come in any order.

use super::ast::{Action, Late, Quorum, Strategy};
use super::condition::time;
use super::cursor::{Cursor, SyntaxError, decimal};
use super::lexer::{Kind, Token};
use crate::dataplane::Nanos;

/// A strategy's name, and how it is written.
pub const STRATEGIES: [(&str, &str); 5] = [
    ("bsp", "bsp"),
    ("partial", "partial(k = n-1, late = return)"),
    ("ssp", "ssp(3)"),
    ("asp", "asp"),
    ("timed", "timed(30ms, kmin = n-1, late = drop)"),
];
/// Of `ssp`: the ring of open rounds has 16 places.
const MAX_SLACK: u8 = 15;
/// Of `timed`: shorter than a round trip through a busy switch, a round would end before the others can be there.
const MIN_DEADLINE_NS: Nanos = 1_000_000;

/// Reads a strategy.
///
/// # Errors
/// Where it does not follow the grammar, or a number is out of its range.
pub fn parse_strategy(text: &str) -> Result<Strategy, SyntaxError> {
    let mut cursor = Cursor::new(text);
    let strategy = strategy(&mut cursor, &[])?;
    cursor.end("name one strategy")?;
    Ok(strategy)
}

/// Reads an action.
///
/// # Errors
/// As [`parse_strategy`].
pub fn parse_action(text: &str) -> Result<Action, SyntaxError> {
    let mut cursor = Cursor::new(text);
    let action = match cursor.peek().text {
        "hold" => {
            cursor.take();
            Action::Hold
        }
        "drop_member" => {
            cursor.take();
            let cure = "write drop_member(worker), with silent(worker) in `when`";
            cursor.expect("(", cure)?;
            cursor.expect("worker", cure)?;
            cursor.expect(")", cure)?;
            Action::DropMember
        }
        _ => Action::Swap(strategy(&mut cursor, &["drop_member", "hold"])?),
    };
    cursor.end("a policy does one thing")?;
    Ok(action)
}

/// `others` are names that may stand here too, for the message.
fn strategy(cursor: &mut Cursor<'_>, others: &[&str]) -> Result<Strategy, SyntaxError> {
    let name = cursor.take();
    match name.text {
        "bsp" => no_arguments(cursor, &name).map(|()| Strategy::Bsp),
        "asp" => no_arguments(cursor, &name).map(|()| Strategy::Asp),
        "ssp" => {
            let mut slack = None;
            arguments(cursor, &["slack"], |cursor, _| Ok(slack = Some(self::slack(cursor)?)))?;
            let slack = slack.ok_or_else(|| missing(&name, "how many rounds ahead a worker may be"))?;
            Ok(Strategy::Ssp { slack })
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
            Ok(Strategy::Partial { k, late })
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
            Ok(Strategy::Timed { deadline_ns, kmin, late })
        }
        _ => {
            let what = if others.is_empty() { "strategy" } else { "action" };
            Err(name.unknown(what, STRATEGIES.iter().map(|(name, _)| *name).chain(others.iter().copied())))
        }
    }
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

fn slack(cursor: &mut Cursor<'_>) -> Result<u8, SyntaxError> {
    let token = cursor.peek();
    let slack = cursor.whole("a number of rounds", "write for instance ssp(3)")?;
    if cursor.peek().text == ".." {
        return Err(token.wrong(format!(
            "a range of slacks (DSSP) is not built: it is chosen anew at every iteration, while a rule holds one slack; \
             write ssp({slack}), and policies with `in = \"ssp\"` that swap to another slack when lag_max says so"
        )));
    }
    u8::try_from(slack).ok().filter(|slack| (1..=MAX_SLACK).contains(slack)).ok_or_else(|| {
        token.wrong(format!(
            "a slack of {slack} rounds; use 1 to {MAX_SLACK} (the switch keeps 16 rounds open), bsp for 0, asp for no bound"
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
