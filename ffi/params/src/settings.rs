//! What an environment comes to.

use std::fmt;

use crate::kind::{self, Level};
use crate::layout::Layout;
use crate::misspelt;
use crate::spec::{self, Spec};
use crate::table::{Id, Row, TABLE};

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// Its own variable.
    Environment,
    /// The preset of this name.
    Spec(&'static str),
    /// Another variable, of this name, that means it as well.
    Alias(&'static str),
    /// It follows from another parameter, of this name.
    Implied(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Environment => f.write_str("environment"),
            Self::Spec(name) => write!(f, "VMA_SPEC={name}"),
            Self::Alias(name) | Self::Implied(name) => f.write_str(name),
        }
    }
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As it is shown. Of a path, what was set.
    pub text: String,
    /// The value where it is a number (a level: by its place in [`Level`]).
    pub number: i64,
    /// Where it is from.
    pub source: Source,
}

/// Variables that mean another one.
struct Alias {
    name: &'static str,
    means: &'static [Id],
    /// Whether to say that there is a newer name.
    is_old: bool,
}

const ALIASES: &[Alias] = &[
    Alias { name: "VMA_RX_POLL_OS_RATIO", means: &[Id::RxUdpPollOsRatio], is_old: true },
    Alias { name: "VMA_RX_SKIP_OS", means: &[Id::RxUdpPollOsRatio], is_old: true },
    Alias { name: "VMA_RING_ALLOCATION", means: &[Id::RingAllocationTx, Id::RingAllocationRx], is_old: false },
];

/// The variables that mean others, each with what it means. A parameter's own variable goes before.
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static [Id])> {
    ALIASES.iter().map(|alias| (alias.name, alias.means))
}

/// The value of every parameter, and what was wrong with the environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Invariant: as long as [`TABLE`], in its order.
    values: Vec<Setting>,
    warnings: Vec<String>,
}

