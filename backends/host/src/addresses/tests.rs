use super::*;

#[test]
fn loopback_is_local_and_documentation_addresses_are_not() {
    let addresses = Addresses::new();
    assert!(addresses.contains(Ipv4Addr::new(127, 3, 2, 1)));
    assert!(addresses.contains(Ipv4Addr::UNSPECIFIED));
    // RFC 5737 TEST-NET-3 is never assigned.
    assert!(!addresses.contains(Ipv4Addr::new(203, 0, 113, 9)));
    // (A machine may have no IPv6.)
    let has_v6 = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    for ip in [Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST] {
        assert_eq!(addresses.contains(ip), has_v6, "{ip}");
    }
    // RFC 3849's prefix is none of anybody's.
    assert!(!addresses.contains(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9)));
}

#[test]
fn every_listed_address_is_local() {
    let addresses = Addresses::new();
    for address in addresses.all().expect("interfaces") {
        assert!(Addresses::new().contains(address), "{address}");
    }
}

#[test]
fn a_miss_is_not_asked_again_within_a_second() {
    let addresses = Addresses::new();
    let stranger = IpAddr::from([203, 0, 113, 9]);
    assert!(!addresses.is_interface(stranger, Instant::ZERO));
    addresses.cache.lock().expect("lock").known = Vec::new();
    let read = |addresses: &Addresses| addresses.cache.lock().expect("lock").read;
    assert!(!addresses.is_interface(stranger, Instant::ZERO + Duration::from_millis(999)));
    assert_eq!(read(&addresses), Some(Instant::ZERO));
    assert!(!addresses.is_interface(stranger, Instant::ZERO + REFRESH));
    assert_eq!(read(&addresses), Some(Instant::ZERO + REFRESH));
}
