//! What changed.

use super::*;

fn changes(change: impl FnOnce(&mut Builder)) -> (Tables, Vec<Change>, Changes) {
    let old = with_neighbour();
    let mut new = old.clone();
    change(&mut new);
    let (old, new) = (old.build(1), new.build(2));
    let changes = Changes::between(&old, &new);
    (new, changes.iter().cloned().collect(), changes)
}

fn with_neighbour() -> Builder {
    let mut builder = two_links();
    let link_address = LinkAddress::new(&[2, 0, 0, 0, 0, 9]);
    builder.neighbours.push(Neighbour {
        link: LinkId(2),
        address: ip("10.0.2.9"),
        state: NeighbourState::Reachable,
        link_address,
        is_router: false,
    });
    builder
}

#[test]
fn nothing() {
    let (tables, told, changes) = changes(|_| {});
    assert!(told.is_empty() && changes.is_empty());
    assert_eq!(tables.generation(), 2);
}

#[test]
fn links() {
    let link = LinkId(3);
    assert_eq!(changes(|builder| builder.links[2].has_carrier = false).1, [Change::LinkDown(link)]);
    assert_eq!(changes(|builder| builder.links[2].mtu = 1400).1, [Change::MtuChanged { link, mtu: 1400, mtu_v6: 1400 }]);
    assert_eq!(changes(|builder| builder.links[2].mtu_v6 = Some(1280)).1, [Change::MtuChanged { link, mtu: 1500, mtu_v6: 1280 }]);
    assert_eq!(changes(|builder| builder.links[2].master = Some(LinkId(9))).1, [Change::LinkChanged(link)]);
    assert_eq!(changes(|builder| builder.links.push(Link::new(4, "eth2", LinkKind::Ethernet))).1, [Change::LinkAdded(LinkId(4))]);
    assert_eq!(changes(|builder| drop(builder.links.pop())).1, [Change::LinkGone(link)]);
}

#[test]
fn addresses_routes_and_rules() {
    let (link, address) = (LinkId(2), ip("10.0.2.1"));
    let own = |builder: &mut Builder| builder.addresses.iter().position(|own| own.address == address).expect("it is there");
    let gone = |builder: &mut Builder| {
        let at = own(builder);
        builder.addresses.remove(at);
    };
    assert_eq!(changes(gone).1, [Change::AddressGone { link, address }]);
    let deprecated = |builder: &mut Builder| {
        let at = own(builder);
        builder.addresses[at].is_deprecated = true;
    };
    assert_eq!(changes(deprecated).1, [Change::AddressChanged { link, address }]);
    let added = |builder: &mut Builder| builder.addresses.push(Address::new(link, ip("10.0.2.2"), 24).expect("an address"));
    assert_eq!(changes(added).1, [Change::AddressAdded { link, address: ip("10.0.2.2") }]);
    let (table, destination) = (Table::MAIN, net("10.8.0.0/16"));
    let route = |builder: &mut Builder| builder.routes.push(via("10.8.0.0/16", 2, "10.0.2.9"));
    assert_eq!(changes(route).1, [Change::RoutesChanged { table, destination }]);
    let rule = |builder: &mut Builder| builder.rules.push(Rule::new(Family::V6, 7, Action::Nop));
    assert_eq!(changes(rule).1, [Change::RulesChanged(Family::V6)]);
}

#[test]
fn neighbours_that_are_confirmed_or_grow_stale_have_not_changed() {
    assert_eq!(changes(|builder| builder.neighbours[0].state = NeighbourState::Stale).1, []);
    let told = |link_address| Change::NeighbourChanged { link: LinkId(2), address: ip("10.0.2.9"), link_address };
    let other = LinkAddress::new(&[2, 0, 0, 0, 0, 8]);
    assert_eq!(changes(|builder| builder.neighbours[0].link_address = other.clone()).1, [told(other.clone())]);
    assert_eq!(changes(|builder| builder.neighbours[0].state = NeighbourState::Failed).1, [told(None)]);
    assert_eq!(changes(|builder| builder.neighbours.clear()).1, [told(None)]);
    // Who was only asked for yet is nothing to tell.
    let asked =
        Neighbour { link: LinkId(3), address: ip("10.0.3.9"), state: NeighbourState::Incomplete, link_address: None, is_router: false };
    assert_eq!(changes(|builder| builder.neighbours.push(asked)).1, []);
}

#[test]
fn a_flow_is_concerned_by_its_own_link_and_routes() {
    let query = Query::to(ip("10.0.2.9"));
    let route = with_neighbour().build(1).route(&query).expect("on the link");
    let concerns = |change: &dyn Fn(&mut Builder)| changes(change).2.concern(&query, &route);
    assert!(concerns(&|builder| builder.links[1].has_carrier = false));
    assert!(!concerns(&|builder| builder.links[2].has_carrier = false));
    assert!(concerns(&|builder| builder.routes.push(via("10.0.0.0/8", 3, "10.0.3.9"))));
    assert!(!concerns(&|builder| builder.routes.push(via("10.8.0.0/16", 3, "10.0.3.9"))));
    assert!(concerns(&|builder| builder.neighbours.clear()));
    assert!(!concerns(&|builder| builder.rules.push(Rule::new(Family::V6, 7, Action::Nop))));
}
