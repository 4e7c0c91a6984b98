"""Holds a connection to an echo server while it runs helper programs: none of them may disturb it."""

import os
import socket
import subprocess
import sys

port = int(sys.argv[1])
connection = socket.create_connection(("127.0.0.1", port), 5)


def check(what):
    data = os.urandom(5000)
    connection.sendall(data)
    got = b""
    while len(got) < len(data):
        part = connection.recv(len(data) - len(got))
        assert part, f"the connection ended after {what}"
        got += part
    assert got == data, f"other bytes after {what}"


check("connecting")
for n in range(20):
    # posix_spawn or vfork, and exec; the helper has the library preloaded, too.
    assert subprocess.run(["/bin/echo", str(n)], capture_output=True, check=True).stdout == f"{n}\n".encode()
    check("a helper by exec")
for n in range(5):
    assert subprocess.run("cat | wc -c", shell=True, input=b"x" * 100_000, capture_output=True, check=True).stdout.strip() == b"100000"
    check("a shell with a pipe")
for n in range(5):
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    check("a fork that ended at once")
for n in range(5):
    child = os.fork()
    if child == 0:
        connection.close()
        sys.exit(0)  # runs the child's own exit handlers
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check("a fork that closed its copy and exited")
for n in range(3):
    # A helper that uses sockets itself, between its own two ends, while we wait.
    script = os.path.join(os.path.dirname(__file__), "own_listener.py")
    assert subprocess.run([sys.executable, script], capture_output=True, check=True).stdout == b"equal\n"
    check("a helper with sockets of its own")
connection.close()
print("equal")
