# The servers of the bench's TCP, in the other guest: sh serve.sh PATH-OF-libvma.so. The kernel's sockets have port 5101, ours 5102. They are killed with their guest.
library=$1
sockperf server --tcp -p 5101 &
RINGWAY_DEVICE=rxe:rxe0 LD_PRELOAD=$library sockperf server --tcp -p 5102 &
wait
