# In the guest's root: an RDMA device on an interface, and the command, whose exit status is this script's.
. /run/vm/environment
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
stty -F /dev/ttyS1 raw -echo
ulimit -l unlimited
ip link set lo up
# A datagram of rxe's is as long as the IB MTU and its headers: 4096 bytes fit. Two guests have Ethernet's.
[ "$RINGWAY_VM_LINK" = eth0 ] || ip link add "$RINGWAY_VM_LINK" mtu 4200 type dummy
ip link set "$RINGWAY_VM_LINK" up
ip address add "$RINGWAY_VM_ADDRESS/24" dev "$RINGWAY_VM_LINK"
rdma link add rxe0 type rxe netdev "$RINGWAY_VM_LINK" || echo "there is no rxe device"
cd "$RINGWAY_VM_FOLDER" || exit
exec sh /run/vm/command < /dev/null > /dev/ttyS1 2>&1
