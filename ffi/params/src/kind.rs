//! What a parameter's value may look like.

use std::fmt;

use crate::layout::{self, Layout};

/// The largest number of a CPU that is understood: a kernel's `NR_CPUS` is no larger.
const CPUS_MAX: usize = 8192;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number, of which zero is no and all others are yes.
    Bool,
    /// A whole number, decimal or hexadecimal (0x…), from `least` to `greatest`.
    Number {
        /// The smallest.
        least: i64,
        /// The largest.
        greatest: i64,
    },
    /// Zero, which stands for something else, or a whole number from `least` to `greatest`.
    ZeroOr {
        /// The smallest.
        least: i64,
        /// The largest.
        greatest: i64,
    },
    /// One of a few numbers, each with what it stands for.
    OneOf(&'static [(i64, &'static str)]),
    /// A level of the log, by name or number.
    Level,
    /// CPUs: a hexadecimal mask (0x…), a list (`0,2-3`), or -1 for all.
    Cpus,
    /// A file or directory. The first `%d` in it stands for the process id.
    Path,
    /// Any text.
    Text,
    /// The name or number of a preset ([`crate::spec`]).
    Spec,
    /// A release of libvma's, for the layout of its `vma_api_t` ([`Layout`]).
    Layout,
    /// A device's name, or off.
    Device,
}

/// What RINGWAY_DEVICE may say: of the devices, those that this build has.
const DEVICES: [&str; 3] = ["auto", "shm", "off"];

/// The longest name of an interface (IFNAMSIZ, less its zero), and of an RDMA device (IB_DEVICE_NAME_MAX, less its zero).
const INTERFACE_MAX: usize = 15;
const RDMA_DEVICE_MAX: usize = 63;

/// By which a device that RINGWAY_DEVICE names is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// An interface, by AF_XDP.
    Xdp,
    /// A ConnectX, by direct verbs.
    Mlx5,
    /// Any RDMA device, by verbs: frames in UD datagrams.
    Rxe,
}

impl Driver {
    /// As it stands before the device's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Mlx5 => "mlx5",
            Self::Rxe => "rxe",
        }
    }
}

/// A device that RINGWAY_DEVICE names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// What drives it.
    pub driver: Driver,
    /// Its name: an interface's, or an RDMA device's.
    pub name: &'a str,
    /// The first and the last of an interface's queues that are meant; none: all.
    pub queues: Option<(u32, u32)>,
}

impl<'a> Named<'a> {
    /// `xdp:eth0`, `xdp:eth0/2`, `xdp:eth0/0-3` or `mlx5:mlx5_0`. (No interface's name has a slash in it.)
    fn parse(text: &'a str) -> Option<Self> {
        let (driver, text) = text.split_once(':')?;
        let (driver, longest) = match driver {
            "xdp" => (Driver::Xdp, INTERFACE_MAX),
            "mlx5" => (Driver::Mlx5, RDMA_DEVICE_MAX),
            "rxe" => (Driver::Rxe, RDMA_DEVICE_MAX),
            _ => return None,
        };
        let (name, queues) = match text.split_once('/') {
            Some((name, queues)) => (name, Some(queues)),
            None => (text, None),
        };
        let is_name = (1..=longest).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(char::is_whitespace);
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
        };
        let queues = match queues {
            // (A card is asked for queues as they are wanted.)
            Some(_) if driver != Driver::Xdp => return None,
            Some(queues) => Some(range(queues)?),
            None => None,
        };
        is_name.then_some(Self { driver, name, queues })
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.driver.name(), self.name)?;
        match self.queues {
            None => Ok(()),
            Some((first, last)) if first == last => write!(f, "/{first}"),
            Some((first, last)) => write!(f, "/{first}-{last}"),
        }
    }
}

/// The devices that a value of RINGWAY_DEVICE names beside shared memory, which need not be said: `shm,xdp:eth0,xdp:eth1/0-3`, `mlx5:mlx5_0`, `rxe:rxe0`. `None`: it is no
/// such value.
pub fn interfaces(text: &str) -> Option<Vec<Named<'_>>> {
    let mut devices = text.split(',').map(str::trim).peekable();
    devices.next_if_eq(&"shm");
    let named: Vec<_> = devices.map(Named::parse).collect::<Option<_>>()?;
    (!named.is_empty()).then_some(named)
}

/// The device that a value of RINGWAY_DEVICE names for rsockets, in place of shared memory, which may stand before it: `xdp:eth0`, or an RDMA device, whoever drives it (`rxe:rxe0`,
/// `mlx5:mlx5_0`). `None`: it names none, or several.
pub fn rsocket_device(text: &str) -> Option<Named<'_>> {
    match interfaces(text)?.as_slice() {
        [named] => Some(*named),
        _ => None,
    }
}

/// VMA_TRACELEVEL's levels, each with all that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing at all.
    None,
    /// What ends the program.
    Panic,
    /// What failed.
    Error,
    /// What a user should know.
    Warn,
    /// What was set up, and what moved.
    Info,
    /// All of the configuration.
    Details,
    /// What went another way than intended.
    Debug,
    /// Each call of interest.
    Fine,
    /// Each call.
    Finer,
    /// All that there is.
    All,
}

