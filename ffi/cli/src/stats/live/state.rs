//! What the live view shows, and what keys do to it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ringway_report::{ProcessReport, RingReport, SocketReport};

use crate::stats::order::{Filter, Key, arrange};
use crate::stats::view::Sample;

/// Samples that sparklines show at most.
const HISTORY: usize = 240;
/// The intervals that `+` and `-` choose among, in milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];
/// Sockets that a page has.
const PAGE: usize = 10;

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// From now on, samples come at this interval.
    Interval(Duration),
    End,
}

/// What a process moved a second, sample by sample.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) rx: VecDeque<u64>,
    pub(super) tx: VecDeque<u64>,
}

/// Which list the arrows move in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Processes,
    Sockets,
}

/// See the module's documentation.
pub(super) struct App {
    pub(super) now: Option<Sample>,
    pub(super) before: Option<Sample>,
    pub(super) histories: BTreeMap<u32, History>,
    pub(super) interval: Duration,
    pub(super) sort: Key,
    pub(super) filter: Filter,
    /// The filter as it is typed, while it is.
    pub(super) typed: Option<String>,
    pub(super) shown_filter: String,
    pub(super) focus: Focus,
    /// The selected process, by its id.
    pub(super) process: Option<u32>,
    /// The selected socket, by its place.
    pub(super) socket: usize,
    pub(super) detail: bool,
    pub(super) help: bool,
    pub(super) paused: bool,
}

impl App {
    pub(super) fn new(interval: Duration, sort: Key, filter: Filter) -> Self {
        Self {
            now: None,
            before: None,
            histories: BTreeMap::new(),
            interval,
            sort,
            shown_filter: filter.written().to_owned(),
            filter,
            typed: None,
            focus: Focus::Processes,
            process: None,
            socket: 0,
            detail: false,
            help: false,
            paused: false,
        }
    }

    /// A sample has come.
    pub(super) fn take(&mut self, sample: Sample) {
        if self.paused {
            return;
        }
        self.before = self.now.replace(sample);
        let Some(now) = &self.now else { return };
        self.histories.retain(|pid, _| now.processes.iter().any(|process| process.pid == *pid));
        if self.before.is_some() {
            let rates: Vec<_> =
                now.processes.iter().map(|p| (p.pid, self.ring_rate(p, |r| r.rx_bytes), self.ring_rate(p, |r| r.tx_bytes))).collect();
            for (pid, rx, tx) in rates {
                let history = self.histories.entry(pid).or_default();
                push(&mut history.rx, rx);
                push(&mut history.tx, tx);
            }
        }
        if !now.processes.iter().any(|process| Some(process.pid) == self.process) {
            self.process = now.processes.first().map(|process| process.pid);
            self.socket = 0;
        }
        self.socket = self.socket.min(self.sockets().len().saturating_sub(1));
    }

    /// The selected process.
    pub(super) fn selected(&self) -> Option<&ProcessReport> {
        self.now.as_ref()?.processes.iter().find(|process| Some(process.pid) == self.process)
    }

    /// Its sockets, sorted and filtered.
    pub(super) fn sockets(&self) -> Vec<SocketReport> {
        let (Some(process), Some(now)) = (self.selected(), &self.now) else { return Vec::new() };
        let mut one = Sample { taken: now.taken, processes: vec![process.clone()] };
        arrange(&mut one, self.before.as_ref(), self.sort, &self.filter);
        one.processes.pop().map_or_else(Vec::new, |process| process.sockets)
    }

    /// What a ring counted a second since the last sample.
    pub(super) fn ring_rate(&self, process: &ProcessReport, of: impl Fn(&RingReport) -> u64) -> u64 {
        let earlier = self.earlier(process.pid).map(|earlier| of(&earlier.ring));
        self.a_second(of(&process.ring), earlier)
    }

    /// The same of a socket of the selected process.
    pub(super) fn socket_rate(&self, socket: &SocketReport, of: impl Fn(&SocketReport) -> u64) -> u64 {
        let earlier = self.process.and_then(|pid| self.earlier(pid)).and_then(|p| p.sockets.iter().find(|s| s.fd == socket.fd));
        self.a_second(of(socket), earlier.map(of))
    }

    fn earlier(&self, pid: u32) -> Option<&ProcessReport> {
        self.before.as_ref()?.processes.iter().find(|process| process.pid == pid)
    }

    fn a_second(&self, now: u64, earlier: Option<u64>) -> u64 {
        let (Some(earlier), Some(after), Some(before)) = (earlier, &self.now, &self.before) else { return 0 };
        let elapsed = after.taken.saturating_duration_since(before.taken).as_millis().max(1);
        u64::try_from(u128::from(now.saturating_sub(earlier)) * 1000 / elapsed).unwrap_or(u64::MAX)
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> After {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return After::End;
        }
        if self.typed.is_some() {
            self.type_filter(key.code);
            return After::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return After::End,
            KeyCode::Esc if self.help || self.detail => (self.help, self.detail) = (false, false),
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => self.typed = Some(self.shown_filter.clone()),
            KeyCode::Char('+') => {
                return self.change_interval(INTERVALS_MS.iter().rev().find(|&&ms| u128::from(ms) < self.interval.as_millis()));
            }
            KeyCode::Char('-') => return self.change_interval(INTERVALS_MS.iter().find(|&&ms| u128::from(ms) > self.interval.as_millis())),
            KeyCode::Tab => self.focus = if self.focus == Focus::Sockets { Focus::Processes } else { Focus::Sockets },
            KeyCode::Enter if self.focus == Focus::Processes => self.focus = Focus::Sockets,
            KeyCode::Enter => self.detail = !self.detail,
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-(PAGE as isize)),
            KeyCode::PageDown => self.move_by(PAGE as isize),
            _ => {}
        }
        After::Nothing
    }

    fn type_filter(&mut self, key: KeyCode) {
        let Some(mut text) = self.typed.take() else { return };
        match key {
            KeyCode::Enter => return self.set_filter(text),
            KeyCode::Esc => return,
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        self.typed = Some(text);
    }

    fn set_filter(&mut self, text: String) {
        self.filter = Filter::new(&text);
        self.shown_filter = text;
        self.socket = 0;
    }

    fn change_interval(&mut self, to_ms: Option<&u64>) -> After {
        let Some(&ms) = to_ms else { return After::Nothing };
        self.interval = Duration::from_millis(ms);
        After::Interval(self.interval)
    }

    fn move_by(&mut self, by: isize) {
        match self.focus {
            Focus::Processes => {
                let pids: Vec<u32> = self.now.iter().flat_map(|now| &now.processes).map(|process| process.pid).collect();
                let at = pids.iter().position(|&pid| Some(pid) == self.process).unwrap_or(0);
                let to = at.saturating_add_signed(by).min(pids.len().saturating_sub(1));
                if to != at {
                    self.process = pids.get(to).copied();
                    self.socket = 0;
                }
            }
            Focus::Sockets => {
                self.socket = self.socket.saturating_add_signed(by).min(self.sockets().len().saturating_sub(1));
            }
        }
    }
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}
