"""Run by inetd with its listener as standard input ("wait"): accepts one connection, echoes, and ends."""

import socket
import sys

listener = socket.socket(fileno=0)
connection, _ = listener.accept()
with connection:
    while data := connection.recv(1 << 16):
        connection.sendall(data)
listener.detach()
