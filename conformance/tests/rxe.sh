#!/bin/sh
# Tests that soft-RoCE alone can show, in a guest of `cargo xtask vm`: sh rxe.sh TEST-BINARIES... -- ARGUMENTS... The device has two addresses, as two hosts would have one each.
# The first binary that fails ends it.
set -eu
RINGWAY_TEST_SECOND=${RINGWAY_VM_ADDRESS%.*}.200
# (Where cargo would say that the workspace is.)
INSTA_WORKSPACE_ROOT=$PWD
export RINGWAY_TEST_SECOND INSTA_WORKSPACE_ROOT
ip address add "$RINGWAY_TEST_SECOND/24" dev "$RINGWAY_VM_LINK"
binaries=
while [ "$1" != -- ]; do
    binaries="$binaries $1"
    shift
done
shift
for binary in $binaries; do
    "$binary" --ignored --color=never --test-threads=1 "$@"
done
