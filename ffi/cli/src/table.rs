//! Tables for people: columns, a header, no frames.

use comfy_table::{CellAlignment, Table, presets};

/// A table with these columns. Names that begin with `>` are numbers, and stand to the right.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(columns.iter().map(|name| name.trim_start_matches('>')));
    for (index, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// A count with a unit's prefix, in at most four figures: 999, 1.5k, 27M.
pub fn short(count: u64) -> String {
    const PREFIXES: [(u64, &str); 4] = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    match PREFIXES.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, prefix)) if count / unit < 10 => format!("{}.{}{prefix}", count / unit, count % unit / (unit / 10)),
        Some((unit, prefix)) => format!("{}{prefix}", count / unit),
        None => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        let shown: Vec<_> = [0, 999, 1_000, 1_560, 27_999_999, 9_990_000_000].map(short).into();
        assert_eq!(shown, ["0", "999", "1.0k", "1.5k", "27M", "9.9G"]);
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = table(&["name", ">count"]);
        table.add_row(["a", "7"]).add_row(["bcdef", "1234"]);
        let lines: Vec<_> = table.to_string().lines().map(|l| l.trim_end().to_owned()).collect();
        assert_eq!(lines, ["name   count", "a          7", "bcdef   1234"]);
    }
}
