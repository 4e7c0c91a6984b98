//! A script: its text as it is run, what it sets, and where scripts are found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::exclusions::matches;

/// What a shell command is replaced by.
const NOTHING: &str = "true";
/// How deep folders of scripts may be nested.
const DEPTH_MAX: usize = 16;

/// A script.
#[derive(Debug)]
pub(super) struct Script {
    /// With commands that do nothing, line by line as it was.
    pub(super) text: String,
    /// The sysctls that it sets before it begins, those of the shell scripts that it runs included; the last value of each.
    pub(super) sysctls: BTreeMap<String, String>,
}

impl Script {
    /// Reads one. A command that sets sysctls later on is to write them to the file `changes`, where the library finds them.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(path: &Path, changes: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Ok(Self::parse(&String::from_utf8_lossy(&text), changes, |name| std::fs::read_to_string(folder.join(name)).ok()))
    }

    /// `file`: the text of a shell script that a command names.
    fn parse(text: &str, changes: &Path, file: impl Fn(&str) -> Option<String>) -> Self {
        let mut script = Self { text: String::with_capacity(text.len()), sysctls: BTreeMap::new() };
        // (There is one such command at most: packetdrill's grammar has no more, but for one at the end.)
        let mut is_first = true;
        let mut left = text;
        while let Some((kind, at)) = next_part(left) {
            let (before, from) = left.split_at(at);
            script.text += before;
            let (opened, closing) = kind.delimiters();
            let inside = &from[opened.len()..];
            let len = inside.find(closing).unwrap_or(inside.len());
            let end = (opened.len() + len + closing.len()).min(from.len());
            match kind {
                Part::Command => {
                    let command = &inside[..len];
                    let set = sysctls(command, Some(&file));
                    let is_timed = script.text.rsplit('\n').next().is_some_and(|line| !line.trim().is_empty());
                    script.text += "`";
                    if is_timed && !set.is_empty() {
                        let lines: Vec<_> = set.iter().map(|(name, value)| format!("'{name}={value}'")).collect();
                        script.text += &format!("printf '%s\\n' {} >> '{}'", lines.join(" "), changes.display());
                    } else {
                        script.text += NOTHING;
                    }
                    if is_first && !is_timed {
                        script.sysctls.extend(set);
                        is_first = false;
                    }
                    script.text += &"\n".repeat(command.matches('\n').count());
                    script.text += "`";
                }
                _ => script.text += &from[..end],
            }
            left = &from[end..];
        }
        script.text += left;
        script
    }

    /// The value of an option that the script has for packetdrill, as `--local_ip=192.168.0.2`.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| -> Option<usize> {
            let rest = line.trim_start().strip_prefix("--")?.strip_prefix(name)?.strip_prefix('=')?;
            Some(line.len() - rest.len())
        };
        let line = self.text.lines().find(|line| value(line).is_some())?;
        line[value(line)?..].split_whitespace().next()
    }
}

/// The sysctls that a command sets, the last value of each.
fn sysctls(command: &str, file: Option<Reader<'_>>) -> BTreeMap<String, String> {
    let mut set = BTreeMap::new();
    let joined = command.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or_default().trim()).filter(|line| !line.starts_with('#'));
    for line in lines {
        let words = words(line);
        if let Some(called) = words.iter().take(2).find(|word| word.ends_with(".sh"))
            && let Some(more) = file.and_then(|file| file(called))
        {
            set.extend(sysctls(&more, None));
        }
        for (name, value) in words.iter().filter_map(|word| word.split_once('=')) {
            let name = name.trim_start_matches("/proc/sys/").replace('/', ".");
            // (A comma would end the flag, and a quote the word of a shell; nothing that the library knows has one.)
            if name.starts_with("net.") && !value.contains([',', '\'']) {
                set.insert(name, evaluated(value));
            }
        }
    }
    set
}

/// Gives the text of a shell script, if there is one of that name.
type Reader<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What is to be skipped, or replaced, as a whole.
#[derive(Clone, Copy, Debug)]
enum Part {
    Command,
    Code,
    Text,
    LineComment,
    Comment,
}

