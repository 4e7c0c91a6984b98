//! The primary, which has every request first, and the backups, which have what it sends them.

use core::cell::RefCell;
use core::time::Duration;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_sim::program::{Env, TcpListener, TcpStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

use crate::log::{Bug, Log};

/// Where the primary takes requests.
pub(crate) const CLIENTS: u16 = 4000;
/// Where a backup takes entries.
const REPLICAS: u16 = 4001;
/// How many nodes must have an entry: two of three.
pub(crate) const QUORUM: usize = 2;

const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long a backup may take to greet. It matters: who only listens never learns that the other end was reset, if that one segment is lost.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// What the primary's tasks share.
struct Primary {
    env: Env,
    bug: Bug,
    log: Log,
    /// How many entries each backup has, as far as it said.
    held: RefCell<Vec<usize>>,
    changed: Notify,
}

/// The primary: one task for each backup, one for each client.
pub(crate) async fn primary(env: Env, backups: Vec<IpAddr>, bug: Bug) -> io::Result<()> {
    let log = Log::new(env.storage(), bug);
    let held = RefCell::new(vec![0; backups.len()]);
    let primary = Rc::new(Primary { env: env.clone(), bug, log, held, changed: Notify::new() });
    for (number, &backup) in backups.iter().enumerate() {
        let primary = Rc::clone(&primary);
        env.spawn(async move {
            loop {
                let _broken = primary.replicate(number, backup).await;
                primary.env.sleep(RETRY_AFTER).await;
            }
        });
    }
    let listener = TcpListener::bind(env.net(), (env.ip(), CLIENTS)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let primary = Rc::clone(&primary);
        env.spawn(async move { primary.answer(stream).await });
    }
}

impl Primary {
    /// Sends a backup what it lacks, as long as the connection holds.
    async fn replicate(&self, number: usize, backup: IpAddr) -> io::Result<()> {
        let mut stream = TcpStream::connect(self.env.net(), (backup, REPLICAS)).await?;
        stream.set_nodelay(true)?;
        let mut have = self.env.timeout(GREETING_MAX, stream.read_u64()).await??;
        loop {
            let next = usize::try_from(have).unwrap_or(0);
            self.held.borrow_mut()[number] = next;
            self.changed.notify_waiters();
            while self.log.len() <= next {
                self.changed.notified().await;
            }
            stream.write_u64(self.log.requests()[next]).await?;
            have = stream.read_u64().await?;
        }
    }

    /// Takes one client's requests, one a line, and answers each with its index once it is safe.
    async fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await? {
            let request = line.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            let known = if self.bug == Bug::Twice { None } else { self.log.position(request) };
            let index = known.unwrap_or_else(|| self.log.append(request));
            self.changed.notify_waiters();
            while self.bug != Bug::Early && self.copies(index) < QUORUM {
                self.changed.notified().await;
            }
            writer.write_all(format!("{index}\n").as_bytes()).await?;
        }
        Ok(())
    }

    /// How many nodes have the entry, this one included.
    fn copies(&self, index: usize) -> usize {
        1 + self.held.borrow().iter().filter(|&&held| held > index).count()
    }
}

/// A backup: says how much it has, appends what comes, says so.
pub(crate) async fn backup(env: Env, bug: Bug) -> io::Result<()> {
    let log = Log::new(env.storage(), bug);
    let listener = TcpListener::bind(env.net(), (env.ip(), REPLICAS)).await?;
    let (mut newest, _) = listener.accept().await?;
    loop {
        // The primary has one connection: a new one means that it gave the old one up.
        tokio::select! {
            biased;
            accepted = listener.accept() => newest = accepted?.0,
            _broken = follow(&mut newest, &log) => newest = listener.accept().await?.0,
        }
    }
}

async fn follow(stream: &mut TcpStream, log: &Log) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        stream.write_u64(log.len() as u64).await?;
        log.append(stream.read_u64().await?);
    }
}
