"""A peer for the cases: serves or talks, over TCP, in the ways that the cases need. Prints one line a finding."""

import hashlib
import os
import socket
import sys
import threading
import time


def receive_exactly(connection, count):
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(1 << 16, count - len(parts)))
        if not part:
            raise EOFError(f"end of stream after {len(parts)} of {count} bytes")
        parts += part
    return bytes(parts)


def listen(port):
    return listening(socket.socket(), ("0.0.0.0", port))


def listening(listener, address):
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(64)
    print("listening", flush=True)
    return listener


def echo(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def serve_echo(port, connections, host=None):
    """Echoes on as many connections, one thread each, then ends."""
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    listener = listening(socket.socket(family), (host, port)) if host else listen(port)
    threads = []
    for _ in range(connections):
        thread = threading.Thread(target=echo, args=(listener.accept()[0],))
        thread.start()
        threads.append(thread)
    listener.close()
    for thread in threads:
        thread.join()


def serve_name(port, name):
    """Says its name to whoever connects, until it is killed."""
    listener = listen(port)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(name.encode())


def serve_hold(port):
    """Accepts, says so, and then does nothing more with the connection."""
    listener = listen(port)
    connection, _ = listener.accept()
    connection.sendall(b"held")
    time.sleep(60)


def serve_digest(port):
    """Reads a stream to its end, and answers with its SHA-256."""
    listener = listen(port)
    connection, _ = listener.accept()
    digest = hashlib.sha256()
    while data := connection.recv(1 << 16):
        digest.update(data)
    connection.sendall(digest.hexdigest().encode())
    connection.close()


def ask(port):
    """Connects, and prints all that the server says."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        said = b""
        while data := connection.recv(1024):
            said += data
    print(said.decode())


def talk(port, size, host="127.0.0.1"):
    """Sends `size` random bytes to an echo server in pieces of odd lengths, and compares what returns."""
    data = os.urandom(size)
    with socket.create_connection((host, port), 5) as connection:
        at = 0
        piece = 1
        while at < size:
            sent = data[at : at + piece]
            connection.sendall(sent)
            assert receive_exactly(connection, len(sent)) == sent, f"other bytes at {at}"
            at += len(sent)
            piece = min(piece * 3 + 1, 100_000)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"", "the echo went on after the end"
    print("equal")


def send_file(port, path):
    """sendfile(2) of a whole file, then the digest that the server found."""
    with open(path, "rb") as file, socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(None)  # back to blocking: sendfile(2) itself has no timeout
        size = os.fstat(file.fileno()).st_size
        at = 0
        while at < size:
            at += os.sendfile(connection.fileno(), file.fileno(), at, size - at)
        connection.shutdown(socket.SHUT_WR)
        print(receive_exactly(connection, 64).decode())


def watch(port):
    """Connects, waits for the peer's death, and prints how it looked."""
    connection = socket.create_connection(("127.0.0.1", port), 5)
    assert receive_exactly(connection, 4) == b"held"
    print("connected", flush=True)
    # The time allowed for connecting would end the wait otherwise.
    connection.settimeout(None)
    try:
        data = connection.recv(1)
        print("end of stream" if not data else f"data {data}")
    except ConnectionResetError:
        print("reset")


def refused(port):
    """Prints whether a connection to `port` is refused."""
    try:
        socket.create_connection(("127.0.0.1", port), 5)
        print("connected")
    except ConnectionRefusedError:
        print("refused")


if __name__ == "__main__":
    call, *args = sys.argv[1:]
    globals()[call](*(int(a) if a.isdigit() else a for a in args))
