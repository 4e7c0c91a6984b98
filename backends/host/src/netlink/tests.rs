//! Against the kernel, in network namespaces that the tests make.

mod changes;
mod route;
mod world;

use super::*;

#[test]
fn the_own_namespace_can_be_read() {
    let mut monitor = Monitor::open().expect("rtnetlink");
    let tables = monitor.tables().clone();
    assert_eq!(tables.generation(), 1);
    assert!(tables.loopback().is_some_and(|link| &*link.name == "lo"));
    // As getifaddrs(3) has them.
    for address in crate::Addresses::new().all().expect("interfaces") {
        assert!(tables.is_local(address), "{address}");
    }
    let stranger = std::net::IpAddr::from([203, 0, 113, 9]);
    assert!(!tables.is_local(stranger));
    monitor.refresh().expect("rtnetlink");
}
