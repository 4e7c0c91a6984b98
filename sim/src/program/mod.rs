//! Async programs on simulated hosts.
//!
//! A program is an `async` closure that is given an [`Env`]: the host's network ([`Env::net`], with the sockets of `ringway-tokio`), its
//! time ([`Env::sleep`], [`Env::timeout`]), randomness, further tasks ([`Env::spawn`]) and a disk ([`Env::storage`]). It runs on
//! an executor of its own, inside its host: one task at a time, in the order in which they were woken. Nothing in it knows a
//! runtime, so anything that doesn't either can be used with it: `tokio::io`, `tokio::sync`, `tokio::join!`, `futures`. (What follows
//! from more than the seed cannot: `tokio::select!` and `tokio::sync::watch` choose at random by a thread's own generator, so
//! write `select!` with `biased;`, and use `tokio::sync::Notify` instead of `watch`. Running a seed twice shows such slips.)
//!
//! ```
//! use core::time::Duration;
//! use ringway_sim::program::{TcpListener, TcpStream};
//! use ringway_sim::{HostConfig, World, WorldConfig};
//! use ringway_stack::Instant;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let mut world = World::new(WorldConfig::seeded(42));
//! let server = world.add_host(HostConfig::named("server"));
//! let client = world.add_host(HostConfig::named("client"));
//! let address = (world.host(server).ip(), 7);
//!
//! // Serves for ever: the world may end without it.
//! world.serve(server, |env| async move {
//!     let listener = TcpListener::bind(env.net(), (env.ip(), 7)).await?;
//!     loop {
//!         let (stream, _) = listener.accept().await?;
//!         env.spawn(async move {
//!             let (mut reader, mut writer) = stream.into_split();
//!             let _broken = tokio::io::copy(&mut reader, &mut writer).await;
//!         });
//!     }
//!     # #[allow(unreachable_code)] Ok::<(), std::io::Error>(())
//! });
//! // Has an end, and an outcome: an error ends the run with a panic.
//! world.spawn(client, move |env| async move {
//!     let mut stream = TcpStream::connect(env.net(), address).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut answer = [0; 5];
//!     env.timeout(Duration::from_secs(30), stream.read_exact(&mut answer)).await??;
//!     assert_eq!(&answer, b"hello");
//!     Ok::<(), std::io::Error>(())
//! });
//! world.run_until_finished(Instant::ZERO + Duration::from_secs(60)).unwrap();
//! ```
//!
//! A program can be killed and started again ([`Process`]), and its host can crash and start again ([`World::crash`], or the fault
//! class [`CRASH`](crate::FaultSet::CRASH)): the closure is called afresh, and finds what its predecessor left in [`Env::storage`]; after a
//! crash, what it had synced. [`check`] runs a world over many seeds and hands back the smallest failing [`Case`].
//!
//! # What the checkers see of it
//!
//! The world's [`checkers`](crate::checkers) hold every frame of an async program to their laws (sequence space, window, congestion, timeouts),
//! and its host's memory when all of its sockets are gone. They do not see its calls: its sockets use the host's ring itself, not through
//! [`Sockets`](crate::Sockets). So what only calls can tell, that a reader gets what a writer wrote, each edge once, and nothing after
//! `close`, is for the program's own checks. A program that is an [`App`](crate::App) has that too.

mod env;
mod executor;
mod find;
mod process;
mod storage;
mod timers;

pub use env::{Env, TimedOut};
pub use executor::Task;
pub use find::{CASE_SCALE_MAX, Case, CaseError, Found, check, search};
pub use process::{Outcome, Process};
pub use storage::Storage;
pub use timers::Sleep;

use crate::nic::SimQueues;
use crate::random::{Purpose, RandomStream};
use crate::world::{HostId, World};
use process::{Blueprint, Kind};

/// A host's network, shared by the tasks of one program.
pub type Net = ringway_tokio::Net<SimQueues>;
/// A listener on a simulated host.
pub type TcpListener = ringway_tokio::TcpListener<SimQueues>;
/// A connection of a simulated host.
pub type TcpStream = ringway_tokio::TcpStream<SimQueues>;
/// A UDP socket on a simulated host.
pub type UdpSocket = ringway_tokio::UdpSocket<SimQueues>;

impl World {
    /// Starts an async program on a host, now. The world has not [finished](World::finished) before it has. If the host crashes before that,
    /// the program starts anew with the host; a host that is down starts it when it starts.
    ///
    /// # Panics
    /// Later, in the world's run: the program ends with an error, or never comes to rest.
    pub fn spawn<F, T>(&mut self, host: HostId, program: F) -> Process
    where
        F: FnMut(Env) -> T + 'static,
        T: Future<Output: Outcome> + 'static,
    {
        self.launch(host, Kind::Task, program)
    }

    /// Starts an async program that serves others, now. The world may finish without it.
    ///
    /// # Panics
    /// As [`World::spawn`].
    pub fn serve<F, T>(&mut self, host: HostId, program: F) -> Process
    where
        F: FnMut(Env) -> T + 'static,
        T: Future<Output: Outcome> + 'static,
    {
        self.launch(host, Kind::Service, program)
    }

    fn launch<F, T>(&mut self, host: HostId, kind: Kind, program: F) -> Process
    where
        F: FnMut(Env) -> T + 'static,
        T: Future<Output: Outcome> + 'static,
    {
        let index = u32::try_from(host.0).unwrap_or(u32::MAX);
        // Programs of one host draw from streams of their own.
        let number = u8::try_from(self.host(host).launched()).unwrap_or(u8::MAX);
        let random = RandomStream::new(self.report().seed, Purpose::Program, index, number);
        let plan = Blueprint::new(self.host(host), kind, random, program);
        let process = plan.process(host);
        self.add_restartable(host, move || Box::new(plan.program()));
        process
    }
}

#[cfg(test)]
mod tests;
