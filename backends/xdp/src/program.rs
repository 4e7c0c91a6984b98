//! The program in front of the interface: it looks a frame's addresses and ports up in the map of flow rules, and passes the frame to the socket whose rule that is
//! ([`crate::front`]).
//! An ICMP error is looked up by what it quotes, which was sent by us. All else is the kernel's (XDP_PASS), as if nobody were here: other protocols, fragments, IP
//! options and extension headers; and whatever has a VLAN tag, since no rule names a VLAN, and the same addresses on another one are others.
//! (A tag that the driver has taken off before is not seen: include/net/xdp.h, `xmo_rx_vlan_tag`, is for programs under the GPL.)
//!
//! A socket gets only what comes to its own queue of the interface, and which queue that is the interface decides (RSS): so a ring has a socket on each.

use std::os::fd::RawFd;

use ringway_stack::roce::packet::UDP_PORT;

use crate::bpf::assembler::{Assembler, FRAME, Helper, Reg, Size};
use crate::card::QUEUES_MAX;
use crate::front::LEFT;
use crate::key;
use crate::roce::Seat;

/// include/uapi/linux/bpf.h: what becomes of the frame.
const XDP_PASS: i32 = 2;

/// `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_RX_QUEUE: i16 = 16;

/// Where the key lies on the stack.
const KEY: i16 = -(key::LEN as i16);

const CONTEXT: Reg = Reg(6);
const DATA: Reg = Reg(7);
const END: Reg = Reg(8);
const QUEUE: Reg = Reg(9);

