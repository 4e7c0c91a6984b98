//! Three nodes and a client as a simulated world: who runs where, what goes wrong, what must hold.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;

use ringway_sim::program::{Env, Process};
use ringway_sim::{Capture, Case, HostConfig, HostId, World};
use ringway_stack::Instant;

use crate::client::client;
use crate::log::{Bug, Log};
use crate::node::{QUORUM, backup, primary};

const BACKUPS: u32 = 2;
/// How long faults strike, and how long the cluster then has to finish. (A connection that backed off for half a minute needs its time.)
const SAFETY: Duration = Duration::from_secs(20);
const LIVENESS: Duration = Duration::from_secs(120);
/// One of the case's own streams: when which backup is killed.
const KILLS: u32 = 0;

/// Sees everything, at any time: what no program in a real network could.
#[derive(Default)]
pub(crate) struct Oracle {
    logs: RefCell<Vec<Log>>,
    acknowledged: RefCell<Vec<(u64, usize)>>,
    violation: RefCell<Option<String>>,
    story: RefCell<Vec<String>>,
}

impl Oracle {
    pub(crate) fn tell(&self, now: Instant, what: String) {
        self.story.borrow_mut().push(format!("{:>6} ms: {what}", now.as_millis()));
    }

    /// A node starts, for the first time or after it was killed or its host crashed.
    fn starts(&self, env: &Env, bug: Bug) {
        self.tell(env.now(), format!("{} starts with {} requests", env.name(), Log::new(env.storage(), bug).len()));
    }

    /// The client was told that its request is safe at `index`. It must be.
    pub(crate) fn acknowledged(&self, now: Instant, request: u64, index: usize) {
        self.tell(now, format!("request {request} is safe at {index}"));
        let copies = self.logs.borrow().iter().filter(|log| log.requests().get(index) == Some(&request)).count();
        if copies < QUORUM {
            self.violated(format!("request {request} was acknowledged with {copies} copies, not {QUORUM}"));
        }
        self.acknowledged.borrow_mut().push((request, index));
    }

    fn violated(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    /// What must hold when all is said and done.
    fn settle(&self, requests: u64) {
        let logs: Vec<_> = self.logs.borrow().iter().map(Log::requests).collect();
        for request in 0..requests {
            let times = logs[0].iter().filter(|&&held| held == request).count();
            if times != 1 {
                self.violated(format!("request {request} stands {times} times in the log"));
            }
        }
        if logs.iter().any(|log| !logs[0].starts_with(log)) {
            self.violated(format!("the logs differ: {logs:?}"));
        }
        for &(request, index) in self.acknowledged.borrow().iter() {
            if logs[0].get(index) != Some(&request) {
                self.violated(format!("request {request} is not at {index} any more"));
            }
        }
    }
}

/// A run that is over.
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) story: Vec<String>,
    violation: Option<String>,
}

impl Run {
    /// # Errors
    /// What did not hold.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        self.violation.clone().map_or(Ok(()), Err)
    }
}

/// Runs the cluster through a case.
pub(crate) fn run(case: &Case, bug: Bug, capture: Capture) -> Run {
    let requests = 2 + 2 * u64::from(case.scale);
    let oracle = Rc::new(Oracle::default());
    let mut world = case.world(capture);
    let first = world.add_host(case.host("primary", 0));
    let backups: Vec<HostId> = (1..=BACKUPS).map(|number| world.add_host(case.host(&format!("backup {number}"), number))).collect();
    // The client's link may break; it itself does not, since it has no disk to remember by what it was told.
    let caller = world.add_host(HostConfig::named("client").link(case.link(BACKUPS + 1)));

    let (ip, ips): (_, Vec<_>) = (world.host(first).ip(), backups.iter().map(|&host| world.host(host).ip()).collect());
    let seen = Rc::clone(&oracle);
    let mut nodes = vec![world.serve(first, move |env| {
        seen.starts(&env, bug);
        primary(env, ips.clone(), bug)
    })];
    nodes.extend(backups.iter().map(|&host| {
        let seen = Rc::clone(&oracle);
        world.serve(host, move |env| {
            seen.starts(&env, bug);
            backup(env, bug)
        })
    }));
    oracle.logs.borrow_mut().extend(nodes.iter().map(|node| Log::new(node.storage(), bug)));
    let seen = Rc::clone(&oracle);
    world.spawn(caller, move |env| client(env, ip, requests, Rc::clone(&seen)));

    kill_backups(case, &mut world, &nodes[1..], &oracle);
    world.set_faults(false);
    match world.run_until_finished(Instant::ZERO + SAFETY + LIVENESS) {
        Ok(_) => oracle.settle(requests),
        Err(unfinished) => oracle.violated(unfinished.to_string()),
    }
    let (story, violation) = (oracle.story.take(), oracle.violation.take());
    Run { world, story, violation }
}

/// The safety phase: links and hosts do what the case drew, and now and then a backup is killed, and started again.
fn kill_backups(case: &Case, world: &mut World, backups: &[Process], oracle: &Oracle) {
    let mut draw = case.draw(KILLS);
    let end = world.now() + SAFETY;
    loop {
        let (pause, down) = (draw.magnitude(100, 10_000), draw.magnitude(10, 2_000));
        let victim = usize::try_from(draw.below(backups.len() as u64)).unwrap_or(0);
        let (pause, down) = (Duration::from_millis(pause), Duration::from_millis(down));
        if world.now() + pause + down >= end {
            return world.run_until(end);
        }
        world.run_for(pause);
        oracle.tell(world.now(), format!("backup {} is killed for {} ms", victim + 1, down.as_millis()));
        backups[victim].kill(world);
        world.run_for(down);
        backups[victim].start(world);
    }
}