impl Settings {
    /// Of this process's environment.
    pub fn from_environment() -> Self {
        let mut settings = Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()));
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        settings.warnings.extend(names.filter_map(|name| misspelt::warning(&name)));
        settings
    }

    /// Of the environment in which `lookup` finds a variable's value.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = Self { values: TABLE.iter().map(default_of).collect(), warnings: Vec::new() };
        let preset = settings.preset(&lookup);
        for row in TABLE {
            settings.set_row(row, preset, &lookup);
        }
        settings.follow();
        settings
    }

    /// The preset that is asked for. What is wrong with it is said where its row is set.
    fn preset(&self, lookup: &impl Fn(&str) -> Option<String>) -> Option<&'static Spec> {
        lookup(Id::Spec.row().name).and_then(|name| spec::find(&name))
    }

    fn set_row(&mut self, row: &Row, preset: Option<&'static Spec>, lookup: &impl Fn(&str) -> Option<String>) {
        let variables = std::iter::once((row.name, Source::Environment))
            .chain(ALIASES.iter().filter(|alias| alias.means.contains(&row.id)).map(|alias| (alias.name, Source::Alias(alias.name))));
        for (name, source) in variables {
            let Some(text) = lookup(name).filter(|text| row.kind.may_be_empty() || !text.trim().is_empty()) else { continue };
            match row.kind.parse(&text) {
                Some((text, number)) => {
                    if ALIASES.iter().any(|alias| alias.name == name && alias.is_old) {
                        self.warnings.push(format!("{name} is the old name of {}, which is set instead", row.name));
                    } else if row.id == Id::Hugetbl {
                        self.warnings.push(format!("{name} is obsolete, and does nothing: VMA_MEM_ALLOC_TYPE came in its place"));
                    }
                    self.values[row.id as usize] = Setting { text, number, source };
                }
                None => self.refuse(row, name, text, source),
            }
            return;
        }
        let from_preset = preset.and_then(|spec| spec.sets.iter().find(|(id, _)| *id == row.id).map(|&(_, text)| (spec, text)));
        if let Some((spec, text)) = from_preset
            && let Some((text, number)) = row.kind.parse(text)
        {
            self.values[row.id as usize] = Setting { text, number, source: Source::Spec(spec.name()) };
        }
    }

    /// One warning that `name`'s value is none, however many rows it is the name of. The row keeps its default; but a device that is
    /// not there is no reason to use another one.
    fn refuse(&mut self, row: &Row, name: &str, text: String, source: Source) {
        let allowed = row.kind.allowed();
        let warning = if row.id == Id::Device {
            let warning = format!("{name}={text} is no device of this build, so programs stay on the kernel; it may be {allowed}");
            self.values[row.id as usize] = Setting { text, number: 0, source };
            warning
        } else {
            let default = if row.default.is_empty() { "nothing" } else { row.default };
            format!("{name}={text} is not understood, so it is {default}; it may be {allowed}")
        };
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What follows from other parameters.
    fn follow(&mut self) {
        if self.flag(Id::SelectPollOsForce) {
            for id in [Id::SelectPollOsRatio, Id::SelectSkipOs] {
                self.imply(id, 1, Id::SelectPollOsForce);
            }
        } else if !self.is_set(Id::SelectSkipOs) && self.is_set(Id::SelectPollOsRatio) {
            self.imply(Id::SelectSkipOs, self.number(Id::SelectPollOsRatio), Id::SelectPollOsRatio);
        }
        if self.flag(Id::Socketxtreme) {
            // vma.md s2.10. (VMA_PROGRESS_ENGINE_INTERVAL is left as it is: peers may wait for what the program does not poll for.)
            for (id, value) in [(Id::RxWre, 1024), (Id::GroStreamsMax, 0)] {
                if !self.is_set(id) {
                    self.imply(id, value, Id::Socketxtreme);
                }
            }
        }
        if !self.is_set(Id::LogDetails) && self.level() >= Level::Debug {
            self.imply(Id::LogDetails, 2, Id::Tracelevel);
        }
    }

    fn imply(&mut self, id: Id, value: i64, from: Id) {
        self.values[id as usize] = Setting { text: value.to_string(), number: value, source: Source::Implied(from.row().name) };
    }

    /// A parameter's value, and where it is from.
    pub fn of(&self, id: Id) -> &Setting {
        &self.values[id as usize]
    }

    /// The value of a number.
    pub fn number(&self, id: Id) -> i64 {
        self.of(id).number
    }

    /// The same, where it is not negative; else zero.
    pub fn count(&self, id: Id) -> u32 {
        u32::try_from(self.number(id).max(0)).unwrap_or(u32::MAX)
    }

    /// The value of a yes or no.
    pub fn flag(&self, id: Id) -> bool {
        self.number(id) != 0
    }

    /// The value of a text, such as the user wrote it.
    pub fn text(&self, id: Id) -> &str {
        &self.of(id).text
    }

    /// A path, with the process id in place of its `%d`. `None`: it is empty.
    pub fn path(&self, id: Id) -> Option<String> {
        let text = self.text(id);
        (!text.is_empty()).then(|| text.replacen("%d", &std::process::id().to_string(), 1))
    }

    /// The CPUs that a parameter names; `None`: all of them.
    pub fn cpus(&self, id: Id) -> Option<Vec<usize>> {
        kind::cpus(self.text(id))
    }

    /// The log's level.
    pub fn level(&self) -> Level {
        Level::from_name(self.text(Id::Tracelevel)).unwrap_or(Level::Warn)
    }

    /// The layout of the Extra API's table.
    pub fn api_layout(&self) -> Layout {
        Layout::of_release(self.text(Id::ApiLayout)).unwrap_or(Layout::D)
    }

    /// Whether anybody set it.
    pub fn is_set(&self, id: Id) -> bool {
        self.of(id).source != Source::Default
    }

    /// What was wrong, a line each: at most one a variable.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Every parameter with its value, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Row, &Setting)> {
        TABLE.iter().zip(&self.values)
    }

    /// Those that differ from their defaults.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Row, &Setting)> {
        self.iter().filter(|(row, setting)| setting.text != row.default)
    }
}

fn default_of(row: &Row) -> Setting {
    let (text, number) = row.kind.parse(row.default).unwrap_or_default();
    Setting { text, number, source: Source::Default }
}

#[cfg(test)]
mod tests;
