//! What goes with a connection that moves.

use crate::tcp::congestion::{Algorithm, Beginning, CongestionControl as _};
use crate::tcp::fields::{Reader, SnapshotError, Writer};

/// Segments may be shorter than the least that a peer can ask for, by what timestamps take: then a window of one is as well.
#[test]
fn a_window_of_bbrs_comes_back_as_it_was_however_short_its_segments() {
    let short = Beginning { mss: 76, ..Beginning::default() };
    let mut bbr = Algorithm::Bbr.begin(&short);
    bbr.succeed(&Algorithm::Reno.begin(&Beginning { mss: 7, ..Beginning::default() }));
    assert_eq!(bbr.cwnd(), 76);
    let mut writer = Writer(Vec::new());
    bbr.walk(&mut writer).unwrap();
    let mut read = Algorithm::Reno.begin(&short);
    read.walk(&mut Reader(&writer.0)).unwrap();
    assert_eq!((read.algorithm(), read.cwnd()), (Algorithm::Bbr, 76));
    // (And none has no window.)
    let len = writer.0.len();
    writer.0[len - 8..].fill(0);
    assert_eq!(read.walk(&mut Reader(&writer.0)), Err(SnapshotError::Value));
}
