//! Worker threads, a seed at a time each. A seed's world never leaves its thread; what leaves it is a summary.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringway_sim::campaign::{Batch, Failure, Summary, minimise};
use ringway_sim::scenario::Scenario;
use ringway_sim::{Report, assert_deterministic};

use super::panics::{self, Detail};
use super::progress::Progress;
use super::state::{self, Earlier, Failed, State};
use super::summary;

/// Most seeds that a worker takes at once: what a kill -9 can lose.
const BATCH_MAX: u64 = 32;

/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(100);

/// What to run, and how.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The seeds.
    pub(crate) share: Batch,
    /// Worker threads.
    pub(crate) jobs: usize,
    /// Where progress is kept.
    pub(crate) state: PathBuf,
    /// Whether what is there counts.
    pub(crate) resume: bool,
    /// Whether each seed is run twice.
    pub(crate) twice: bool,
    /// Whether every world speaks IPv6.
    pub(crate) ipv6: bool,
    /// Failures that end the campaign.
    pub(crate) failures_max: usize,
    /// The time for making one small.
    pub(crate) minimise_for: Duration,
    /// The time that a seed may take.
    pub(crate) seed_timeout: Duration,
    /// The code that results are valid for.
    pub(crate) tree: String,
    /// Runs one scenario; panics if it fails.
    pub(crate) run: fn(&Scenario) -> Report,
}

/// How a campaign ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What all seeds came to, those of earlier campaigns included.
    pub(crate) summary: Summary,
    /// How many seeds those had run.
    pub(crate) earlier: u64,
    /// Seeds that failed.
    pub(crate) failures: Vec<Failed>,
    /// Seeds that were not run.
    pub(crate) left: u64,
    /// Whether it was told to stop.
    pub(crate) interrupted: bool,
    /// How long it took.
    pub(crate) wall: Duration,
}

/// What workers share.
struct Shared {
    plan: Plan,
    stop: Arc<AtomicBool>,
    batches: Mutex<Box<dyn Iterator<Item = Batch> + Send>>,
    done: AtomicU64,
    failed: AtomicUsize,
    /// What each worker is at, and since when.
    running: Vec<Mutex<Option<(Scenario, Instant)>>>,
}

/// What workers say.
enum Message {
    Done(Batch, Summary),
    Failed(Failed),
}

/// Runs the campaign, until it is over or `stop` is set.
///
/// # Errors
/// Its state cannot be kept.
pub(crate) fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Ended> {
    let start = Instant::now();
    let Earlier { done, summary, failures } =
        if plan.resume { state::read(&plan.state, &plan.tree, plan.share)? } else { Earlier::default() };
    let mut state = State::open(&plan.state, &plan.tree)?;
    let earlier = summary.seeds;
    let mut ended = Ended { summary, earlier, failures, left: plan.share.count - earlier, interrupted: false, wall: Duration::ZERO };
    let batch_len = (ended.left / (plan.jobs as u64 * 8)).clamp(1, BATCH_MAX);
    let shared = Arc::new(Shared {
        plan: plan.clone(),
        stop: Arc::clone(stop),
        batches: Mutex::new(Box::new(plan.share.without(done, batch_len))),
        done: AtomicU64::new(0),
        failed: AtomicUsize::new(0),
        running: (0..plan.jobs).map(|_| Mutex::new(None)).collect(),
    });
    let mut progress = Progress::new(plan.share.count, earlier);
    let result = conduct(&shared, &mut state, &mut ended, &mut progress);
    progress.end();
    ended.interrupted = stop.load(Relaxed);
    ended.wall = start.elapsed();
    result.map(|()| ended)
}