/// A value of 16 bits as a load finds it that was sent in network order.
fn wire(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// The program for these maps.
pub(crate) fn program(rules: RawFd, sockets: RawFd) -> Vec<u8> {
    let mut a = Assembler::default();
    a.copy(CONTEXT, Reg(1));
    a.load(Size::Word, DATA, CONTEXT, MD_DATA);
    a.load(Size::Word, END, CONTEXT, MD_DATA_END);
    a.load(Size::Word, QUEUE, CONTEXT, MD_RX_QUEUE);
    for at in (0..key::LEN as i16).step_by(8) {
        a.store_immediate(Size::Long, FRAME, KEY + at, 0);
    }
    ethernet(&mut a);
    ipv4(&mut a);
    ipv6(&mut a);
    icmp(&mut a);
    icmpv6(&mut a);
    look_up(&mut a, rules);
    a.jump("pass");
    a.label("found");
    // (A connection that is left to the kernel has a rule that says so.)
    a.load(Size::Word, Reg(2), Reg(0), 0);
    a.copy(Reg(1), Reg(2));
    a.and(Reg(1), LEFT as i32);
    a.jump_unless(Reg(1), 0, "pass");
    // (By a queue of so high a number, nothing is anybody's.)
    a.copy(Reg(1), QUEUE);
    a.and(Reg(1), -(QUEUES_MAX as i32));
    a.jump_unless(Reg(1), 0, "pass");
    // Where the owner's socket of that queue is, if it has one.
    a.add_register(Reg(2), QUEUE);
    a.map(Reg(1), sockets);
    // (What is to be done where the socket is gone.)
    a.set(Reg(3), XDP_PASS);
    a.call(Helper::RedirectMap);
    a.exit();
    a.label("pass");
    a.set(Reg(0), XDP_PASS);
    a.exit();
    a.finish()
}

/// Whether the frame has so many bytes.
fn needs(a: &mut Assembler, len: i32) {
    a.copy(Reg(1), DATA);
    a.add(Reg(1), len);
    a.jump_if_above(Reg(1), END, "pass");
}

/// What is tagged has another EtherType.
fn ethernet(a: &mut Assembler) {
    needs(a, 14);
    a.load(Size::Half, Reg(2), DATA, 12);
    a.jump_if(Reg(2), wire(0x0800), "ipv4");
    a.jump_if(Reg(2), wire(0x86dd), "ipv6");
    a.jump("pass");
}

/// Leaves the protocol in register 4.
fn ipv4(a: &mut Assembler) {
    a.label("ipv4");
    needs(a, 14 + 20 + 4);
    a.load(Size::Byte, Reg(3), DATA, 14);
    a.jump_unless(Reg(3), 0x45, "pass");
    a.load(Size::Half, Reg(3), DATA, 14 + 6);
    // More fragments, and an offset (RFC 791 s3.1).
    a.and(Reg(3), wire(0x3fff));
    a.jump_unless(Reg(3), 0, "pass");
    a.load(Size::Byte, Reg(4), DATA, 14 + 9);
    a.set(Reg(5), i32::from(key::FAMILY_V4));
    a.jump_if(Reg(4), libc::IPPROTO_ICMP, "icmp");
    for (from, to) in [(12, key::SOURCE), (16, key::DESTINATION), (20, key::PORTS)] {
        copy_word(a, 14 + from, to);
    }
    a.jump("transport");
}

fn copy_word(a: &mut Assembler, from: i16, to: i16) {
    a.load(Size::Word, Reg(3), DATA, from);
    a.store(Size::Word, FRAME, KEY + to, Reg(3));
}

/// The ports of a packet of ours that begins there: its source is our side.
fn swap_ports(a: &mut Assembler, at: i16) {
    for (from, to) in [(at, key::PORTS + 2), (at + 2, key::PORTS)] {
        a.load(Size::Half, Reg(3), DATA, from);
        a.store(Size::Half, FRAME, KEY + to, Reg(3));
    }
}

/// An error's type and code, and four bytes behind the checksum (RFC 792, RFC 4443 s2.1).
const ICMP_LEN: i16 = 8;

/// Destination unreachable, time exceeded, and parameter problem quote what they are about (RFC 792).
fn icmp(a: &mut Assembler) {
    const QUOTE: i16 = 14 + 20 + ICMP_LEN;
    a.label("icmp");
    needs(a, i32::from(QUOTE) + 20 + 4);
    a.load(Size::Byte, Reg(3), DATA, 14 + 20);
    for quotes in [3, 11, 12] {
        a.jump_if(Reg(3), quotes, "icmp error");
    }
    a.jump("pass");
    a.label("icmp error");
    a.load(Size::Byte, Reg(3), DATA, QUOTE);
    a.jump_unless(Reg(3), 0x45, "pass");
    a.load(Size::Byte, Reg(4), DATA, QUOTE + 9);
    copy_word(a, QUOTE + 16, key::SOURCE);
    copy_word(a, QUOTE + 12, key::DESTINATION);
    swap_ports(a, QUOTE + 20);
    a.jump("transport");
}

/// Those of ICMPv6 have types below 128 (RFC 4443 s2.1).
fn icmpv6(a: &mut Assembler) {
    const QUOTE: i16 = 14 + 40 + ICMP_LEN;
    a.label("icmpv6");
    needs(a, i32::from(QUOTE) + 40 + 4);
    a.load(Size::Byte, Reg(3), DATA, 14 + 40);
    a.and(Reg(3), 0x80);
    a.jump_unless(Reg(3), 0, "pass");
    a.load(Size::Byte, Reg(4), DATA, QUOTE + 6);
    for at in (0..16).step_by(4) {
        copy_word(a, QUOTE + 24 + at, key::SOURCE + at);
        copy_word(a, QUOTE + 8 + at, key::DESTINATION + at);
    }
    swap_ports(a, QUOTE + 40);
    a.jump("transport");
}

fn ipv6(a: &mut Assembler) {
    a.label("ipv6");
    needs(a, 14 + 40 + 4);
    a.load(Size::Byte, Reg(4), DATA, 14 + 6);
    a.set(Reg(5), i32::from(key::FAMILY_V6));
    a.jump_if(Reg(4), libc::IPPROTO_ICMPV6, "icmpv6");
    for (from, to) in [(8, key::SOURCE), (24, key::DESTINATION)] {
        (0..16).step_by(4).for_each(|at| copy_word(a, 14 + from + at, to + at));
    }
    copy_word(a, 14 + 40, key::PORTS);
    a.jump("transport");
}

/// Looks for a connection's rule (which may leave it to the kernel), then for one for this destination from anybody, then for one for this port at any address.
fn look_up(a: &mut Assembler, rules: RawFd) {
    a.label("transport");
    a.jump_if(Reg(4), libc::IPPROTO_TCP, "look up");
    a.jump_unless(Reg(4), libc::IPPROTO_UDP, "pass");
    a.label("look up");
    a.store(Size::Byte, FRAME, KEY + key::PROTOCOL, Reg(4));
    a.store(Size::Byte, FRAME, KEY + key::FAMILY, Reg(5));
    find(a, rules);
    a.store_immediate(Size::Half, FRAME, KEY + key::PORTS, 0);
    clear(a, key::SOURCE);
    roce(a, rules);
    find(a, rules);
    clear(a, key::DESTINATION);
    find(a, rules);
}

/// RoCE's packets all come to one port, and their sender's says nothing: whose they are says the queue pair, of whose number a rule has the highest bits in place of the sender's port
/// ([`crate::roce::Seat`]).
fn roce(a: &mut Assembler, rules: RawFd) {
    a.load(Size::Half, Reg(1), FRAME, KEY + key::PORTS + 2);
    a.jump_unless(Reg(1), wire(UDP_PORT), "not roce");
    a.load(Size::Byte, Reg(2), FRAME, KEY + key::FAMILY);
    a.jump_if(Reg(2), i32::from(key::FAMILY_V6), "roce v6");
    roce_behind(a, 14 + 9, 14 + 20, "roce found out");
    a.label("roce v6");
    roce_behind(a, 14 + 6, 14 + 40, "roce found out");
    a.label("roce found out");
    find(a, rules);
    a.store_immediate(Size::Byte, FRAME, KEY + key::PORTS + 1, 0);
    a.label("not roce");
}

/// Of a UDP packet (and of none that quotes one) whose header is there, and IP's protocol there.
fn roce_behind(a: &mut Assembler, protocol: i16, udp: i16, then: &'static str) {
    // (The base transport header's first eight bytes end with the destination's queue pair: IBTA spec, volume 1, s9.2.)
    a.copy(Reg(1), DATA);
    a.add(Reg(1), i32::from(udp) + 8 + 8);
    a.jump_if_above(Reg(1), END, "not roce");
    a.load(Size::Byte, Reg(2), DATA, protocol);
    a.jump_unless(Reg(2), libc::IPPROTO_UDP, "not roce");
    a.load(Size::Byte, Reg(2), DATA, udp + 8 + 5);
    a.and(Reg(2), i32::from(Seat::MASK));
    a.store(Size::Byte, FRAME, KEY + key::PORTS + 1, Reg(2));
    a.jump(then);
}

fn clear(a: &mut Assembler, address: i16) {
    a.store_immediate(Size::Long, FRAME, KEY + address, 0);
    a.store_immediate(Size::Long, FRAME, KEY + address + 8, 0);
}

fn find(a: &mut Assembler, rules: RawFd) {
    a.map(Reg(1), rules);
    a.copy(Reg(2), FRAME);
    a.add(Reg(2), KEY.into());
    a.call(Helper::MapLookupElem);
    a.jump_unless(Reg(0), 0, "found");
}
