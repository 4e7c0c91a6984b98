//! The matrix of sentence by device.

use core::fmt::{self, Write as _};

use super::{Case, Check, Rig, Seed, Verdict, judge};

/// Rows are cases, columns are devices.
#[derive(Debug, Default)]
pub struct Matrix {
    rows: Vec<Row>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Row {
    id: &'static str,
    says: &'static str,
    case: &'static str,
}

#[derive(Debug)]
struct Column {
    device: &'static str,
    /// One a row.
    verdicts: Vec<Verdict>,
}

impl Matrix {
    /// Runs every case of a seed, each on a rig of its own, and adds a column.
    ///
    /// # Panics
    /// The seed is not the one of the other columns.
    pub fn add<R: Rig>(&mut self, device: &'static str, seed: &Seed<R>, mut rig: impl FnMut() -> R) {
        let cases = || seed.sentences.iter().flat_map(|sentence| sentence.cases.iter().map(move |case| (sentence, case)));
        let rows: Vec<_> = cases().map(|(sentence, case)| Row { id: sentence.id, says: sentence.says, case: case.name }).collect();
        assert!(self.columns.is_empty() || rows.len() == self.rows.len(), "all columns are of one seed");
        let verdicts = cases().map(|(_, case)| case.verdict(&mut rig)).collect();
        self.rows = rows;
        self.columns.push(Column { device, verdicts });
    }

    /// What a device came to, a row a case: sentence's id, case's name, verdict.
    pub fn verdicts(&self, device: &str) -> impl Iterator<Item = (&'static str, &'static str, &Verdict)> {
        let column = self.columns.iter().filter(move |column| column.device == device);
        column.flat_map(|column| self.rows.iter().zip(&column.verdicts).map(|(row, verdict)| (row.id, row.case, verdict)))
    }

    /// Every failure, as a line that names device, sentence and case.
    pub fn failures(&self) -> Vec<String> {
        let failed = |column: &Column| {
            let rows = self.rows.iter().zip(&column.verdicts).filter(|(_, verdict)| matches!(verdict, Verdict::Fail(_)));
            rows.map(|(row, verdict)| format!("{}: {} {}: {verdict}", column.device, row.id, row.case)).collect::<Vec<_>>()
        };
        self.columns.iter().flat_map(failed).collect()
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, row) in self.rows.iter().enumerate() {
            if i == 0 || self.rows[i - 1].id != row.id {
                writeln!(f, "{}  {}", row.id, row.says)?;
            }
            writeln!(f, "    {}", row.case)?;
            for column in &self.columns {
                writeln!(f, "        {:<10} {}", column.device, column.verdicts[i])?;
            }
        }
        for column in &self.columns {
            let count = |is: fn(&Verdict) -> bool| column.verdicts.iter().filter(|verdict| is(verdict)).count();
            let passed = count(|verdict| matches!(verdict, Verdict::Pass));
            let cannot = count(|verdict| matches!(verdict, Verdict::Cannot(_)));
            let mut line = format!("{}: {passed} of {} pass, {cannot} cannot", column.device, self.rows.len());
            match count(|verdict| matches!(verdict, Verdict::Fail(_))) {
                0 => {}
                failed => write!(line, ", {failed} FAIL")?,
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl<R: Rig> Case<R> {
    fn verdict(&self, rig: &mut impl FnMut() -> R) -> Verdict {
        match self.check {
            Check::NotYet(why) => Verdict::Cannot(why.to_owned()),
            Check::Run { needs, run } => {
                let mut rig = rig();
                let can = needs(&rig.capabilities());
                judge(can, run(&mut rig))
            }
        }
    }
}
