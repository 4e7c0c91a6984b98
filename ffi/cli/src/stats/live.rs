//! The live view: samples come from a thread of their own, so that a process that does not answer holds up no key.
//!
//! - [`state`]: what is shown, and what keys do to it
//! - [`draw`]: how it looks

mod draw;
mod state;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use super::order::{Filter, Key};
use super::sources;
use super::view::Sample;
use state::{After, App};

/// How long a key may wait to be seen.
const TICK: Duration = Duration::from_millis(100);

/// Runs until the user ends it.
///
/// # Errors
/// The first sample cannot be had, or the terminal's.
pub(super) fn run(pids: &[u32], interval: Duration, sort: Key, filter: Filter) -> Result<()> {
    let first = Sample { taken: Instant::now(), processes: sources::reports(pids)? };
    let mut app = App::new(interval, sort, filter);
    app.take(first);
    let (intervals, ordered) = mpsc::channel();
    let (sampled, samples) = mpsc::channel();
    let pids = pids.to_vec();
    std::thread::spawn(move || sample(&pids, interval, &ordered, &sampled));
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, &mut app, &intervals, &samples);
    ratatui::restore();
    result
}

/// The thread's part: ends with the view.
fn sample(pids: &[u32], mut interval: Duration, ordered: &Receiver<Duration>, sampled: &Sender<Result<Sample>>) {
    let mut wait = interval;
    loop {
        match ordered.recv_timeout(wait) {
            Ok(new) => {
                interval = new;
                wait = wait.min(new);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let taken = Instant::now();
        let sample = sources::reports(pids).map(|processes| Sample { taken, processes });
        wait = sample.as_ref().map_or(interval, |sample| super::pause(sample, interval));
        if sampled.send(sample).is_err() {
            return;
        }
    }
}

fn watch(terminal: &mut DefaultTerminal, app: &mut App, intervals: &Sender<Duration>, samples: &Receiver<Result<Sample>>) -> Result<()> {
    loop {
        terminal.draw(|frame| draw::draw(frame, app))?;
        if event::poll(TICK)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match app.press(key) {
                After::Nothing => {}
                After::Interval(interval) => drop(intervals.send(interval)),
                After::End => return Ok(()),
            }
        }
        loop {
            match samples.try_recv() {
                Ok(sample) => app.take(sample?),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests;
