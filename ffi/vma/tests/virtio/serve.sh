# The servers of ask.sh, in the other guest: sh serve.sh PATH-OF-libvma.so. They are killed with their guest.
library=$1 number=${RINGWAY_VM_ADDRESS##*.}
talk() { /usr/bin/python3 "$(dirname "$0")/talk.py" "$1" "$RINGWAY_VM_ADDRESS" "fd09::$number"; }

ip address add "fd09::$number/64" dev "$RINGWAY_VM_LINK" nodad
RINGWAY_DEVICE=xdp:$RINGWAY_VM_LINK LD_PRELOAD=$library talk serve &
# (The asker waits for the kernel's services, which begin once the others are there.)
until busybox netstat -ltn | grep -q ":6000"; do sleep 0.1; done
talk kernels
