//! What no frame shows: phases, timers, sockets' states. For people; never part of the hash, and only kept beside frames.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use ringway_stack::device::Protocol;
use ringway_stack::{Instant, tcp};

use super::segment::Reader;
use super::{Record, Trace, What};
use crate::checkers::Breach;
use crate::dissect::{self, Payload};
use crate::fabric::Marks;
use crate::sockets::Sockets;

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// The whole world.
    Phase,
    /// A timer of a host's stack ran out.
    Timer,
    /// A socket of a host came, went, or changed its state.
    Socket,
    /// Something befell a host, its NIC or its link as a whole.
    Mishap,
    /// A check failed: the run ends here.
    Failure,
}

/// A line that no frame shows.
#[derive(Clone, Debug)]
pub struct Note {
    /// When.
    pub at: Instant,
    /// At which host; `None`: everywhere.
    pub host: Option<usize>,
    /// What it is about.
    pub kind: NoteKind,
    /// What it says.
    pub text: String,
    /// Which of the trace's records shows it best; only failures have one.
    pub record: Option<usize>,
}

impl Trace {
    /// Notes something, if frames are kept.
    pub(crate) fn note(&mut self, at: Instant, host: Option<usize>, kind: NoteKind, text: impl FnOnce() -> String) {
        if self.keep {
            self.notes.push(Note { at, host, kind, text: text(), record: None });
        }
    }

    /// Notes the check that ended the run, beside the frame that shows it best: the one that it names, or else the last one of the connection that
    /// it names, or of the host. `handed`: it is about a frame that its NIC had not sent yet.
    pub(crate) fn fail(&mut self, now: Instant, message: &str, handed: Option<&[u8]>) {
        let line = message.lines().next().unwrap_or_default();
        let breach = line.parse::<Breach>().ok();
        let record = match &breach {
            Some(breach) => self.witness(breach),
            None => self.records.len().checked_sub(1),
        };
        // (A breach's own time is by its host's clock, which may have jumped.)
        let (host, mut text) = match breach {
            Some(Breach { checker, host, law, .. }) => (Some(host), format!("checker {checker}: {law}")),
            None => (None, line.to_owned()),
        };
        if let Some(frame) = handed {
            text += "; handed to the NIC: ";
            let mut reader = Reader::default();
            for record in &self.records {
                reader.describe(&record.bytes, record.marks, &mut String::new());
            }
            reader.describe(frame, Marks::default(), &mut text);
        }
        if self.keep {
            self.notes.push(Note { at: now, host, kind: NoteKind::Failure, text, record });
        }
    }

    /// The record that shows a breach best.
    fn witness(&self, breach: &Breach) -> Option<usize> {
        let seen = |record: &Record| record.host == breach.host && matches!(record.what, What::Sent | What::Delivered);
        let named = |record: &Record| breach.frame == Some(record.frame);
        let about = |record: &Record| {
            let Some((local, remote)) = breach.connection else { return false };
            let Payload::Ip(ip) = dissect::payload(&record.bytes) else { return false };
            dissect::ports(&record.bytes, &ip).is_some_and(|ends| ends == (local, remote) || ends == (remote, local))
        };
        let last = |is: &dyn Fn(&Record) -> bool| self.records.iter().rposition(|record| seen(record) && is(record));
        last(&named).or_else(|| last(&about)).or_else(|| last(&|_| true))
    }

    /// The check that ended the run, if one did and frames were kept.
    pub fn failure(&self) -> Option<&Note> {
        self.notes.last().filter(|note| note.kind == NoteKind::Failure)
    }
}

/// A socket, by what stays the same about it.
type Name = (usize, SocketAddr, SocketAddr);

/// Looks at hosts' stacks from outside, around each of their turns, and notes what changed.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    states: BTreeMap<Name, tcp::State>,
}

impl Watch {
    /// A host is about to take its turn.
    pub(crate) fn before(&self, trace: &mut Trace, now: Instant, host: usize, rings: &[Sockets]) {
        if trace.keep && rings.iter().filter_map(|ring| ring.next_deadline()).any(|at| at <= now) {
            trace.note(now, Some(host), NoteKind::Timer, || "timer".to_owned());
        }
    }

    /// A host has taken its turn.
    pub(crate) fn after(&mut self, trace: &mut Trace, now: Instant, host: usize, rings: &[Sockets]) {
        if !trace.keep {
            return;
        }
        let infos = rings.iter().flat_map(|ring| ring.open_flows().into_iter().filter_map(|socket| ring.info(socket)));
        let states: BTreeMap<Name, tcp::State> = infos
            .filter(|info| info.protocol == Protocol::Tcp)
            .filter_map(|info| Some(((host, info.local, info.remote?), info.state?)))
            .collect();
        for (&name, &state) in &states {
            if self.states.get(&name) != Some(&state) {
                trace.note(now, Some(host), NoteKind::Socket, || format!("{}, {}: {state:?}", name.1, name.2));
                self.states.insert(name, state);
            }
        }
        let own = self.states.range((host, LEAST, LEAST)..).take_while(|(name, _)| name.0 == host);
        let gone: Vec<_> = own.map(|(&name, _)| name).filter(|name| !states.contains_key(name)).collect();
        for name in gone {
            trace.note(now, Some(host), NoteKind::Socket, || format!("{}, {}: gone", name.1, name.2));
            self.states.remove(&name);
        }
    }
}

/// Sorts before every address.
const LEAST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
