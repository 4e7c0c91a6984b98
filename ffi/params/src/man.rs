//! The manual page ringway-params(7) and the page PARAMETERS.md, both generated from the table that the library obeys.

use std::fmt::Write as _;

use crate::kind::Kind;
use crate::settings::aliases;
use crate::spec::SPECS;
use crate::table::{Effect, Row, TABLE};

/// The manual page, for man(7).
pub fn page() -> String {
    let mut page = String::from(concat!(
        ".TH RINGWAY-PARAMS 7 \"\" \"Ringway\" \"Ringway\"\n",
        ".SH NAME\nringway-params \\- the environment variables of programs on Ringway\n",
        ".SH DESCRIPTION\n",
        "libvma.so reads these once, when a program makes its first socket. A value that cannot be understood means the default, and one\n",
        "warning in the log. Numbers may be hexadecimal (0x3).\n",
        ".B ringway doctor \\-\\-params\nshows what a program that is started now would use, and where each value is from.\n",
        ".SH PARAMETERS\n",
    ));
    TABLE.iter().filter(|row| row.effect == Effect::Heeded).for_each(|row| entry(&mut page, row));
    page.push_str(".SH OTHER NAMES\n");
    for (name, means) in aliases() {
        let means: Vec<_> = means.iter().map(|id| id.row().name).collect();
        let _ = writeln!(page, ".TP\n.B {name}\n{}.", escape(&means.join(" and ")));
    }
    page.push_str(".SH PRESETS\nVMA_SPEC sets:\n");
    for spec in SPECS.iter().filter(|spec| !spec.sets.is_empty()) {
        let sets: Vec<_> = spec.sets.iter().map(|(id, value)| format!("{}={value}", id.row().name)).collect();
        let _ = writeln!(page, ".TP\n.B {}\n{}.", escape(&spec.names.join(", ")), escape(&sets.join(", ")));
    }
    page.push_str(".SH WITHOUT EFFECT\nThese are understood and checked, and change nothing:\n");
    TABLE.iter().filter(|row| row.effect != Effect::Heeded).for_each(|row| entry(&mut page, row));
    page
}

fn entry(page: &mut String, row: &Row) {
    let _ = write!(page, ".TP\n.BR {} \" (\" \"{}\"", row.name, escape(&row.kind.allowed()));
    let default = if row.default.is_empty() { String::new() } else { format!("; default {}", row.default) };
    let _ = writeln!(page, " \"{})\"\n{}", escape(&default), escape(row.meaning));
    if let Effect::Meaningless(reason) = row.effect {
        let _ = writeln!(page, "Without effect: {}.", escape(reason));
    }
}

/// Text that roff takes as it is: neither escapes nor, at a line's beginning, requests.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// The page PARAMETERS.md beside this crate: what is heeded, RINGWAY_* before VMA_*, in Markdown.
pub fn markdown() -> String {
    let mut page = String::from(concat!(
        "# Parameters\n\n",
        "<!-- Generated from src/table.rs by ringway_params::man::markdown. -->\n\n",
        "`libvma.so` reads these environment variables once, when a program makes its first socket. A value that cannot be\n",
        "understood means the default, and one line of the log says so. `ringway doctor --params` shows every parameter that\n",
        "libvma documents: its value in this environment, where the value is from, and what it does here, or why nothing.\n",
    ));
    for row in TABLE.iter().filter(|row| row.effect == Effect::Heeded) {
        let default = if row.default.is_empty() { "empty".to_owned() } else { format!("`{}`", row.default) };
        let values = match row.kind {
            Kind::OneOf(values) => {
                let values: Vec<_> = values.iter().map(|(value, what)| format!("{value}: {what}")).collect();
                format!(" {}.", values.join(", "))
            }
            Kind::Level | Kind::Spec => format!(" Values: {}.", row.kind.allowed()),
            _ => String::new(),
        };
        let text = format!("Default: {default}. {}{values}", row.meaning);
        let _ = write!(page, "\n## {}\n\n{}", row.name, wrapped(&text));
    }
    page.push_str("\n## Other names\n\n");
    for (name, means) in aliases() {
        let means: Vec<_> = means.iter().map(|id| format!("`{}`", id.row().name)).collect();
        let _ = writeln!(page, "- `{name}`: {}", means.join(" and "));
    }
    page.push_str("\n## Presets\n\n`VMA_SPEC` sets:\n");
    for spec in SPECS.iter().filter(|spec| !spec.sets.is_empty()) {
        let sets: Vec<_> = spec.sets.iter().map(|(id, value)| format!("`{}={value}`", id.row().name)).collect();
        let _ = write!(page, "\n**{}**\n\n{}", spec.names.join(", "), wrapped(&sets.join(" ")));
    }
    page
}

/// Words in lines of at most 120 columns.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut columns = 0;
    for word in text.split(' ') {
        if columns > 0 && columns + 1 + word.len() > COLUMNS {
            lines.push('\n');
            columns = 0;
        }
        if columns > 0 {
            lines.push(' ');
            columns += 1;
        }
        lines.push_str(word);
        columns += word.len();
    }
    lines.push('\n');
    lines
}

/// What a line of a page holds at most.
const COLUMNS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_its_entry() {
        let page = page();
        for row in TABLE {
            assert_eq!(page.matches(&format!(".BR {} ", row.name)).count(), 1, "{}", row.name);
        }
        assert!(page.lines().all(|line| !line.starts_with('\'') && !line.is_empty()));
    }

    /// `RINGWAY_BLESS=1` writes the page anew.
    #[test]
    fn the_page_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/PARAMETERS.md");
        if std::env::var_os("RINGWAY_BLESS").is_some() {
            std::fs::write(path, markdown()).expect("the checkout can be written to");
        }
        let page = std::fs::read_to_string(path).expect("the page is beside the crate");
        assert!(page == markdown(), "PARAMETERS.md is not what the table says: run this test with RINGWAY_BLESS=1");
    }
}
