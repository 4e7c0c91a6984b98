//! The manual page ringway-params(7), and the README's table, from the one that is obeyed.

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

/// The README's table of what is heeded, in Markdown, VMA_* after RINGWAY_*.
pub fn markdown() -> String {
    let mut table = String::from("| variable | default | |\n|---|---|---|\n");
    for row in TABLE.iter().filter(|row| row.effect == Effect::Heeded) {
        let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
        let values = match row.kind {
            Kind::OneOf(values) => {
                let values: Vec<_> = values.iter().map(|(value, what)| format!("{value}: {what}")).collect();
                format!(". {}", values.join(", "))
            }
            Kind::Level | Kind::Spec => format!(": {}", row.kind.allowed()),
            _ => String::new(),
        };
        let _ = writeln!(table, "| `{}` | {default} | {}{values} |", row.name, row.meaning.trim_end_matches('.'));
    }
    table
}

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

    #[test]
    fn the_readme_has_the_table() {
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(&markdown()), "README.md: its table of parameters should be\n\n{}", markdown());
    }
}
