//! Connections that leave their rings at some moment of their lives, with all that was not read yet, as those do that processes come to
//! share; and others that follow them between the same addresses.

use core::fmt;
use core::time::Duration;

use ringway_stack::Instant;

use super::{Ground, Site, Standing, Verdict, Workload, exchanges, sides};
use crate::apps::{Dialogue, Line, Parting, Plan, Share, Shared, Sharer, Transfer, When};
use crate::random::RandomStream;
use crate::world::World;

#[derive(Debug)]
struct Sharing {
    client: usize,
    server: usize,
    /// From the client's point of view: the connection that leaves, and the one after it.
    dialogues: [Dialogue; 2],
    plans: [Plan; 2],
    /// The client's and the server's, of each.
    transfers: [[Shared<Transfer>; 2]; 2],
    delay_max: Duration,
    lost_ppm: u32,
    line: Shared<Line>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Sharings {
    sharings: Vec<Sharing>,
    standing: Standing,
}

impl Sharings {
    pub(super) fn draw(ground: &mut Ground<'_>) -> Self {
        let count = ground.stream.between(1, 4);
        Self { sharings: (0..count).map(|_| sharing(ground)).collect(), standing: Standing::default() }
    }
}

fn sharing(ground: &mut Ground<'_>) -> Sharing {
    let [client, server] = ground.two_hosts();
    let dialogues = [first(ground), sides::exchange(ground.stream, 8, 1024, 4096)];
    let mut plans = [plan(ground.stream, dialogues[0]), plan(ground.stream, dialogues[0].turned())];
    // One side at least begins, sooner or later; sometimes both at once.
    match ground.stream.below(4) {
        0 => {}
        1 => plans[0].begin = When::Never,
        _ => plans[1].begin = When::Never,
    }
    let delay_max = time(ground.stream, 1_000, 100_000_000);
    let lost_ppm = ground.stream.pick(&[0, 0, 0, 50_000, 400_000]);
    let line = Shared::new(Line::new(ground.stream.bits(), delay_max, lost_ppm));
    let transfers = [(); 2].map(|()| [(); 2].map(|()| Shared::new(Transfer::default())));
    Sharing { client, server, dialogues, plans, transfers, delay_max, lost_ppm, line }
}

/// What is said over the connection that leaves: of any kind, and mostly long enough to be left in the middle.
fn first(ground: &mut Ground<'_>) -> Dialogue {
    let total_max = 1024 << ground.scale.min(8);
    let mut both = Dialogue { own: sides::side(ground, total_max), peer: sides::side(ground, total_max) };
    let exchange = sides::exchange(ground.stream, 32, 1024, 4096);
    let (pauses, kind) = ([sides::rest(ground.stream), sides::rest(ground.stream)], ground.stream.below(8));
    let leave = Parting::Leave { read: ground.stream.between(0, both.peer.total) };
    if ground.stream.chance_ppm(600_000) {
        [both.own.read_pause, both.peer.read_pause] = pauses;
    }
    match kind {
        0 | 1 => return exchange,
        2 => both.peer.pace = crate::apps::Pace::AfterPeer,
        3 => both.own.parting = leave,
        4 => both.own.parting = Parting::Abort,
        _ => {}
    }
    sides::paced(if ground.stream.chance_ppm(500_000) { both } else { both.turned() })
}

fn plan(stream: &mut RandomStream, dialogue: Dialogue) -> Plan {
    let soon = time(stream, 1_000, 200_000_000);
    let at = When::At(Instant::ZERO + time(stream, 10_000, 4_000_000_000));
    let read = When::Read(stream.between(0, dialogue.peer.total), soon);
    let written = When::Written(stream.between(0, dialogue.own.total), soon);
    Plan {
        begin: stream.pick(&[at, at, read, read, written, written, When::Closed(soon)]),
        look: time(stream, 20_000, 10_000_000),
        patience: time(stream, 200_000_000, 4_000_000_000),
        tries: u32::try_from(stream.between(1, 8)).unwrap_or(1),
        pause: stream.pick(&[Duration::ZERO, Duration::ZERO, soon, soon * 8]),
    }
}

fn time(stream: &mut RandomStream, low_ns: u64, high_ns: u64) -> Duration {
    Duration::from_nanos(stream.magnitude(low_ns, high_ns))
}

impl fmt::Display for Sharings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Sharing { client, server, dialogues: [first, second], plans, delay_max, lost_ppm, .. } in &self.sharings {
            writeln!(f, "hosts {client} and {server} take their connection along ({delay_max:?} a letter, {lost_ppm} ppm lost):")?;
            writeln!(f, "  client {:?}\n    {:?}\n  server {:?}\n    {:?}", first.own, plans[0], first.peer, plans[1])?;
            writeln!(f, "  then client {:?}\n  then server {:?}", second.own, second.peer)?;
        }
        Ok(())
    }
}

impl Workload for Sharings {
    fn set_up(&mut self, site: &mut Site<'_>) {
        for (sharing, number) in self.sharings.iter().zip(0..) {
            let [client, server] = [sharing.client, sharing.server];
            let addresses = (site.address(client, site.client_port(number)), site.address(server, site.server_port(number)));
            let [own, peer] = [0, 1].map(|side: usize| {
                let dialogues = sharing.dialogues.map(|dialogue| if side == 0 { dialogue } else { dialogue.turned() });
                let transfers = sharing.transfers.each_ref().map(|both| both[side].clone());
                Share { dialogues, transfers, plan: sharing.plans[side] }
            });
            let config = |host: usize| site.options[host].tcp.clone();
            let (client_config, server_config) = (config(client), config(server));
            // What comes for a connection that has left goes to its listener's ring, or to a host's first: that one must know of it.
            let ring = site.ring(server);
            let listener = self.standing.add(site.hosts[server], ring);
            let accepting = Sharer::accepting((addresses.1, addresses.0), server_config, peer, sharing.line.clone(), listener);
            site.world.add_app_on(site.hosts[server], ring, accepting);
            let connecting = Sharer::connecting(addresses.0, addresses.1, client_config, own, sharing.line.clone());
            site.world.add_app(site.hosts[client], connecting);
        }
    }

    /// Who waits for the other's letters says nothing.
    fn pauses(&self) -> bool {
        true
    }

    fn progress(&self) -> Vec<String> {
        let line = |Sharing { client, server, dialogues, transfers: [first, second], line, .. }: &Sharing| {
            let sides = exchanges::progress(&dialogues[0], *first[0].read(), *first[1].read());
            let then = exchanges::progress(&dialogues[1], *second[0].read(), *second[1].read());
            format!("hosts {client} and {server} share: {sides}; then: {then}; {:?}", line.read())
        };
        self.sharings.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for Sharing { dialogues, transfers: [first, second], line, .. } in &self.sharings {
            let line = line.read();
            for (transfer, dialogue) in first.iter().zip([dialogues[0], dialogues[0].turned()]) {
                let excused = line.broken || line.lost || dialogue.peer.parting != Parting::Close;
                verdict.check_ending(&"shared", &transfer.read(), excused);
            }
            if line.again {
                // (An attacker's SYN for the first connection may find the second, whose own is on its way: that is a simultaneous open with nobody, over which
                // nothing is ever said, RFC 9293 s3.10.7.3.)
                let crossed = |transfer: &Transfer| verdict.counts.forged > 0 && transfer.read == 0;
                for transfer in second.iter().map(|transfer| *transfer.read()) {
                    verdict.check_ending(&"from the same addresses", &transfer, crossed(&transfer));
                }
            }
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}