/// Starts the workers and listens to them.
fn conduct(shared: &Arc<Shared>, state: &mut State, ended: &mut Ended, progress: &mut Progress) -> Result<()> {
    let (say, hear) = mpsc::channel();
    for job in 0..shared.plan.jobs {
        let (shared, say) = (Arc::clone(shared), say.clone());
        // Not scoped: one that never comes back must not keep the others' results.
        thread::Builder::new().name(format!("sim {job}")).spawn(move || work(&shared, job, &say))?;
    }
    drop(say);
    loop {
        match hear.recv_timeout(TICK) {
            Ok(Message::Done(batch, summary)) => {
                state.done(batch, &summary)?;
                ended.left -= batch.count;
                ended.summary.merge(&summary);
            }
            Ok(Message::Failed(failed)) => {
                state.failed(&failed)?;
                progress.say(&summary::failure(&failed));
                ended.failures.push(failed);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let stuck: Vec<_> = shared.running.iter().filter_map(|running| stuck(running, shared.plan.seed_timeout)).collect();
                if !stuck.is_empty() {
                    stuck.iter().for_each(|failed| progress.say(&summary::failure(failed)));
                    ended.failures.extend(stuck);
                    return Ok(());
                }
            }
        }
        progress.at(shared.done.load(Relaxed), ended.failures.len() as u64);
    }
}

/// The failure of a worker that has been at one seed for too long.
fn stuck(running: &Mutex<Option<(Scenario, Instant)>>, timeout: Duration) -> Option<Failed> {
    let (scenario, since) = (*running.lock().unwrap_or_else(PoisonError::into_inner))?;
    let failed = |message| Failed {
        seed: scenario.seed,
        scenario: scenario.to_string(),
        minimal: scenario.to_string(),
        tried: 0,
        hurried: true,
        failure: Failure { place: "?".to_owned(), message, backtrace: Vec::new() },
    };
    (since.elapsed() > timeout).then(|| failed(format!("not at its end after {timeout:?} of wall time")))
}

/// What a worker does.
fn work(shared: &Shared, job: usize, say: &mpsc::Sender<Message>) {
    let next = || shared.batches.lock().unwrap_or_else(PoisonError::into_inner).next();
    while !shared.over()
        && let Some(batch) = next()
    {
        let mut summary = Summary::default();
        for seed in batch.seeds() {
            if shared.over() {
                break;
            }
            let drawn = Scenario::of_seed(seed);
            let scenario = if shared.plan.ipv6 { drawn.in_ipv6() } else { drawn };
            if let Some(failed) = shared.seed(job, &scenario, &mut summary) {
                _ = say.send(Message::Failed(failed));
            }
            shared.done.fetch_add(1, Relaxed);
        }
        // Nobody listens any more if another worker got stuck.
        _ = say.send(Message::Done(batch.part(0, summary.seeds), summary));
    }
}

impl Shared {
    /// Whether no further seed is to be run.
    fn over(&self) -> bool {
        self.stop.load(Relaxed) || self.failed.load(Relaxed) >= self.plan.failures_max
    }

    /// Runs a seed; if it fails, makes it small.
    fn seed(&self, job: usize, scenario: &Scenario, summary: &mut Summary) -> Option<Failed> {
        let start = Instant::now();
        let result = self.attempt(job, Detail::Backtrace, scenario);
        let failure = match result {
            Ok(report) => {
                summary.add(scenario, &report, start.elapsed());
                return None;
            }
            Err(failure) => failure,
        };
        summary.add_failure(start.elapsed());
        self.failed.fetch_add(1, Relaxed);
        let until = Instant::now() + self.plan.minimise_for;
        let again = |smaller: &Scenario| self.attempt(job, Detail::Message, smaller).err();
        let minimal = minimise(scenario, &failure, again, || Instant::now() < until && !self.stop.load(Relaxed));
        // Once more, for the callers' sake.
        let failure = if minimal.scenario == *scenario {
            failure
        } else {
            self.attempt(job, Detail::Backtrace, &minimal.scenario).err().unwrap_or(minimal.failure)
        };
        Some(Failed {
            seed: scenario.seed,
            scenario: scenario.to_string(),
            minimal: minimal.scenario.to_string(),
            tried: minimal.tried,
            hurried: minimal.hurried,
            failure,
        })
    }

    fn attempt(&self, job: usize, detail: Detail, scenario: &Scenario) -> Result<Report, Failure> {
        let running = |what| *self.running[job].lock().unwrap_or_else(PoisonError::into_inner) = what;
        running(Some((*scenario, Instant::now())));
        let result = panics::catch(detail, || {
            if self.plan.twice { assert_deterministic(scenario.seed, |_| (self.plan.run)(scenario)) } else { (self.plan.run)(scenario) }
        });
        running(None);
        result
    }
}
