use core::time::Duration;

use serde_json::Value;

use super::*;
use crate::scenario::{Scenario, Stage};
use crate::trace::What;
use crate::workloads::WorkloadSet;
use crate::{Capture, Direction, FaultCounts, HostConfig, World, WorldConfig};

/// The page of a scenario, and the data in it.
fn page(scenario: &str, title: &str) -> (String, Value, Stage) {
    let mut stage = Stage::capturing(&scenario.parse::<Scenario>().unwrap(), Capture::Frames);
    stage.perform();
    let mut page = Vec::new();
    write(stage.world().trace(), title, "drew </script> <b>", &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let json = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data = serde_json::from_str(json).unwrap();
    (page, data, stage)
}

fn rows<'a>(data: &'a Value, name: &str) -> &'a Vec<Value> {
    data[name].as_array().unwrap()
}

#[test]
fn the_page_is_whole_and_asks_for_nothing() {
    let (page, data, _) = page("42/loss/2", "a </script> title");
    assert_eq!(data["title"], "a </script> title");
    assert_eq!(data["about"], "drew </script> <b>");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for mark in ["/*STYLE*/", "/*DATA*/", "/*DRAW*/", "/*BEHAVE*/", "http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(mark), "{mark}");
    }
    // The script itself, and the element of data.
    assert_eq!(page.matches("</script>").count(), 2);
}

/// What the page shows is what the trace holds: as many frames, as many arrivals, and every drop.
#[test]
fn the_data_is_the_trace() {
    for scenario in ["42/loss/2", "7/loss+duplication+reordering+corruption/4", "3/none/0"] {
        let (_, data, stage) = page(scenario, "t");
        let records = stage.world().trace().records();
        let of = |is: fn(What) -> bool| records.iter().filter(|r| is(r.what)).count();
        assert_eq!(rows(&data, "frames").len(), of(|w| w == What::Sent));
        let fate = |n: u64| rows(&data, "arrivals").iter().filter(|row| row[3] == n).count();
        assert_eq!(fate(0), of(|w| w == What::Delivered));
        let dropped = |w, d| matches!(w, What::Struck(on, strike) if strike.is_drop() && on == d);
        assert_eq!(fate(1), records.iter().filter(|r| dropped(r.what, Direction::Up)).count());
        assert_eq!(fate(2), records.iter().filter(|r| dropped(r.what, Direction::Down)).count());
        assert_eq!(data["hash"], stage.world().trace().hash().to_string());
        assert!(rows(&data, "notes").iter().any(|note| note[3] == "faults stop"));
    }
}

#[test]
fn what_is_sent_again_is_marked() {
    let mut marked = 0;
    for seed in 0..20 {
        // (A stranger sends things again that it never sent.)
        let workloads = Scenario::of_seed(seed).workloads - WorkloadSet::STRANGER;
        let (_, data, _) = page(&format!("{seed}/loss/5/{workloads}"), "t");
        for (i, row) in rows(&data, "frames").iter().enumerate().filter(|(_, row)| row[4] == 1) {
            let end = |row: &Value| row[6].as_u64().unwrap() + row[9].as_u64().unwrap();
            let same_way = |other: &&Value| (&other[0], &other[1]) == (&row[0], &row[1]);
            let earlier = rows(&data, "frames")[..i].iter().filter(same_way).map(end).max();
            assert!(earlier.is_some_and(|end| end >= row[6].as_u64().unwrap()), "{row} was never sent before");
            marked += 1;
        }
    }
    assert!(marked > 20, "{marked}");
}

#[test]
fn a_quiet_world_drops_and_repeats_nothing() {
    let mut frames = 0;
    for seed in 0..20 {
        // Other workloads may repeat lawfully: who meets in the middle sends its SYN's number twice (RFC 9293 s3.5, figure 7).
        let (_, data, stage) = page(&format!("{seed}/none/3/bulk"), "t");
        if stage.world().trace().faults() == FaultCounts::default() {
            assert!(rows(&data, "arrivals").iter().all(|row| row[3] == 0));
            frames += rows(&data, "frames").len();
            // (On a slow link, round trips become longer all at once: then the end of what was sent is probed, RFC 8985 s7.)
            for (i, row) in rows(&data, "frames").iter().enumerate().filter(|(_, row)| row[4] == 1) {
                let bits = |row: &Value| u64::from(row[5].as_str().unwrap().contains(['S', 'F']));
                let end = |row: &Value| row[6].as_u64().unwrap() + row[9].as_u64().unwrap() + bits(row);
                let same_way = |other: &&Value| (&other[0], &other[1]) == (&row[0], &row[1]);
                let last = rows(&data, "frames")[..i].iter().filter(same_way).map(end).max();
                assert_eq!(Some(end(row)), last, "seed {seed}: {row} is no probe of the end");
            }
        }
    }
    assert!(frames > 100, "{frames}");
}

#[test]
fn a_failure_is_a_note_with_its_frame() {
    let (_, _, mut stage) = page("42/loss/2", "t");
    let sent = stage.world().trace().records().iter().filter(|r| r.what == What::Sent).nth(5).unwrap().clone();
    stage.fail(&format!("checker window: host {} at 7 ns, frame {}: too wide", sent.host, sent.frame));
    let mut page = Vec::new();
    write(stage.world().trace(), "t", "", &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let json = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(json).unwrap();
    let note = rows(&data, "notes").last().unwrap();
    assert_eq!((&note[1], &note[2], &note[3]), (&sent.host.into(), &4.into(), &"checker window: too wide".into()));
    let frame = &rows(&data, "frames")[usize::try_from(note[4].as_u64().unwrap()).unwrap()];
    assert_eq!((&frame[1], &frame[2]), (&sent.host.into(), &sent.at.as_nanos().into()));
}

#[test]
fn without_frames_there_is_no_page() {
    let mut world = World::new(WorldConfig::seeded(1));
    world.add_host(HostConfig::named("a"));
    world.run_for(Duration::from_secs(1));
    assert!(matches!(write(world.trace(), "t", "", Vec::new()), Err(TimelineError::NotKept(_))));
}
