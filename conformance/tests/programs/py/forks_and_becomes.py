"""forks_and_becomes.py PORT NEXT DIRECTORY: answers three requests, each by a child, and becomes an http.server of the directory at the port NEXT."""

import os
import socket
import sys

port, following, directory = int(sys.argv[1]), sys.argv[2], sys.argv[3]
listener = socket.create_server(("127.0.0.1", port))
for _ in range(3):
    connection, _ = listener.accept()
    child = os.fork()
    if child == 0:
        while b"\r\n\r\n" not in connection.recv(4096):
            pass
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 12\r\n\r\nfrom a child")
        connection.close()
        os._exit(0)
    connection.close()
    os.waitpid(child, 0)
listener.close()
os.execv(sys.executable, [sys.executable, "-m", "http.server", following, "--bind", "127.0.0.1", "--directory", directory])
