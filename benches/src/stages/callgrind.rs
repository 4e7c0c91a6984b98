//! Callgrind's profile (its manual, "Callgrind Format Specification"), as far as it says which file's instructions were executed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

/// Instructions by source file, those of called functions not included. Code of Rust's own library that was inlined into a function
/// counts as the file's in which that function, or what was inlined around it, is written.
///
/// # Errors
/// A line that the format does not know.
pub(crate) fn self_costs(profile: &str) -> Result<BTreeMap<String, u64>> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut costs = BTreeMap::new();
    // The function's own file, and that of the line which is being executed.
    let (mut outer, mut current) = ("", "");
    let mut is_call = false;
    for line in profile.lines() {
        if let Some(value) = line.strip_prefix("fl=") {
            outer = file(value, &mut names);
            current = outer;
        } else if let Some(value) = line.strip_prefix("fi=").or_else(|| line.strip_prefix("fe=")) {
            current = file(value, &mut names);
            if !is_library(current) {
                outer = current;
            }
        } else if let Some(value) = line.strip_prefix("cfi=").or_else(|| line.strip_prefix("cfl=")) {
            // The called function's file: it may be named here first.
            file(value, &mut names);
        } else if line.starts_with("calls=") {
            // The next line's cost is that of what was called.
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            if std::mem::take(&mut is_call) {
                continue;
            }
            let Some(cost) = line.split_whitespace().nth(1) else { continue };
            let cost: u64 = cost.parse().with_context(|| format!("not a cost: {line}"))?;
            let whose = if is_library(current) { outer } else { current };
            *costs.entry(whose.to_owned()).or_insert(0) += cost;
        }
    }
    Ok(costs)
}

/// `(12) path` names a file, `(12)` alone refers to it.
fn file<'t>(value: &'t str, names: &mut BTreeMap<&'t str, &'t str>) -> &'t str {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            name
        }
        None => names.get(value).copied().unwrap_or(value),
    }
}

/// Rust's own library is everywhere, and nowhere by itself. But reading the clock is an instruction of its own.
fn is_library(file: &str) -> bool {
    file.starts_with("/rustc/") && !file.ends_with("rdtsc.rs")
}

#[cfg(test)]
mod tests {
    use super::self_costs;

    #[test]
    fn inlined_code_belongs_to_its_file_and_calls_to_nobody() {
        let profile = "events: Ir\nfl=(1) a.rs\nfn=(1) f\n10 5\n+1 2\nfi=(2) b.rs\n7 3\nfi=(3) /rustc/1/library/core/src/option.rs\n9 4\n\
                       fe=(1)\n* 1\ncfi=(4) c.rs\ncfn=(2) g\ncalls=1 20\n12 100\n13 1\n\nfl=(4)\nfn=(2)\n20 100\ntotals: 116\n";
        let costs = self_costs(profile).unwrap();
        let expected = [("a.rs", 9), ("b.rs", 7), ("c.rs", 100)].map(|(file, cost)| (file.to_owned(), cost));
        assert_eq!(costs.into_iter().collect::<Vec<_>>(), expected);
    }
}
