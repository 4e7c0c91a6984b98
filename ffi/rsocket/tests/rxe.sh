#!/bin/sh
# Rsockets against librdmacm's on the kernel's soft-RoCE, in a guest of `cargo xtask vm`: sh rxe.sh PATH-OF-THE-EXAMPLE-interop PATH-OF-librsocket.so
# First the stack's own RoCE, by a TAP interface, and what rping does, by connection management and verbs alone; then librsocket.so on the kernel's device. Every byte is checked, by rstream (-T v) and rping (-V), and by the example; the first case that
# fails ends it.
set -eu
ours=$1
library=$2
ip tuntap add rw0 mode tap
ip link set rw0 mtu 1500 up
sysctl -qw net.ipv6.conf.rw0.disable_ipv6=1
ip address add 10.9.1.1/24 dev rw0
ip neighbour add 10.9.1.2 lladdr 02:00:00:00:00:02 dev rw0 nud permanent
rdma link add rxe1 type rxe netdev rw0

# (Who listens behind the interface is in no table that could be looked at.)
listens() { sleep 1; }

# Until the kernel has so many resources of a kind on a device.
until_there() {
    for _ in $(seq 300); do
        if [ "$(rdma resource show "$2" link "$1" | grep -c "$3")" -ge "$4" ]; then return; fi
        sleep 0.1
    done
    echo "there is no $2 on $1 that is $3"
    exit 1
}

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
    until_there rxe1 cm_id LISTEN 1
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
    until_there rxe1 cm_id LISTEN 1
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

# The guest's own device, and both programs on its address.
at=$RINGWAY_VM_ADDRESS
librsocket() { RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library timeout 60 "$@"; }
librdmacm() { timeout 60 "$@"; }
on_device() {
    server=$1 client=$2 program=$3
    shift 3
    echo "== $server serves, $client asks: $program $*"
    "$server" "$program" -b "$at" "$@" > /dev/null &
    until_there rxe0 cm_id LISTEN 1
    "$client" "$program" -s "$at" "$@"
    wait "$!"
}
for ends in "librsocket librdmacm" "librdmacm librsocket"; do
    on_device $ends rstream -S 64 -C 200 -I 1 -T v
    on_device $ends rstream -S 4096 -C 50 -I 1 -T v -T n -k 1
    on_device $ends rstream -S 65536 -C 10 -I 1 -T v -T b
    on_device $ends rstream -S 1048576 -C 2 -I 1 -T v -T r
    on_device $ends riostream -S 65536 -C 4 -I 1 -T v
    on_device $ends riostream -S 1000 -C 50 -I 1 -T v -i 256
done
on_device librsocket librsocket rstream -S 65536 -C 10 -I 1 -T v

echo "== the port goes down: both ends fail, and neither hangs"
librsocket rstream -b "$at" -S 64 -C 1000000 -I 1 > /dev/null 2>&1 &
server=$!
until_there rxe0 cm_id LISTEN 1
librsocket rstream -s "$at" -S 64 -C 1000000 -I 1 > /dev/null 2>&1 &
client=$!
until_there rxe0 qp "type RC state RTS" 2
ip link set "$RINGWAY_VM_LINK" down
downed=$(date +%s)
for end in "$server" "$client"; do
    # (124: the time was up.)
    if wait "$end"; then echo "one end noticed nothing"; exit 1; elif [ "$?" = 124 ]; then echo "one end hangs"; exit 1; fi
done
echo "both have failed after $(($(date +%s) - downed)) s"
echo "all of them"
