//! Words, numbers and signs of the control language, each with its place in the text.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A letter, then letters, digits and `_`.
    Name,
    /// Digits, and a fraction.
    Number,
    /// Whatever else: one character, or one of `>=`, `<=`, `..`.
    Sign,
    /// Behind the last one.
    End,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    /// As written; nothing at the end.
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub at: usize,
}

/// Cuts a text into tokens; the last one is [`Kind::End`]. Every text has tokens: what makes no sense is for the parser to say.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { break };
        let (kind, length) = match first {
            'a'..='z' | 'A'..='Z' => (Kind::Name, run(rest, |c| c.is_ascii_alphanumeric() || c == '_')),
            '0'..='9' => (Kind::Number, number(rest)),
            _ if [">=", "<=", ".."].iter().any(|sign| rest.starts_with(sign)) => (Kind::Sign, 2),
            other => (Kind::Sign, other.len_utf8()),
        };
        tokens.push(Token { kind, text: &rest[..length], at });
        at += length;
    }
    tokens.push(Token { kind: Kind::End, text: "", at });
    tokens
}

fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// `3`, `0.75`; of `3..8` only the `3`.
fn number(text: &str) -> usize {
    let digits = |text| run(text, |c: char| c.is_ascii_digit());
    let whole = digits(text);
    match text[whole..].strip_prefix('.').map(digits) {
        None | Some(0) => whole,
        Some(fraction) => whole + 1 + fraction,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_words_numbers_and_signs() {
        let texts = |text| tokens(text).iter().map(|token| token.text).collect::<Vec<_>>();
        assert_eq!(texts("wait_p95 > 20ms"), ["wait_p95", ">", "20", "ms", ""]);
        assert_eq!(
            texts("partial(k=ceil(0.75*n))"),
            ["partial", "(", "k", "=", "ceil", "(", "0.75", "*", "n", ")", ")", ""]
        );
        assert_eq!(texts("3..8 3.5.1 <=5%"), ["3", "..", "8", "3.5", ".", "1", "<=", "5", "%", ""]);
        assert_eq!(texts(" \u{e9}\t"), ["\u{e9}", ""]);
        assert_eq!(tokens("\u{e9} n").iter().map(|token| token.at).collect::<Vec<_>>(), [0, 3, 4]);
    }
}
