#!/bin/busybox sh
# The guest's first process: the host's root, beneath a layer of its own, and the command in there. Outputs: ttyS0 is the kernel's and this script's, ttyS1 the
# command's, ttyS2 has its exit status.
for applet in mkdir mount insmod cp cut chroot sync poweroff; do
    eval "$applet() { /bin/busybox $applet \"\$@\"; }"
done
mkdir -p /dev /proc /sys /lower /upper /guest
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do
    insmod "/modules/$module" || echo "the module $module cannot be loaded"
done < /modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 hostroot /lower || echo "there is no root of the host"
mount -t tmpfs upper /upper
mkdir /upper/changes /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/changes,workdir=/upper/work overlay /guest
for folder in dev proc sys; do
    mount --move "/$folder" "/guest/$folder"
done
# (Not over /tmp: a checkout may lie there.)
mount -t tmpfs run /guest/run
mkdir -p /guest/dev/shm /guest/dev/pts
mount -t tmpfs shm /guest/dev/shm
mount -t devpts pts /guest/dev/pts
mkdir /guest/run/vm
cp /environment /setup /command /guest/run/vm/
echo "booted after $(cut -d' ' -f1 /guest/proc/uptime) s"
chroot /guest /bin/sh /run/vm/setup
echo "$?" > /guest/dev/ttyS2
sync
poweroff -f
