//! One listener in several rings.

use super::*;

#[test]
fn a_listener_over_two_rings_accepts_in_the_order_of_arrival() {
    let mut pair = Pair::new(1, 2);
    let mut listener = pair.b.listener(pair.now, 80, Spread::Every);
    assert_eq!(listener.flows().len(), 2);
    let ports = [5001, 5000, 5002, 5003, 5005, 5004];
    let clients: Vec<_> = ports
        .map(|port| {
            let client = pair.a.connecting(pair.now, port, SocketAddr::new(ip(2, 2), 80));
            pair.settle();
            client
        })
        .into();
    let waiting: Vec<_> = listener.flows().iter().map(|flow| pair.b.rings.0[usize::from(flow.ring)].tcp_waiting(*flow).len()).collect();
    assert_eq!(waiting, [3, 3], "both rings have some");
    assert_eq!(listener.readiness(&mut pair.b.rings, &pair.b.choice), Readiness::IN);
    let accepted: Vec<_> = ports.iter().map(|_| pair.b.accept(pair.now, &mut listener).expect("it waits")).collect();
    assert_eq!(accepted.iter().map(|socket| remote(socket).port()).collect::<Vec<_>>(), ports);
    assert_eq!(pair.b.accept(pair.now, &mut listener).err(), Some(Error::WouldBlock));
    assert_eq!(listener.readiness(&mut pair.b.rings, &pair.b.choice), Readiness::empty());
    accepted.into_iter().for_each(|socket| pair.b.close(pair.now, socket));
    pair.b.close(pair.now, listener);
    pair.settle();
    clients.into_iter().for_each(|socket| pair.a.close(pair.now, socket));
    pair.settle();
    assert_eq!((pair.a.flows(), pair.b.flows(), pair.fabric.rules()), (0, 0, 0));
}
