//! libvma.conf's words: one statement a line, comments from `#` on (vma.md section 4).
//!
//! ```text
//! application-id PROGRAM ID
//! log [destination stderr|syslog|file NAME] [min-level 1-9]
//! use os|vma|sdp|sa|* tcp_server|tcp_client|udp_sender|udp_receiver|udp_connect ADDRESS:PORTS[:ADDRESS:PORTS]
//!     ADDRESS: a.b.c.d, a.b.c.d/len, *     PORTS: n, n-m, *
//! ```
//!
//! Upstream's lexer knows `stderr` and `file` as `ystderr` and `yfile` only; both spellings are taken.

use std::fmt;
use std::net::Ipv4Addr;

use super::{Endpoint, Role, Rule, Scope, Statement, Transport};

/// What was wrong with a line, and where: columns count characters from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ParseError {
    /// The line, from one.
    pub line: u32,
    /// The character in it.
    pub column: u32,
    /// What was expected there, and what is there.
    pub what: String,
}

/// A `log` statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Where to.
    pub destination: Option<Destination>,
    /// 1 to 9.
    pub min_level: Option<u8>,
}

/// A `log` statement's destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard error.
    Stderr,
    /// syslog(3).
    Syslog,
    /// A file.
    File(String),
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log")?;
        match &self.destination {
            None => {}
            Some(Destination::Stderr) => f.write_str(" destination stderr")?,
            Some(Destination::Syslog) => f.write_str(" destination syslog")?,
            Some(Destination::File(name)) => write!(f, " destination file {name}")?,
        }
        self.min_level.map_or(Ok(()), |level| write!(f, " min-level {level}"))
    }
}

/// Understands one line; `None`: there is nothing on it.
///
/// # Errors
/// It is no statement. `number` is what the error calls the line.
pub fn statement(line: &str, number: u32) -> Result<Option<Statement>, ParseError> {
    let code = line.split('#').next().unwrap_or_default();
    let mut scanner = Scanner { code, at: 0, line: number };
    scanner.blanks();
    if scanner.rest().is_empty() {
        return Ok(None);
    }
    let start = scanner.at;
    let statement = match scanner.word() {
        "application-id" => {
            let program = scanner.expect_word("a program's name, or a pattern of names")?.to_owned();
            let id = scanner.expect_word("an application's id, or *")?.to_owned();
            Statement::ApplicationId(Scope { program, id })
        }
        "log" => Statement::Log(scanner.log()?),
        "use" => Statement::Use(scanner.rule()?),
        _ => return Err(scanner.unexpected(start, "application-id, log or use")),
    };
    scanner.blanks();
    match scanner.rest().is_empty() {
        true => Ok(Some(statement)),
        false => Err(scanner.unexpected(scanner.at, "the line's end")),
    }
}

