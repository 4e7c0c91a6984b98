//! The network loses, holds and cuts; the hosts live.

use core::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use super::{client, connect, echo_server};
use crate::cases::calm::bulk;
use crate::host::Net;
use crate::run_log::{RunLog, builder, twice};

/// Asks and is answered `times` times, and says how long the longest answer took.
async fn ask(net: &Net, times: u64, pause: Duration) -> turmoil::Result<Duration> {
    let mut stream = connect(net).await?;
    stream.set_nodelay(true)?;
    let mut longest = Duration::ZERO;
    for number in 0..times {
        let asked = Instant::now();
        stream.write_u64(number).await?;
        assert_eq!(stream.read_u64().await?, number);
        longest = longest.max(asked.elapsed());
        sleep(pause).await;
    }
    Ok(longest)
}

#[test]
fn requests_are_answered_though_messages_are_lost() {
    twice(|seed, log| {
        let mut sim = builder(seed).fail_rate(0.02).repair_rate(0.5).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            let longest = ask(&net, 200, Duration::from_millis(5)).await?;
            log.note(format!("answered, the slowest in {} ms", longest.as_millis()));
            assert!(longest > Duration::from_millis(100), "nothing was lost");
            Ok(())
        });
        sim.run().expect("all are answered");
        assert!(log.has("answered"));
    });
}

#[test]
fn a_megabyte_though_messages_are_lost() {
    twice(|seed, log| {
        let mut sim = builder(seed).fail_rate(0.005).repair_rate(0.5).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            bulk(connect(&net).await?, 1 << 20).await?;
            log.note("all came back");
            Ok(())
        });
        sim.run().expect("a megabyte there and back");
        assert!(log.has("all came back"));
    });
}

/// Cuts at one second, mends at four; the conversation has to go on.
fn cut_for_three_seconds(cut: fn(), mend: fn()) {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            let longest = ask(&net, 30, Duration::from_millis(100)).await?;
            log.note(format!("answered, the slowest in {} ms", longest.as_millis()));
            assert!(longest > Duration::from_millis(2500), "it was cut");
            assert!(longest < Duration::from_secs(30), "it went on soon after");
            Ok(())
        });
        sim.client("weather", async move {
            sleep(Duration::from_secs(1)).await;
            cut();
            sleep(Duration::from_secs(3)).await;
            mend();
            Ok(())
        });
        sim.run().expect("all are answered");
        assert!(log.has("answered"));
    });
}

#[test]
fn a_partition_that_is_repaired() {
    cut_for_three_seconds(|| turmoil::partition("client", "server"), || turmoil::repair("client", "server"));
}

#[test]
fn a_one_way_partition_towards_the_server() {
    cut_for_three_seconds(|| turmoil::partition_oneway("client", "server"), || turmoil::repair_oneway("client", "server"));
}

#[test]
fn a_one_way_partition_towards_the_client() {
    cut_for_three_seconds(|| turmoil::partition_oneway("server", "client"), || turmoil::repair_oneway("server", "client"));
}

/// All that was held comes at once, retransmissions with it.
#[test]
fn messages_that_are_held_and_released() {
    cut_for_three_seconds(|| turmoil::hold("client", "server"), || turmoil::release("client", "server"));
}

#[test]
fn a_bulk_transfer_goes_on_after_a_partition() {
    twice(|seed, log| {
        let mut sim = builder(seed).build();
        echo_server(&mut sim, log);
        client(&mut sim, "client", log, async |net: Net, log: RunLog| {
            bulk(connect(&net).await?, 4 << 20).await?;
            log.note("all came back");
            Ok(())
        });
        sim.client("weather", async move {
            sleep(Duration::from_millis(700)).await;
            turmoil::partition("client", "server");
            sleep(Duration::from_secs(5)).await;
            turmoil::repair("client", "server");
            Ok(())
        });
        sim.run().expect("four megabytes there and back");
        assert!(log.has("all came back"));
        assert!(sim.elapsed() > Duration::from_secs(5), "it was cut in the middle");
    });
}
