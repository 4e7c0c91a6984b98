//! Destinations, remembered.

use super::*;
use crate::net::{Query, Unroutable};
use crate::socket::Routes;

fn host(links: u32, generation: u64) -> Tables {
    tables(links, 1, &[], generation)
}

#[test]
fn the_tables_are_asked_once_for_each_destination_until_they_change() {
    let mut routes = Routes::default();
    let query = Query::to(ip(2, 9));
    let [a, b, nowhere] = [ip(2, 9), ip(3, 9), ip(9, 9)].map(|ip| SocketAddr::new(ip, 7));
    let two = host(2, 1);
    for _ in 0..3 {
        assert_eq!(routes.way(&two, a, &query).map(|way| (way.link, way.source)), Ok((LinkId(2), ip(2, 1))));
        assert_eq!(routes.way(&two, b, &query).map(|way| (way.link, way.source)), Ok((LinkId(3), ip(3, 1))));
        assert_eq!(routes.way(&two, nowhere, &query), Err(Unroutable::NoRoute));
    }
    assert_eq!(routes.asked(), 3);
    let one = host(1, 2);
    assert_eq!(routes.way(&one, b, &query), Err(Unroutable::NoRoute), "that link is gone");
    assert!(routes.way(&one, a, &query).is_ok());
    assert_eq!(routes.asked(), 5);
    routes.forget();
    assert!(routes.way(&one, a, &query).is_ok());
    assert_eq!(routes.asked(), 6);
}

#[test]
fn what_is_remembered_is_bounded() {
    let (mut routes, tables) = (Routes::default(), host(1, 1));
    for port in 0..5000 {
        let _ = routes.way(&tables, SocketAddr::new(ip(2, 9), port), &Query::to(ip(2, 9)));
    }
    assert!(format!("{routes:?}").matches("Way {").count() <= 64);
}