/// A place in a line.
struct Scanner<'a> {
    /// The line without its comment.
    code: &'a str,
    /// Invariant: a character of `code` begins here, or it ends.
    at: usize,
    line: u32,
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.code[self.at..]
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    fn blanks(&mut self) {
        self.take_while(is_blank);
    }

    /// What is there up to the next blank.
    fn word(&mut self) -> &'a str {
        self.take_while(|c| !is_blank(c))
    }

    fn expect_word(&mut self, expected: &str) -> Result<&'a str, ParseError> {
        self.blanks();
        match self.word() {
            "" => Err(self.unexpected(self.at, expected)),
            word => Ok(word),
        }
    }

    /// One of a few words.
    fn one_of<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, ParseError> {
        self.blanks();
        let start = self.at;
        let word = self.word();
        words.iter().find(|(one, _)| *one == word).map(|&(_, value)| value).ok_or_else(|| {
            let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
            self.unexpected(start, &names.join(", "))
        })
    }

    fn take(&mut self, c: char) -> bool {
        self.blanks();
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, c: char) -> Result<(), ParseError> {
        if self.take(c) { Ok(()) } else { Err(self.unexpected(self.at, &format!("\"{c}\""))) }
    }

    /// 0, or a number that does not begin with it.
    fn number(&mut self, greatest: u32, expected: &str) -> Result<u32, ParseError> {
        self.blanks();
        let start = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        let value = digits.parse().ok().filter(|&value| value <= greatest && (digits == "0" || !digits.starts_with('0')));
        value.ok_or_else(|| self.unexpected(start, expected))
    }

    fn log(&mut self) -> Result<Log, ParseError> {
        let mut log = Log::default();
        loop {
            self.blanks();
            let start = self.at;
            match self.word() {
                "" => return Ok(log),
                "destination" => {
                    self.blanks();
                    let start = self.at;
                    log.destination = Some(match self.word() {
                        "stderr" | "ystderr" => Destination::Stderr,
                        "syslog" => Destination::Syslog,
                        "file" | "yfile" => Destination::File(self.expect_word("a file's name")?.to_owned()),
                        _ => return Err(self.unexpected(start, "stderr, syslog or file")),
                    });
                }
                "min-level" => {
                    self.blanks();
                    let start = self.at;
                    let level = self.number(9, "a level from 1 to 9")?;
                    let level = u8::try_from(level).ok().filter(|&level| level != 0);
                    log.min_level = Some(level.ok_or_else(|| self.unexpected(start, "a level from 1 to 9"))?);
                }
                _ => return Err(self.unexpected(start, "destination, min-level, or the line's end")),
            }
        }
    }

    fn rule(&mut self) -> Result<Rule, ParseError> {
        let transport = self.one_of(&Transport::ALL.map(|transport| (transport.name(), transport)))?;
        let role = self.one_of(&Role::ALL.map(|role| (role.name(), role)))?;
        let first = self.endpoint()?;
        let second = if self.take(':') { Some(self.endpoint()?) } else { None };
        Ok(Rule { transport, role, first, second })
    }

    fn endpoint(&mut self) -> Result<Endpoint, ParseError> {
        let net = if self.take('*') { None } else { Some(self.net()?) };
        self.expect(':')?;
        let (first, last) = if self.take('*') { (0, u16::MAX) } else { self.ports()? };
        Ok(Endpoint { net, first, last })
    }

    /// Bits beyond 32 are 32.
    fn net(&mut self) -> Result<(Ipv4Addr, u8), ParseError> {
        const EXPECTED: &str = "an address (a.b.c.d, a.b.c.d/len) or *";
        self.blanks();
        let start = self.at;
        let address = self.take_while(|c| c.is_ascii_digit() || c == '.').parse().map_err(|_| self.unexpected(start, EXPECTED))?;
        let bits = if self.take('/') { self.number(u32::MAX, "a network's length")? } else { 32 };
        Ok((address, bits.min(32) as u8))
    }

    fn ports(&mut self) -> Result<(u16, u16), ParseError> {
        const EXPECTED: &str = "a port (n), ports (n-m) or *";
        let port = |scanner: &mut Self| scanner.number(u16::MAX.into(), EXPECTED).map(|port| port as u16);
        let first = port(self)?;
        let start = self.at;
        let last = if self.take('-') { port(self)? } else { first };
        if last < first {
            return Err(self.unexpected(start, "a range that does not end before it begins"));
        }
        Ok((first, last))
    }

    /// The error that `expected` is not what is at `place`.
    fn unexpected(&self, place: usize, expected: &str) -> ParseError {
        let found = match self.code.get(place..).unwrap_or_default().split(is_blank).next() {
            None | Some("") => "the line's end".to_owned(),
            Some(word) => format!("\"{word}\""),
        };
        let before = self.code.get(..place).unwrap_or_default().chars().count();
        let column = u32::try_from(before + 1).unwrap_or(u32::MAX);
        ParseError { line: self.line, column, what: format!("expected {expected}, found {found}") }
    }
}
