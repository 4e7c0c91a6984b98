#!/bin/sh
# TCP and UDP over AF_XDP on virtio_net, between two guests of `cargo xtask vm`: sh ask.sh PATH-OF-libvma.so PATH-OF-ringway, beside serve.sh in the other one. The first case
# that fails ends it.
set -eu
library=$1 ringway=$2
number=${RINGWAY_VM_ADDRESS##*.} peer=${RINGWAY_VM_PEER##*.}
export RINGWAY_DEVICE=xdp:$RINGWAY_VM_LINK
talk() { timeout 120 /usr/bin/python3 "$(dirname "$0")/talk.py" "$@" "$RINGWAY_VM_PEER" "fd09::$peer"; }
ours() { LD_PRELOAD=$library talk "$@"; }

ip address add "fd09::$number/64" dev "$RINGWAY_VM_LINK" nodad
talk wait
talk kernel-to-ringway
ours ringway-to-kernel
ours ringway-to-ringway
ours link-down

# While the program is in front of the interface, the kernel says who runs it, even where it says of no driver what that can do (before Linux 6.3).
LD_PRELOAD=$library timeout 60 /usr/bin/python3 "$(dirname "$0")/talk.py" hold "$RINGWAY_VM_ADDRESS" &
holder=$!
for _ in $(seq 10); do
    sleep 1
    "$ringway" doctor > /tmp/doctor
    if grep "of python3 .* is in front of it" /tmp/doctor; then break; fi
done
grep -q "^ *xdp:$RINGWAY_VM_LINK *native *virtio_net .*; interrupts are not deferred" /tmp/doctor || { cat /tmp/doctor; exit 1; }
kill $holder
echo "all of them"
