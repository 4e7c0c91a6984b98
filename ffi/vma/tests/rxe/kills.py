"""Processes that are killed while a connection of theirs leaves a verbs device for the kernels of both hosts: `kills.py ROLE ADDRESS [WORD...]`. Whoever is left, at the other end or beside,
sees the end of it within a bounded time, and no host keeps anything of the connection."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from leave import UNPRELOADED, WANTED, connect_on_device, datagrams_sent, listener

# One process each, which is stopped or killed; and one in which only connections end.
STOPPED, KILLED_STOPPED, WITNESS, FIRST_MORTAL = 5110, 5111, 5112, 5113
# Into the middle of what takes some tens of milliseconds in a guest, a part of them.
MOMENTS = (0.005, 0.015, 0.03, 0.06)
MORTALS = range(FIRST_MORTAL, FIRST_MORTAL + 2 * len(MOMENTS))
# Where a process without the library says what its host has.
LOOKS = 4997
BOUND = 20


def signalled(pid, *steps):
    """Another process, which sends one signals, pauses and signals in turn, once a byte is written to what this returns. (The process itself would be late.)"""
    words = [f"sleep {step}" if isinstance(step, float) else f"kill -{step.name[3:]} {pid}" for step in steps]
    return subprocess.Popen(["sh", "-c", "; ".join(["read _", *words])], env=UNPRELOADED, stdin=subprocess.PIPE, bufsize=0).stdin


def ends(connection):
    """What becomes of a connection whose bytes go back: how it ends, and when."""
    start = time.monotonic()
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
        how = "end"
    except OSError as error:
        how = type(error).__name__
    connection.close()
    return f"{how} after {time.monotonic() - start:.1f} s"


def served(connection, told):
    order, *words = connection.makefile("rb", 0).readline().decode().split() or [""]
    # (One that the kernel had from the beginning, and that was closed for that.)
    if not order:
        return connection.close()
    if order == "tell":
        start = time.monotonic()
        while words[0] not in told and time.monotonic() < start + BOUND:
            time.sleep(0.1)
        connection.sendall(told.get(words[0], "nothing").encode())
        return connection.close()
    peer = str(connection.getpeername()[1])
    connection.sendall(b"!")
    if order == "die":
        threading.Timer(float(words[0]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    elif order == "stop":
        signalled(os.getpid(), 0.2, signal.SIGSTOP, float(words[0]), signal.Signals[words[1]]).write(b"\n")
    told[peer] = ends(connection)


def mortal(address, port):
    """Does to itself what is asked for on a connection, whose bytes go back, and tells of those that have ended."""
    own, told = listener(address, int(port)), {}
    while True:
        connection, _ = own.accept()
        threading.Thread(target=served, args=(connection, told), daemon=True).start()


def asks(address, port, order, wait, *steps):
    """Has a child that uses a connection, and may be killed while it leaves: signals and pauses in turn. Tells the connection's port, and what the child saw."""
    own = connect_on_device(address, int(port))
    own.sendall(order.encode() + b"\n")
    print(own.getsockname()[1], flush=True)
    try:
        assert own.recv(1) == b"!"
    except OSError as error:
        return print(f"{type(error).__name__} at once, after 0.0 s", flush=True)
    time.sleep(float(wait))
    steps = [float(step) if step[0].isdigit() else signal.Signals[step] for step in steps]
    begin = signalled(os.getpid(), *steps) if steps else None
    if os.fork() == 0:
        start, length = time.monotonic(), 20_000
        try:
            own.settimeout(None)
            own.sendall(b"c" * length)
            while length and (data := own.recv(length)):
                length -= len(data)
            how = "end" if length else "served"
        except OSError as error:
            how = type(error).__name__
        print(f"{how} after {time.monotonic() - start:.1f} s", flush=True)
        os._exit(0)
    if begin:
        begin.write(b"\n")
    os.wait()


def rows(port, peer):
    """The kernel's connections between two ports, but those that only wait for old segments: their states."""
    with open("/proc/net/tcp") as file:
        cells = [line.split() for line in file.readlines()[1:]]
    ports = [tuple(int(cell.split(":")[1], 16) for cell in row[1:3]) + (row[3],) for row in cells]
    return [state for one, other, state in ports if (one, other) == (port, peer) and state != "06"]


