use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::io::{self, ErrorKind};
use std::rc::Rc;

use ringway_stack::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Case, CaseError, Env, TcpListener, TcpStream, TimedOut, UdpSocket, search};
use crate::faults::{FaultSet, Faults};
use crate::nic::Outstanding;
use crate::report::assert_deterministic;
use crate::{Capture, HostConfig, HostId, LinkConfig, Report, World, WorldConfig};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + seconds as u32 * SECOND
}

fn world(seed: u64, link: LinkConfig) -> (World, HostId, HostId) {
    let mut world = World::new(WorldConfig::seeded(seed));
    let server = world.add_host(HostConfig::named("server"));
    let client = world.add_host(HostConfig::named("client").link(link));
    (world, server, client)
}

/// Sends back what comes, on port 7.
async fn echo(env: Env) -> io::Result<()> {
    let listener = TcpListener::bind(env.net(), (env.ip(), 7)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        env.spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            let _broken = tokio::io::copy(&mut reader, &mut writer).await;
        });
    }
}

fn lossy() -> LinkConfig {
    let faults = Faults { loss_ppm: 50_000, reordering_ppm: 50_000, reordering_delay_max: Duration::from_millis(1), ..Faults::default() };
    LinkConfig { faults, ..LinkConfig::default() }
}

fn echoed(seed: u64) -> Report {
    let (mut world, server, client) = world(seed, lossy());
    let address = (world.host(server).ip(), 7);
    world.serve(server, echo);
    world.spawn(client, move |env| async move {
        let (mut reader, mut writer) = TcpStream::connect(env.net(), address).await?.into_split();
        let sent: Vec<u8> = (0..200_000u32).map(|i| (i % 253) as u8).collect();
        let expected = sent.clone();
        let writing = env.spawn(async move {
            writer.write_all(&sent).await?;
            writer.shutdown().await
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).await?;
        writing.await?;
        assert!(back == expected);
        io::Result::Ok(())
    });
    world.run_until_finished(at(600)).expect("it ends");
    world.run_for(300 * SECOND);
    let left = world.outstanding();
    assert_eq!(left[client.0], Outstanding::default());
    assert_eq!(left[server.0], Outstanding { rules: 1, ..Outstanding::default() }, "the listener stays");
    world.report()
}

#[test]
fn an_echo_over_a_lossy_link_is_the_same_twice() {
    let report = assert_deterministic(7, echoed);
    assert!(report.faults.lost > 0 && report.faults.held_back > 0, "{report}");
}

#[test]
fn tasks_sleep_in_order_and_wait_for_each_other() {
    let (mut world, host, _) = world(1, LinkConfig::default());
    let log = Rc::new(RefCell::new(Vec::new()));
    let written = Rc::clone(&log);
    world.spawn(host, move |env| {
        let log = Rc::clone(&written);
        async move {
            let tasks: Vec<_> = [3, 1, 2]
                .map(|seconds| {
                    let (env, log) = (env.clone(), Rc::clone(&log));
                    env.clone().spawn(async move {
                        env.sleep(seconds * SECOND).await;
                        log.borrow_mut().push((seconds, env.now().as_millis()));
                        seconds
                    })
                })
                .into();
            let mut sum = 0;
            for task in tasks {
                sum += task.await;
            }
            assert_eq!(sum, 6);
        }
    });
    assert_eq!(world.run_until_finished(at(10)), Ok(at(3)));
    assert_eq!(*log.borrow(), [(1, 1000), (2, 2000), (3, 3000)]);
}

#[test]
fn a_timeout_drops_what_it_waited_for() {
    let (mut world, host, _) = world(1, LinkConfig::default());
    world.spawn(host, |env| async move {
        let kept = Rc::new(());
        let inner = Rc::clone(&kept);
        let never = async move {
            let _inner = inner;
            core::future::pending::<()>().await;
        };
        assert_eq!(env.timeout(SECOND, never).await, Err(TimedOut));
        assert_eq!(Rc::strong_count(&kept), 1);
        assert_eq!(env.timeout(SECOND, async { 5 }).await, Ok(5));
        assert_eq!(env.now(), at(1));
    });
    assert_eq!(world.run_until_finished(at(10)), Ok(at(1)));
}

#[test]
#[should_panic(expected = "the program of host client failed at 0 ms: connection refused")]
fn a_program_that_fails_ends_the_run() {
    let (mut world, server, client) = world(1, LinkConfig { latency: Duration::ZERO, ..LinkConfig::default() });
    world.introduce_all();
    let address = (world.host(server).ip(), 9);
    world.spawn(client, move |env| async move { TcpStream::connect(env.net(), address).await.map(drop) });
    let _unreached = world.run_until_finished(at(60));
}

#[test]
fn a_program_that_waits_for_ever_is_named() {
    let (mut world, _, client) = world(1, LinkConfig::default());
    world.spawn(client, |_| core::future::pending::<()>());
    assert_eq!(world.run_until_finished(at(60)).unwrap_err().hosts, ["client"]);
}

#[test]
#[should_panic(expected = "time stood still")]
fn a_program_that_never_rests_is_noticed() {
    let (mut world, _, client) = world(1, LinkConfig::default());
    world.spawn(client, |_| {
        core::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            core::task::Poll::<()>::Pending
        })
    });
    let _unreached = world.run_until_finished(at(1));
}

