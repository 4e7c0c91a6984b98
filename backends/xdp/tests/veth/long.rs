//! Frames that one chunk of memory has no room for: multi-buffer frames, which Linux has since 6.6.

use ringway_xdp::Settings;

use crate::broker::by_broker;
use crate::link::Cable;
use crate::peers::{STREAM, both_streams, echo};
use crate::world::{World, in_world};

/// The usual MTU of long frames, and the longest that there is.
const MTUS: [u32; 2] = [9000, 65_535];

/// Streams and datagrams of all lengths, in frames that are as long as the link's.
fn carries(world: &mut World, mtu: u32) {
    both_streams(world);
    let received = world.ring.queues().counters().received as usize;
    // (The peer acknowledges as well.)
    assert!(received < STREAM / 3000, "{received} frames for {STREAM} bytes each way");
    // (With its headers a frame is no longer than 64 KiB.)
    let most = mtu.min(65_517) as usize - 48;
    echo(world, [0, 3700, 3798, 3799, 3800, 3840, 4050, 4054, 4055, 4096, 4097, 8000, 8192, 8193, most - 1, most]);
    assert_eq!(world.ring.queues().held(), 0);
}

#[test]
fn long_frames_come_and_go() {
    for mtu in MTUS {
        for (is_v6, offloads, segmentation) in [(false, true, false), (true, false, false), (false, false, true), (true, true, true)] {
            let cable = Cable { is_v6, offloads, mtu, ..Cable::default() };
            let settings = Settings { segmentation, checksums: segmentation, ..Settings::new("a0") };
            in_world(cable, &settings, |mut world| carries(&mut world, mtu));
        }
    }
}

/// Where the sender has the kernel cut nothing, and programs leave more unread than there are chunks.
#[test]
fn long_frames_that_are_left_unread_are_kept() {
    let settings = Settings { received_frames: 64, ..Settings::new("a0") };
    in_world(Cable { mtu: 9000, ..Cable::default() }, &settings, |mut world| both_streams(&mut world));
}

#[test]
fn a_broker_lends_rings_for_long_frames() {
    by_broker(Cable { mtu: 9000, ..Cable::default() }, &Settings::new("a0"), |world| carries(world, 9000));
}