impl Part {
    const ALL: [Self; 5] = [Self::Command, Self::Code, Self::Text, Self::LineComment, Self::Comment];

    const fn delimiters(self) -> (&'static str, &'static str) {
        match self {
            Self::Command => ("`", "`"),
            Self::Code => ("%{", "}%"),
            Self::Text => ("\"", "\""),
            Self::LineComment => ("//", "\n"),
            Self::Comment => ("/*", "*/"),
        }
    }
}

/// The next of them, and where it begins.
fn next_part(text: &str) -> Option<(Part, usize)> {
    Part::ALL.into_iter().filter_map(|part| Some((part, text.find(part.delimiters().0)?))).min_by_key(|(_, at)| *at)
}

/// A command's words, as a shell would part them, without quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None, c) if c.is_whitespace() || c == ';' => words.push(String::new()),
            (_, c) => words.last_mut().expect("there is one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A value whose products, as `$((256*1024))`, are numbers.
fn evaluated(value: &str) -> String {
    let mut out = String::new();
    let mut left = value;
    while let Some((before, rest)) = left.split_once("$((")
        && let Some((product, after)) = rest.split_once("))")
    {
        let number =
            product.split('*').map(|factor| factor.trim().parse::<u64>().ok()).try_fold(1u64, |product, n| product.checked_mul(n?));
        out += before;
        out += &number.map_or_else(|| product.to_owned(), |number| number.to_string());
        left = after;
    }
    out + left
}

/// The scripts that are meant, in order, and the folder that their names are told below.
///
/// # Errors
/// A folder cannot be read.
pub(super) fn find(meant: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let text = meant.to_string_lossy();
    let (base, pattern) = match text.split_once('*') {
        // A pattern's folder is all before its first star.
        Some((before, _)) => (Path::new(before.rsplit_once('/').map_or(".", |(folder, _)| folder)).to_owned(), Some(text.as_ref())),
        None if meant.is_file() => return Ok((meant.parent().unwrap_or(Path::new("")).to_owned(), vec![meant.to_owned()])),
        None => (meant.to_owned(), None),
    };
    let mut files = Vec::new();
    collect(&base, DEPTH_MAX, &mut files)?;
    files.retain(|file| pattern.is_none_or(|pattern| matches(pattern, &file.to_string_lossy())));
    files.sort();
    Ok((base, files))
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && depth > 0 {
            collect(&path, depth - 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_replaced_and_what_they_set_is_noted() {
        let text = "// a `comment`\n--local_ip=10.0.0.9 // ours\n`./defaults.sh\nsysctl -q net.ipv4.tcp_sack=0 \\\n  net.ipv4.tcp_rmem=\"1 2 $((3*4))\"`\n+0 write(4, \"`\", 1) = 1\n%{ x = '`' }%\n+1 `set.py /proc/sys/net/ipv4/tcp_ecn=2`\n`restore.sh tcp_ecn=1`\n";
        let defaults = "#!/bin/sh\n# sysctl net.ipv4.tcp_no=1\nsysctl -q net.ipv4.tcp_sack=1\nsysctl -q net.ipv4.tcp_frto=2 # more\n";
        let script = Script::parse(text, Path::new("/t/sysctls"), |name| (name == "./defaults.sh").then(|| defaults.to_owned()));
        let expected = "// a `comment`\n--local_ip=10.0.0.9 // ours\n`true\n\n`\n+0 write(4, \"`\", 1) = 1\n%{ x = '`' }%\n+1 `printf '%s\\n' 'net.ipv4.tcp_ecn=2' >> '/t/sysctls'`\n`true`\n";
        assert_eq!(script.text, expected);
        let set: Vec<_> = script.sysctls.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(set, ["net.ipv4.tcp_frto=2", "net.ipv4.tcp_rmem=1 2 12", "net.ipv4.tcp_sack=0"]);
        assert_eq!((script.option("local_ip"), script.option("mtu")), (Some("10.0.0.9"), None));
    }
}
