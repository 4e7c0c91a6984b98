#!/bin/sh
# Connections on the packet plane of the kernel's soft-RoCE that leave it for the kernels of both hosts, since another process is to have them, between two guests of `cargo xtask vm`:
# sh leave-ask.sh PATH-OF-libvma.so [EXPRESSION], beside leave-serve.sh in the other one; with a regular expression, those cases in whose names it is. The first case that fails ends it.
set -eu
library=$1
# What follows takes 550 seconds at the most, of the guest's 900.
end=$(($(date +%s) + 220))
until timeout 10 busybox nc "$RINGWAY_VM_PEER" 4999 < /dev/null > /dev/null 2>&1; do
    if [ "$(date +%s)" -ge "$end" ]; then
        echo "the servers in the other guest are not there after 220 seconds" >&2
        exit 1
    fi
    sleep 0.2
done
here=$(dirname "$0")
export WANTED="${2:-}"
RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library timeout 250 /usr/bin/python3 "$here/leave.py" ask "$RINGWAY_VM_PEER"
LIBRARY=$library timeout 300 /usr/bin/python3 "$here/kills.py" ask "$RINGWAY_VM_PEER"
echo "all of them"
