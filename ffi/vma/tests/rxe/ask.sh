#!/bin/sh
# TCP and UDP over the packet plane of the kernel's soft-RoCE, between two guests of `cargo xtask vm`: sh ask.sh PATH-OF-libvma.so, beside serve.sh in the other one. The wire between
# them has Ethernet's 1500 bytes, so a datagram has 1024, and longer frames go in two. The first case that fails ends it.
set -eu
library=$1
talk() { timeout 120 /usr/bin/python3 "$(dirname "$0")/talk.py" "$1" "$RINGWAY_VM_PEER"; }
for _ in $(seq 300); do
    if timeout 10 busybox nc "$RINGWAY_VM_PEER" 4999 < /dev/null > /dev/null 2>&1; then break; fi
    sleep 0.2
done
talk ask-by-kernel
RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library talk ask
echo "all of them"