def is_kept(address, port):
    """Whether somebody still has it, be it bound to it and no more."""
    with open("/proc/net/tcp") as file:
        if any(f":{port:04X} " in line.split()[1] + " " for line in file.readlines()[1:]):
            return False
    with socket.socket() as own:
        try:
            own.bind((address, port))
        except OSError:
            return True
    return False


def left(address, port, peer, is_alone):
    """What a host has left of a connection, once that should be nothing. `is_alone`: nobody listens at that port, either."""
    start = time.monotonic()
    while time.monotonic() < start + BOUND:
        states = rows(port, peer)
        what = f"in state {states}" if states else "its port" if is_alone and is_kept(address, port) else ""
        if not what:
            break
        time.sleep(0.2)
    return what


def looks(address):
    own = listener(address, LOOKS)
    while True:
        connection, _ = own.accept()
        port, peer, is_alone = connection.recv(100).split()
        connection.sendall(left(address, int(port), int(peer), is_alone == b"alone").encode() or b"nothing")
        connection.close()


def asked(address, port, words):
    """What somebody answers. By the kernel: nothing is preloaded here."""
    with socket.create_connection((address, port), 20) as own:
        own.settimeout(2 * BOUND)
        own.sendall(words.encode())
        return own.recv(100).decode()


def case(name, address, port, order, wait, steps, may_be_served, is_killed):
    """`is_killed`: the process at the other end, which otherwise tells what it saw."""
    if not re.search(WANTED, name):
        return
    before, start = datagrams_sent(), time.monotonic()
    preloaded = {**os.environ, "LD_PRELOAD": os.environ["LIBRARY"], "RINGWAY_DEVICE": "rxe:rxe0"}
    words = [sys.executable, __file__, "asks", address, str(port), order, str(wait), *map(str, steps)]
    own, child = subprocess.run(words, env=preloaded, stdout=subprocess.PIPE, timeout=4 * BOUND, text=True).stdout.splitlines()
    count = datagrams_sent() - before
    there = "is killed" if is_killed else asked(address, port, f"tell {own}\n")
    here = left(os.environ["RINGWAY_VM_ADDRESS"], int(own), port, True) or "nothing"
    beyond = asked(address, LOOKS, f"{port} {own} {'alone' if is_killed else 'beside'}")
    print(f"== {name}: the child: {child}; the other end: {there}; left: {here}, {beyond}; {count} datagrams, {time.monotonic() - start:.1f} s", flush=True)
    assert count >= 3, "it was on the device"
    assert may_be_served or not child.startswith("served"), "the process is gone"
    assert float(child.split()[-2]) < BOUND, "the child waits no longer than that"
    assert is_killed or there != "nothing" and float(there.split()[-2]) < BOUND, "the other end sees the end"
    assert (here, beyond) == ("nothing", "nothing"), "something is left"


def ask(address):
    case("who asks is killed, and who is asked is stopped", address, STOPPED, "stop 4 SIGCONT", 0.7, [1.0, "SIGKILL"], False, False)
    case("who is asked is stopped, and killed", address, KILLED_STOPPED, "stop 2 SIGKILL", 0.7, [], False, True)
    mortals = iter(MORTALS)
    for moment in MOMENTS:
        at = f"after {moment * 1000:.0f} ms"
        case(f"who asks is killed {at}", address, WITNESS, "live", 0.1, [moment, "SIGKILL"], True, False)
        case(f"who is asked is killed {at}", address, next(mortals), f"die {moment}", 0.0, [], True, True)
        steps = [moment, "SIGSTOP", 1.0, "SIGKILL"]
        case(f"who asks is stopped {at}, and killed", address, WITNESS, "live", 0.1, steps, True, False)
        steps = [moment, "SIGSTOP", 1.5, "SIGCONT"]
        case(f"who asks is stopped {at}, and who follows is killed", address, next(mortals), "die 1", 0.0, steps, True, True)


ROLES = {"ask": ask, "asks": asks, "looks": looks, "mortal": mortal}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
