"""One end of a conversation between two guests: `talk.py ROLE ADDRESS...`, of which one is of IPv4 and one of IPv6. Every byte is checked, and whose it was: what comes by
a ring is not counted by the kernel."""

import os
import select
import socket
import subprocess
import sys
import threading
import time

STREAM, DATAGRAMS, KERNELS_STREAM, KERNELS_DATAGRAMS, COUNTS = range(6000, 6005)
SIZES = [1, 100, 1000, 1452]
LENGTH = 1 << 20
# Of what the kernel has received, what is somebody else's at the most (the question about its counters, and its own control messages), and what is a case's at the least.
LITTLE, MUCH = 60, 100


def pattern(length, seed=0):
    block = bytes((i * 7 + seed) & 255 for i in range(251))
    return (block * (length // 251 + 1))[:length]


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve_streams(address, port):
    own = socket.create_server((address, port), family=family(address))
    while True:
        connection, _ = own.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()


def echo(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def serve_datagrams(address, port):
    own = socket.socket(family(address), socket.SOCK_DGRAM)
    own.bind((address, port))
    while True:
        data, peer = own.recvfrom(65536)
        own.sendto(data, peer)


def serve(addresses, stream, datagrams, last):
    for address in addresses:
        for service, port in [(serve_datagrams, datagrams), (serve_streams, stream)]:
            threading.Thread(target=service, args=(address, port), daemon=True).start()
    last()


def serve_counts(address):
    own = socket.create_server((address, COUNTS))
    while True:
        connection, _ = own.accept()
        with connection:
            connection.sendall(str(received_by_kernel()).encode())


def received_by_kernel():
    """Segments of TCP, and datagrams of UDP, over either family."""
    count = 0
    with open("/proc/net/snmp") as file:
        lines = [line.split() for line in file]
    for names, values in zip(lines[::2], lines[1::2]):
        count += sum(int(value) for name, value in zip(names, values) if (names[0], name) in [("Tcp:", "InSegs"), ("Udp:", "InDatagrams")])
    with open("/proc/net/snmp6") as file:
        return count + sum(int(line.split()[1]) for line in file if line.startswith("Udp6InDatagrams"))


def received_by_peers_kernel(address):
    with socket.create_connection((address, COUNTS), 10) as connection:
        return int(connection.makefile().read())


def wait(addresses):
    for _ in range(300):
        try:
            return received_by_peers_kernel(addresses[0])
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the other guest does not answer")


def case(name, addresses, ports, by_kernel):
    """Both kinds over both families. `by_kernel`: whether what comes is the kernel's, on this side, and on the other."""
    for address in addresses:
        before, start = [received_by_kernel(), received_by_peers_kernel(addresses[0])], time.monotonic()
        datagrams(address, ports[1])
        stream(address, ports[0])
        after = [received_by_kernel(), received_by_peers_kernel(addresses[0])]
        counts = [after - before for before, after in zip(before, after)]
        print(f"== {name}, {address}: the kernels received {counts}, {time.monotonic() - start:.1f} s", flush=True)
        for count, is_kernels in zip(counts, by_kernel):
            assert count >= MUCH if is_kernels else count <= LITTLE, "somebody else carried it"


def datagrams(address, port):
    own = socket.socket(family(address), socket.SOCK_DGRAM)
    own.settimeout(10)
    for seed in range(4):
        for size in SIZES:
            sent = pattern(size, seed)
            own.sendto(sent, (address, port))
            got, _ = own.recvfrom(65536)
            assert got == sent, f"{len(got)} bytes came back for {size}"


def stream(address, port):
    with socket.create_connection((address, port), 10) as own:
        exchange(own, pattern(LENGTH))
        own.shutdown(socket.SHUT_WR)
        assert own.recv(1) == b"", "nothing is behind it"


def exchange(own, data):
    """What is sent comes back, while both are under way."""
    own.setblocking(False)
    got, at, end = bytearray(), 0, time.monotonic() + 60
    while len(got) < len(data):
        assert time.monotonic() < end, f"{at} bytes were sent, and {len(got)} came back"
        readable, writable, _ = select.select([own], [own] if at < len(data) else [], [], 10)
        if writable:
            at += own.send(data[at : at + 65536])
        if readable:
            got += own.recv(65536)
    assert got == data, "a stream comes back as it went"
    own.settimeout(20)


def link_down(addresses):
    """Connections outlive an interface that is set down and up, which has the driver make its queues anew. (Addresses of IPv6 do not.)"""
    link = os.environ["RINGWAY_VM_LINK"]
    environment = {"PATH": os.environ["PATH"]}
    for port in [STREAM, KERNELS_STREAM]:
        with socket.create_connection((addresses[0], port), 10) as own:
            exchange(own, pattern(1000))
            start = time.monotonic()
            for state in ["down", "up"]:
                subprocess.run(["ip", "link", "set", link, state], env=environment, check=True)
                time.sleep(0.5)
            up = time.monotonic()
            exchange(own, pattern(1000, 1))
            heard = time.monotonic()
            exchange(own, pattern(LENGTH))
            print(f"== the link is set down and up: {up - start:.1f} s, and {heard - up:.1f} s until the peer is heard", flush=True)


def hold(addresses):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind((addresses[0], DATAGRAMS))
    time.sleep(60)


ROLES = {
    "serve": lambda addresses: serve(addresses, STREAM, DATAGRAMS, lambda: time.sleep(1 << 20)),
    "kernels": lambda addresses: serve(addresses, KERNELS_STREAM, KERNELS_DATAGRAMS, lambda: serve_counts(addresses[0])),
    "wait": wait,
    "kernel-to-ringway": lambda addresses: case("the kernel to Ringway", addresses, (STREAM, DATAGRAMS), (True, False)),
    "ringway-to-kernel": lambda addresses: case("Ringway to the kernel", addresses, (KERNELS_STREAM, KERNELS_DATAGRAMS), (False, True)),
    "ringway-to-ringway": lambda addresses: case("Ringway to Ringway", addresses, (STREAM, DATAGRAMS), (False, False)),
    "link-down": link_down,
    "hold": hold,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2:])
