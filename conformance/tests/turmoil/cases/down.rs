//! Hosts crash and boot again, with the same addresses.

use core::time::Duration;
use std::io::{self, ErrorKind};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::{client, connect, echo_server};
use crate::host::{Net, TcpStream};
use crate::run_log::{RunLog, builder, pass, twice};

/// Asks every 100 ms until `times` requests are answered, on new connections as old ones break; notes what breaks them.
async fn ask_whatever_happens(net: Net, log: RunLog, times: u64) -> turmoil::Result {
    async fn ask(stream: &mut TcpStream, number: u64) -> io::Result<()> {
        stream.write_u64(number).await?;
        assert_eq!(stream.read_u64().await?, number);
        Ok(())
    }
    let mut number = 0;
    while number < times {
        let connected = timeout(Duration::from_secs(2), connect(&net)).await;
        let Ok(Ok(mut stream)) = connected else {
            log.note(format!("no connection: {:?}", connected.map(|result| result.map_err(|error| error.kind()).err())));
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        stream.set_nodelay(true)?;
        log.note(format!("connected to ask {number}"));
        loop {
            if let Err(error) = ask(&mut stream, number).await {
                log.note(format!("broken: {:?}", error.kind()));
                break;
            }
            number += 1;
            if number == times {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    log.note("all are answered");
    Ok(())
}

#[test]
fn a_bounced_server_resets_its_peers_which_come_back() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, |net, log| ask_whatever_happens(net, log, 40));
        pass(&mut sim, Duration::from_secs(2));
        sim.bounce("server");
        sim.run().expect("all are answered");
        assert!(log.has("broken: ConnectionReset"), "a stack that knows nothing of a connection resets it");
        assert!(log.has("all are answered"));
    });
}

#[test]
fn a_server_that_is_down_for_a_while() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, |net, log| ask_whatever_happens(net, log, 40));
        pass(&mut sim, Duration::from_secs(2));
        sim.crash("server");
        pass(&mut sim, Duration::from_secs(5));
        sim.bounce("server");
        sim.run().expect("all are answered");
        assert!(log.has("broken: ConnectionReset"));
        assert!(log.has("all are answered"));
    });
}

/// The client's stack forgets everything, the server's does not: connections from the same address and perhaps the same port.
#[test]
fn a_bounced_client_connects_again() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        let told = log.clone();
        sim.host("caller", move || {
            let log = told.clone();
            async move {
                let net = crate::host::boot("caller", &log).await?;
                ask_whatever_happens(net, log, 1000).await
            }
        });
        for _ in 0..3 {
            pass(&mut sim, Duration::from_secs(3));
            sim.bounce("caller");
        }
        pass(&mut sim, Duration::from_secs(3));
        let connected = log.count("connected to ask 0");
        assert_eq!(connected, 4, "once after each boot");
        assert!(!log.has("no connection"));
    });
}

#[test]
fn a_server_that_never_comes_back_times_out() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            let mut stream = connect(&net).await?;
            stream.config(|config| config.user_timeout = Some(Duration::from_secs(20)))?;
            let error = loop {
                let asked = async {
                    stream.write_u64(7).await?;
                    stream.read_u64().await
                };
                if let Err(error) = asked.await {
                    break error;
                }
                sleep(Duration::from_millis(100)).await;
            };
            // ARP's silence is the reason that TCP gives, if the neighbour was asked for again meanwhile (RFC 5927 s5.2).
            assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable), "{error:?}");
            log.note(format!("given up: {:?}", error.kind()));
            Ok(())
        });
        pass(&mut sim, Duration::from_secs(2));
        sim.crash("server");
        sim.run().expect("the client gives up");
        assert!(log.has("given up"));
    });
}