#[test]
fn a_killed_program_is_an_end_to_its_peer_and_starts_again_with_its_disk() {
    let (mut world, server, client) = world(1, LinkConfig::default());
    let address = (world.host(server).ip(), 7);
    let lives = Rc::new(Cell::new(0));
    let counted = Rc::clone(&lives);
    let process = world.serve(server, move |env| {
        counted.set(counted.get() + 1);
        let before = env.storage().value("lives").map_or(0, |value| value[0]);
        env.storage().put("lives", [before + 1]);
        async move {
            let listener = TcpListener::bind(env.net(), (env.ip(), 7)).await?;
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await?;
                stream.write_all(&[before]).await?;
                held.push(stream);
            }
            #[expect(unreachable_code, reason = "it serves for ever")]
            io::Result::Ok(())
        }
    });
    let heard = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&heard);
    world.spawn(client, move |env| {
        let heard = Rc::clone(&told);
        async move {
            while heard.borrow().len() < 2 {
                let mut stream = match TcpStream::connect(env.net(), address).await {
                    Ok(stream) => stream,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                        env.sleep(SECOND).await;
                        continue;
                    }
                };
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await?;
                heard.borrow_mut().push(bytes);
            }
            io::Result::Ok(())
        }
    });
    world.run_for(SECOND);
    process.kill(&mut world);
    world.run_for(5 * SECOND);
    assert_eq!(heard.borrow().len(), 1);
    process.start(&mut world);
    world.run_for(5 * SECOND);
    process.kill(&mut world);
    world.run_until_finished(at(30)).expect("both lives were heard");
    assert_eq!(*heard.borrow(), [[0], [1]]);
    assert_eq!(lives.get(), 2);
}

#[test]
fn a_crash_takes_what_was_not_synced() {
    let storage = super::Storage::default();
    storage.put("kept", "1");
    storage.sync();
    storage.put("kept", "2");
    storage.put("lost", "3");
    storage.crash();
    assert_eq!(storage.entries(), [(b"kept".to_vec(), b"1".to_vec())]);
    storage.remove("kept");
    assert_eq!(storage.value("kept"), None);
}

#[test]
fn datagrams() {
    let (mut world, server, client) = world(1, LinkConfig::default());
    let address = (world.host(server).ip(), 7);
    world.serve(server, |env| async move {
        let socket = UdpSocket::bind(env.net(), (env.ip(), 7)).await?;
        let mut bytes = [0; 64];
        loop {
            let (n, from) = socket.recv_from(&mut bytes).await?;
            socket.send_to(&bytes[..n], from).await?;
        }
        #[expect(unreachable_code, reason = "it serves for ever")]
        io::Result::Ok(())
    });
    world.spawn(client, move |env| async move {
        let socket = UdpSocket::bind(env.net(), (env.ip(), 0)).await?;
        socket.send_to(b"ping", address).await?;
        let mut bytes = [0; 64];
        let n = env.timeout(SECOND, socket.recv(&mut bytes)).await??;
        assert_eq!(&bytes[..n], b"ping");
        io::Result::Ok(())
    });
    world.run_until_finished(at(5)).expect("it answers");
}

#[test]
fn two_programs_of_a_host_share_its_sockets_and_not_its_numbers() {
    let (mut world, server, client) = world(3, LinkConfig::default());
    let address = (world.host(server).ip(), 7);
    world.serve(server, echo);
    let drawn = Rc::new(RefCell::new(Vec::new()));
    for word in [b"one", b"two"] {
        let drawn = Rc::clone(&drawn);
        world.spawn(client, move |env| {
            drawn.borrow_mut().push(env.random().bits());
            async move {
                let mut stream = TcpStream::connect(env.net(), address).await?;
                stream.write_all(word).await?;
                let mut back = [0; 3];
                stream.read_exact(&mut back).await?;
                assert_eq!(&back, word);
                io::Result::Ok(())
            }
        });
    }
    world.run_until_finished(at(5)).expect("both end");
    let drawn = drawn.borrow();
    assert_ne!(drawn[0], drawn[1]);
}

#[test]
fn cases_are_written_as_they_are_read() {
    let case: Case = "42/loss+corruption/3".parse().unwrap();
    assert_eq!(case, Case { seed: 42, faults: FaultSet::LOSS | FaultSet::CORRUPTION, scale: 3 });
    assert_eq!(case.to_string(), "42/loss+corruption/3");
    assert_eq!("42".parse(), Ok(Case::of_seed(42)));
    assert_eq!("x".parse::<Case>(), Err(CaseError::Seed));
    assert_eq!("1/loss/11".parse::<Case>(), Err(CaseError::Scale));
}

#[test]
fn a_class_that_is_off_changes_no_other() {
    let all = Case::of_seed(5);
    let (full, less) = (all.link(1), Case { faults: all.faults.difference(FaultSet::LOSS), ..all }.link(1));
    assert_ne!(full.faults.loss_ppm, 0);
    assert_eq!(LinkConfig { faults: Faults { loss_ppm: 0, ..full.faults }, ..full }, less);
}

/// Fails from seed 5 on, if there is loss and a scale of 2 or more; panics if there is duplication, too.
fn picky(case: &Case) -> Result<(), String> {
    let struck = case.seed >= 5 && case.faults.contains(FaultSet::LOSS) && case.scale >= 2;
    assert!(!struck || !case.faults.contains(FaultSet::DUPLICATION), "a panic");
    if struck { Err("an error".to_owned()) } else { Ok(()) }
}

#[test]
fn what_is_found_is_made_small() {
    let found = search(0..100, picky).expect("some seed of five and above has a scale of two and above");
    assert_eq!((found.case.faults, found.case.scale, found.failure.as_str()), (FaultSet::LOSS, 2, "an error"));
    assert_eq!(found.first, Case::of_seed(found.clean));
    assert!(found.to_string().ends_with(&format!("RINGWAY_SIM_CASE={}/loss/2", found.case.seed)));
    assert_eq!(search(0..5, picky), None);
}

#[test]
fn a_case_makes_a_world() {
    assert_eq!(Case::of_seed(9).world(Capture::Hash).report().seed, 9);
}
