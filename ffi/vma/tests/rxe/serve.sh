# The servers of ask.sh, in the other guest: sh serve.sh PATH-OF-libvma.so. They are killed with their guest.
library=$1
talk() { /usr/bin/python3 "$(dirname "$0")/talk.py" "$1" "$RINGWAY_VM_ADDRESS" & }
ours() { RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library talk "$1"; }
ours serve
for role in second killed ends witness; do ours $role; done
talk kernels
# Once the seven services are there, and the kernel's listener, the asker may begin: it looks for this port.
listeners() { rdma resource show cm_id link rxe0 | grep -c LISTEN; }
for _ in $(seq 1200); do
    if [ "$(listeners)" -ge 7 ] && busybox netstat -ltn | grep -q :5003; then break; fi
    sleep 0.1
done
rdma resource show cm_id link rxe0
while true; do busybox nc -l -p 4999 < /dev/null > /dev/null; done
