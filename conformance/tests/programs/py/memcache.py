"""memcached's text protocol, spoken by hand: values of many sizes stored and read back, counters, and a miss."""

import os
import socket
import sys

connection = socket.create_connection((sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1", int(sys.argv[1])), 5)
stream = connection.makefile("rwb")


def ask(line):
    stream.write(line.encode() + b"\r\n")
    stream.flush()
    return stream.readline()


values = {f"key{n}": os.urandom(n * n) for n in range(0, 900, 7)}
for key, value in values.items():
    stream.write(f"set {key} 5 0 {len(value)}\r\n".encode() + value + b"\r\n")
    stream.flush()
    assert stream.readline() == b"STORED\r\n", key
for key, value in values.items():
    assert ask(f"get {key}") == f"VALUE {key} 5 {len(value)}\r\n".encode(), key
    assert stream.read(len(value) + 2) == value + b"\r\n", key
    assert stream.readline() == b"END\r\n", key
assert ask("get nothing") == b"END\r\n"
stream.write(b"set n 0 0 1\r\n0\r\n")
stream.flush()
assert stream.readline() == b"STORED\r\n"
for n in range(1, 5000):
    assert ask("incr n 1") == f"{n}\r\n".encode()
connection.close()
print("equal")
