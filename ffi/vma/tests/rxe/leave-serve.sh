# The servers of leave-ask.sh, in the other guest: sh leave-serve.sh PATH-OF-libvma.so. They are killed with their guest.
library=$1
talk() { RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library /usr/bin/python3 "$(dirname "$0")/leave.py" "$1" "$RINGWAY_VM_ADDRESS" & }
for role in forks inetd execs passes middle plain stopped ended; do talk $role; done
# One that may not use TCP_REPAIR.
setpriv --bounding-set=-net_admin /usr/bin/env RINGWAY_DEVICE=rxe:rxe0 "LD_PRELOAD=$library" \
    /usr/bin/python3 "$(dirname "$0")/leave.py" silent "$RINGWAY_VM_ADDRESS" &
# Those that are killed in the middle of it, and what this host has left then.
kills=$(dirname "$0")/kills.py
for port in $(seq 5110 5120); do
    RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library /usr/bin/python3 "$kills" mortal "$RINGWAY_VM_ADDRESS" "$port" &
done
/usr/bin/python3 "$kills" looks "$RINGWAY_VM_ADDRESS" &
# Once the services are there, the asker may begin: it looks for this port.
listeners() { rdma resource show cm_id link rxe0 | grep -c LISTEN; }
end=$(($(date +%s) + 200))
until [ "$(listeners)" -ge 20 ]; do
    if [ "$(date +%s)" -ge "$end" ]; then
        echo "of 20 services, $(listeners) are there after 200 seconds" >&2
        rdma resource show cm_id link rxe0
        exit 1
    fi
    sleep 0.1
done
rdma resource show cm_id link rxe0
while true; do busybox nc -l -p 4999 < /dev/null > /dev/null; done
