//! The parser's place in a text, and what is wrong there.

use thiserror::Error;

use super::lexer::{Kind, Token, tokens};
use crate::control::config::with_guess;

/// A text that does not say what it should: where, and the cure.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct SyntaxError {
    /// Where, in bytes from the text's beginning.
    pub at: usize,
    /// What is wrong, with what is written there, and the cure.
    pub message: String,
}

/// Reads tokens one by one.
pub(super) struct Cursor<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Cursor { tokens: tokens(text), next: 0 }
    }

    /// The next token, which stays.
    pub(super) fn peek(&self) -> Token<'a> {
        self.ahead(0)
    }

    /// The token so many behind the next one; the last one for ever.
    pub(super) fn ahead(&self, count: usize) -> Token<'a> {
        self.tokens[(self.next + count).min(self.tokens.len() - 1)]
    }

    /// The next token, which is taken.
    pub(super) fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Takes the next token where it is this word or sign.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = self.peek().text == text;
        if found {
            self.take();
        }
        found
    }

    /// Takes this word or sign.
    pub(super) fn expect(&mut self, text: &str, cure: &str) -> Result<(), SyntaxError> {
        if self.eat(text) { Ok(()) } else { Err(self.peek().unexpected(&format!("`{text}`"), cure)) }
    }

    /// Takes a whole number of at most 9 digits.
    pub(super) fn whole(&mut self, what: &str, cure: &str) -> Result<u32, SyntaxError> {
        let token = self.peek();
        match token.text.parse::<u32>() {
            Ok(number) if token.kind == Kind::Number && number < 1_000_000_000 => {
                self.take();
                Ok(number)
            }
            _ => Err(token.unexpected(what, cure)),
        }
    }

    /// Sees to it that nothing follows.
    pub(super) fn end(&self, cure: &str) -> Result<(), SyntaxError> {
        let token = self.peek();
        if token.kind == Kind::End {
            Ok(())
        } else {
            Err(token.wrong(format!("`{}` is too much here; {cure}", token.text)))
        }
    }
}

impl Token<'_> {
    pub(super) fn wrong(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { at: self.at, message: message.into() }
    }

    /// That something else should stand here.
    pub(super) fn unexpected(&self, what: &str, cure: &str) -> SyntaxError {
        match self.kind {
            Kind::End => self.wrong(format!("the text ends where {what} should follow; {cure}")),
            _ => self.wrong(format!("`{}` stands where {what} should; {cure}", self.text)),
        }
    }

    /// That a name means nothing here, what there is, and which one may be meant.
    pub(super) fn unknown<'n>(&self, what: &str, names: impl IntoIterator<Item = &'n str>) -> SyntaxError {
        let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
        match self.kind {
            Kind::Name => {
                let message = format!("unknown {what} `{}`, expected one of {}", self.text, names.join(", "));
                self.wrong(with_guess(&message))
            }
            _ => self.unexpected(&format!("the {what}"), &format!("use one of {}", names.join(", "))),
        }
    }
}

/// A decimal number in units of 10^-`digits`, exactly; `None` where it has more digits or does not fit.
pub(super) fn decimal(text: &str, digits: u32) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let missing = digits.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    let scaled: u64 = format!("{whole}{fraction}").parse().ok()?;
    scaled.checked_mul(10u64.checked_pow(missing)?)
}

/// The shortest text for a number in units of 10^-`digits`.
pub(super) fn decimal_text(value: u64, digits: u32) -> String {
    let unit = 10u64.pow(digits);
    let fraction = format!("{:0width$}", value % unit, width = digits as usize);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(decimal("0.75", 3), Some(750));
        assert_eq!(decimal("12", 4), Some(120_000));
        assert_eq!(decimal("0.12345", 4), None);
        assert_eq!(decimal("99999999999999999999", 4), None);
        for value in [0, 1, 5, 10, 750, 1000, 1234, 20_000] {
            assert_eq!(decimal(&decimal_text(value, 3), 3), Some(value));
        }
        assert_eq!(decimal_text(750, 3), "0.75");
        assert_eq!(decimal_text(50_000, 4), "5");
    }
}
