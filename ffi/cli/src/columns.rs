//! Columns for a screen of a given width: where they do not fit, headers are abbreviated and long texts squeezed; no column is left out.

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its header, and the header where there is little room.
    pub names: [&'static str; 2],
    /// How its texts may be squeezed.
    pub squeeze: Squeeze,
}

/// What a column's texts lose first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squeeze {
    /// Nothing: a number, which stands to the right.
    Number,
    /// Nothing.
    Whole,
    /// The end; so many characters stay.
    End(usize),
    /// The beginning, as of an address, whose port says most; so many characters stay.
    Beginning(usize),
}

impl Column {
    /// A number.
    pub const fn number(name: &'static str, short: &'static str) -> Self {
        Self { names: [name, short], squeeze: Squeeze::Number }
    }

    /// A text that keeps at least so many characters of its beginning.
    pub const fn text(name: &'static str, short: &'static str, least: usize) -> Self {
        Self { names: [name, short], squeeze: Squeeze::End(least) }
    }

    /// An address.
    pub const fn address(name: &'static str) -> Self {
        Self { names: [name, name], squeeze: Squeeze::Beginning(6) }
    }

    /// Whether it stands to the right.
    pub fn is_number(&self) -> bool {
        self.squeeze == Squeeze::Number
    }

    fn least(&self, natural: usize) -> usize {
        match self.squeeze {
            Squeeze::Number | Squeeze::Whole => natural,
            Squeeze::End(least) | Squeeze::Beginning(least) => least.min(natural),
        }
    }
}

/// Headers and rows, as they fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The headers.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// How wide each column is.
    pub widths: Vec<usize>,
}

/// Fits columns into `width` characters, with `gap` between two. Where even the least of everything does not fit, that is what there is.
pub fn fit(columns: &[Column], rows: Vec<Vec<String>>, width: usize, gap: usize) -> Fitted {
    let room = width.saturating_sub(gap * columns.len().saturating_sub(1));
    let natural = |short: usize| -> Vec<usize> {
        let longest = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count()).max().unwrap_or(0);
        columns.iter().enumerate().map(|(at, column)| longest(at).max(column.names[short].chars().count())).collect()
    };
    let wide = natural(0);
    let fits = wide.iter().sum::<usize>() <= room;
    let names = usize::from(!fits);
    let mut widths = if fits { wide } else { natural(1) };
    let least: Vec<usize> = columns.iter().zip(&widths).map(|(column, &natural)| column.least(natural)).collect();
    // The widest gives first.
    while widths.iter().sum::<usize>() > room {
        let givers = widths.iter().zip(&least).enumerate().filter(|(_, (width, least))| width > least);
        let Some((at, _)) = givers.max_by_key(|(_, (width, _))| **width) else { break };
        widths[at] -= 1;
    }
    let squeezed = |row: Vec<String>| -> Vec<String> {
        row.into_iter().enumerate().map(|(at, text)| shorten(text, widths[at], columns[at].squeeze)).collect()
    };
    let header = columns.iter().zip(&widths).map(|(column, &width)| shorten(column.names[names].to_owned(), width, Squeeze::End(0)));
    Fitted { header: header.collect(), rows: rows.into_iter().map(squeezed).collect(), widths }
}

/// The headers where there is room.
pub fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.names[0].to_owned()).collect()
}

fn shorten(text: String, width: usize, squeeze: Squeeze) -> String {
    let len = text.chars().count();
    if len <= width || width == 0 {
        return text;
    }
    let kept = width - 1;
    match squeeze {
        Squeeze::Beginning(_) => std::iter::once('…').chain(text.chars().skip(len - kept)).collect(),
        _ => text.chars().take(kept).chain(['…']).collect(),
    }
}

/// The lines of a table for people.
pub fn lines(columns: &[Column], fitted: &Fitted, gap: usize) -> String {
    let line = |cells: &Vec<String>| {
        let cells = cells
            .iter()
            .zip(&fitted.widths)
            .zip(columns)
            .map(|((text, &width), column)| if column.is_number() { format!("{text:>width$}") } else { format!("{text:width$}") });
        cells.collect::<Vec<_>>().join(&" ".repeat(gap)).trim_end().to_owned()
    };
    std::iter::once(&fitted.header).chain(&fitted.rows).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [Column::text("program", "prog", 4), Column::address("local"), Column::number("received", "rx")];

    fn table(width: usize) -> String {
        let rows = vec![vec!["redis-server".to_owned(), "127.0.0.1:6379".to_owned(), "1.5k".to_owned()]];
        lines(&COLUMNS, &fit(&COLUMNS, rows, width, 1), 1)
    }

    #[test]
    fn what_fits_is_whole() {
        assert_eq!(table(80), "program      local          received\nredis-server 127.0.0.1:6379     1.5k");
    }

    #[test]
    fn headers_give_first_and_then_the_widest_text() {
        assert_eq!(table(32), "prog         local            rx\nredis-server 127.0.0.1:6379 1.5k");
        assert_eq!(table(24), "prog      local       rx\nredis-se… …0.1:6379 1.5k");
    }

    #[test]
    fn no_column_is_left_out() {
        assert_eq!(table(3), "prog local    rx\nred… …:6379 1.5k");
    }
}
