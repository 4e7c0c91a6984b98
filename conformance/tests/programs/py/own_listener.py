"""Connects to its own listener, all in one thread: blocking, non-blocking, and with poll. Then UDP to itself."""

import os
import select
import socket

ROUNDS = 200
BLOCK = os.urandom(32_000)


def exchange(a, b):
    for here, there in ((a, b), (b, a)):
        here.sendall(BLOCK)
        got = bytearray()
        while len(got) < len(BLOCK):
            got += there.recv(len(BLOCK) - len(got))
        assert got == BLOCK


listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(8)
address = listener.getsockname()

for _ in range(ROUNDS):
    client = socket.socket()
    client.connect(address)
    server, peer = listener.accept()
    assert peer == client.getsockname() and server.getsockname() == client.getpeername() == address
    exchange(client, server)
    client.close()
    assert server.recv(1) == b""
    server.close()

listener.setblocking(False)
for _ in range(ROUNDS):
    client = socket.socket()
    client.setblocking(False)
    assert client.connect_ex(address) in (0, 115)  # EINPROGRESS
    assert select.select([listener], [], [], 5)[0]
    server, _ = listener.accept()
    poll = select.poll()
    poll.register(client, select.POLLOUT)
    assert poll.poll(5000) == [(client.fileno(), select.POLLOUT)]
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    client.setblocking(True)
    server.setblocking(True)
    exchange(client, server)
    server.close()
    assert client.recv(1) == b""
    client.close()

me = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
me.bind(("127.0.0.1", 0))
for n in range(ROUNDS):
    me.sendto(BLOCK[:n], me.getsockname())
    assert me.recvfrom(65536) == (BLOCK[:n], me.getsockname())
print("equal")