/// Every name of a level (vma.md section 3), its first one first.
const LEVELS: &[(Level, &[&str])] = &[
    (Level::None, &["none", "-1"]),
    (Level::Panic, &["panic", "0"]),
    (Level::Error, &["error", "1"]),
    (Level::Warn, &["warn", "warning", "2"]),
    (Level::Info, &["info", "information", "3"]),
    (Level::Details, &["details"]),
    (Level::Debug, &["debug", "4"]),
    (Level::Fine, &["fine", "func", "5"]),
    (Level::Finer, &["finer", "func+", "funcall", "func_all", "func-all", "6"]),
    (Level::All, &["all"]),
];

impl Level {
    /// The level of that name or number, in any case of letters.
    pub fn from_name(name: &str) -> Option<Self> {
        let wanted = name.trim().to_ascii_lowercase();
        LEVELS.iter().find(|(_, names)| names.contains(&wanted.as_str())).map(|&(level, _)| level)
    }

    /// The level that is so many above [`Level::None`], which as a number it is.
    pub fn from_number(number: u8) -> Option<Self> {
        LEVELS.get(usize::from(number)).map(|&(level, _)| level)
    }

    /// Its first name.
    pub fn name(self) -> &'static str {
        LEVELS.iter().find(|(level, _)| *level == self).map_or("", |(_, names)| names[0])
    }
}

impl Kind {
    /// Understands `text`: the value in the form that it is shown in, and as a number where it is one (a level: [`Level`] by its
    /// place; a text: 0). `None`: it is none of what is [`allowed`](Self::allowed).
    pub fn parse(self, text: &str) -> Option<(String, i64)> {
        let trimmed = text.trim();
        let shown = |value: i64| (value.to_string(), value);
        match self {
            Self::Bool => number(trimmed).map(|value| shown(i64::from(value != 0))),
            Self::Number { least, greatest } => number(trimmed).filter(|value| (least..=greatest).contains(value)).map(shown),
            Self::ZeroOr { least, greatest } => {
                number(trimmed).filter(|value| *value == 0 || (least..=greatest).contains(value)).map(shown)
            }
            Self::OneOf(values) => number(trimmed).filter(|value| values.iter().any(|(one, _)| one == value)).map(shown),
            Self::Level => Level::from_name(trimmed).map(|level| (level.name().to_owned(), level as i64)),
            Self::Cpus if trimmed == "-1" => Some(shown(-1)),
            Self::Cpus => cpus(trimmed).map(|_| (trimmed.to_ascii_lowercase(), 0)),
            Self::Path | Self::Text => Some((text.to_owned(), 0)),
            Self::Spec => crate::spec::find(trimmed).map(|spec| (spec.name().to_owned(), 0)),
            Self::Layout => Layout::of_release(trimmed).map(|layout| (layout.name().to_owned(), 0)),
            Self::Device if DEVICES.contains(&trimmed) => Some((trimmed.to_owned(), 0)),
            Self::Device => {
                interfaces(trimmed).map(|all| (all.iter().fold("shm".to_owned(), |text, named| text + &format!(",{named}")), 0))
            }
        }
    }

    /// What may be set, in a few words.
    pub fn allowed(self) -> String {
        match self {
            Self::Bool => "0 or 1".to_owned(),
            Self::Number { least, greatest: i64::MAX } => format!("a number, {least} or more"),
            Self::Number { least, greatest } => format!("a number from {least} to {greatest}"),
            Self::ZeroOr { least, greatest } => format!("0, or a number from {least} to {greatest}"),
            Self::OneOf(values) => join(values.iter().map(|(value, what)| format!("{value} ({what})"))),
            Self::Level => join(LEVELS.iter().map(|(_, names)| names[0].to_owned())),
            Self::Cpus => "-1, a mask such as 0x3, or a list such as 0,2-3".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Spec => join(crate::spec::SPECS.iter().map(|spec| spec.name().to_owned())),
            Self::Layout => layout::RELEASES.to_owned(),
            Self::Device => join(
                DEVICES.iter().map(|name| (*name).to_owned()).chain(["shm and devices (shm,xdp:INTERFACE,mlx5:NAME,rxe:NAME)".to_owned()]),
            ),
        }
    }

    /// Whether an empty value is a value; for all others it is as good as none.
    pub const fn may_be_empty(self) -> bool {
        matches!(self, Self::Path)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.allowed())
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// A number as C's strtol takes it (decimal, or hexadecimal after 0x), and nothing after it.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with(['+', '-']) => i64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// The CPUs that a mask (0x…) or a list (`0,2-3`) names, in rising order. `None`: it is neither, or names none.
pub fn cpus(text: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    if let Some(mask) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let digits = mask.bytes().rev().map(|digit| char::from(digit).to_digit(16));
        for (place, digit) in digits.enumerate().take(CPUS_MAX / 4 + 1) {
            let digit = digit?;
            found.extend((0..4).filter(|bit| digit & (1 << bit) != 0).map(|bit| place * 4 + bit));
        }
    } else {
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (cpu(first)?, cpu(last)?);
            found.extend(first..=last);
        }
    }
    found.sort_unstable();
    found.dedup();
    (!found.is_empty() && found.iter().all(|&cpu| cpu < CPUS_MAX)).then_some(found)
}

fn cpu(text: &str) -> Option<usize> {
    let digits = text.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|&cpu| is_number && cpu < CPUS_MAX)
}

#[cfg(test)]
mod tests;
