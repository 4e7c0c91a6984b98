"""daemon(3), then an echo server: what many classic servers do before, or after, they open their listener."""

import ctypes
import os
import socket
import sys

port, when, pidfile = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)


def listen():
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(8)
    return listener


listener = listen() if when == "after" else None
assert libc.daemon(1, 1) == 0
if listener is None:
    listener = listen()
with open(pidfile + ".new", "w", encoding="ascii") as file:
    file.write(str(os.getpid()))
os.rename(pidfile + ".new", pidfile)
connection, _ = listener.accept()
while data := connection.recv(1 << 16):
    connection.sendall(data)
connection.close()
listener.close()
