"""In a network namespace of its own, connects while every local port is in use towards another destination.

bind(2) then finds none, but connect(2) shares one: so must a connect that would otherwise go over the ring.
"""

import fcntl
import os
import socket
import struct

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
PORTS = range(40_000, 40_004)

# The other destination's connections are the kernel's.
ready, ready_w = os.pipe()
stop, stop_w = os.pipe()
if os.fork() == 0:
    os.environ["RINGWAY_DEVICE"] = "off"
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    with open("/proc/sys/net/ipv4/ip_local_port_range", "w", encoding="ascii") as file:
        file.write(f"{PORTS.start} {PORTS.stop - 1}")
    other = socket.create_server(("127.0.0.1", 30_001))
    connections = [socket.create_connection(("127.0.0.1", 30_001)) for _ in PORTS]
    os.write(ready_w, b"!")
    os.close(stop_w)
    os.read(stop, 1)
    os._exit(0)
os.close(ready_w)
assert os.read(ready, 1) == b"!"

listener = socket.create_server(("127.0.0.1", 30_000))
clients = [socket.create_connection(("127.0.0.1", 30_000)) for _ in PORTS]
for client in clients:
    server, peer = listener.accept()
    server.sendall(b"hello")
    client_of = next(c for c in clients if c.getsockname() == peer)
    assert client_of.recv(16) == b"hello"
    assert peer[1] in PORTS
os.close(stop_w)
os.wait()
print("equal")
