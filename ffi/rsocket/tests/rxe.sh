#!/bin/sh
# Rsockets of the stack's own RoCE against librdmacm's on the kernel's soft-RoCE, in a guest of `cargo xtask vm`: sh rxe.sh PATH-OF-THE-EXAMPLE-interop
# And what rping does, by connection management and verbs alone. Every byte is checked, by rstream (-T v) and rping (-V), and by the example; the first case that
# fails ends it.
set -eu
ours=$1
ip tuntap add rw0 mode tap
ip link set rw0 mtu 1500 up
sysctl -qw net.ipv6.conf.rw0.disable_ipv6=1
ip address add 10.9.1.1/24 dev rw0
ip neighbour add 10.9.1.2 lladdr 02:00:00:00:00:02 dev rw0 nud permanent
rdma link add rxe1 type rxe netdev rw0

# (Who listens is in no table that could be looked at.)
listens() { sleep 1; }

their_client() {
    echo "== rstream $* asks, ours gives back"
    "$ours" rw0 serve 10.9.1.2 &
    listens
    timeout 60 rstream -s 10.9.1.2 -I 1 -T v "$@"
    wait "$!"
}

our_client() {
    echo "== ours asks, rstream serves $2 messages of $1 bytes"
    timeout 60 rstream -b 10.9.1.1 -S "$1" -C "$2" -I 1 -T v > /dev/null &
    listens
    "$ours" rw0 ask 10.9.1.2 10.9.1.1 "$1" "$2"
    wait "$!"
}

their_pings() {
    echo "== rping asks $2 times $1 bytes, ours reads and writes them"
    "$ours" rw0 ping-serve "$2" &
    listens
    timeout 60 rping -c -a 10.9.1.2 -p 7174 -S "$1" -C "$2" -V
    wait "$!"
}

our_pings() {
    echo "== ours asks $2 times $1 bytes, rping reads and writes them"
    timeout 60 rping -s -a 10.9.1.1 -p 7174 -S "$1" > /dev/null &
    listens
    "$ours" rw0 ping-ask 10.9.1.2 10.9.1.1 "$1" "$2"
    wait "$!"
}

their_client -S 64 -C 500
their_client -S 64 -C 200 -T a
their_client -S 1000 -C 100 -T n
their_client -S 1000 -C 100 -T b
their_client -S 65536 -C 20
their_client -S 1048576 -C 2
our_client 64 500
our_client 4096 50
our_client 65536 20
our_client 1048576 2
their_pings 64 20
their_pings 65535 3
our_pings 64 20
our_pings 65535 3
echo "all of them"
