//! The order of arrival, whatever it is.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Datagrams come to rings of two links, and are read in between, in whatever way: always the oldest.
    #[test]
    fn datagrams_are_read_as_they_came(steps in prop::collection::vec((0..8u16, any::<bool>(), 0..3u8), 1..60)) {
        let mut pair = Pair::new(2, 2);
        let mut receiver = pair.b.socket(Protocol::Udp, Spread::Every);
        pair.b.call(pair.now, |env| receiver.bind(env, SocketAddr::from(([0; 4], 53)))).expect("a fresh socket");
        let mut senders: Vec<_> = (0..8)
            .map(|n| {
                let mut socket = pair.a.socket(Protocol::Udp, Spread::One);
                pair.a.call(pair.now, |env| socket.bind(env, SocketAddr::from(([0; 4], 6000 + n)))).expect("a fresh socket");
                socket
            })
            .collect();
        let (mut sent, mut read) = (0, 0);
        for (sender, is_first_link, reads) in steps {
            let to = SocketAddr::new(ip(if is_first_link { 2 } else { 3 }, 2), 53);
            let sender = &mut senders[usize::from(sender)];
            pair.a.call(pair.now, |env| sender.send_to(env, &[IoSlice::new(&[sent])], Some(to))).expect("it is on the link");
            sent += 1;
            pair.settle();
            for _ in 0..reads {
                let mut bytes = [0; 1];
                let result = pair.b.call(pair.now, |env| receiver.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
                match result {
                    Ok(_) => {
                        prop_assert_eq!(bytes[0], read);
                        read += 1;
                    }
                    Err(error) => prop_assert_eq!((error, read), (Error::WouldBlock, sent)),
                }
            }
        }
    }
}
