"""One end of a conversation between two guests: `talk.py ROLE ADDRESS`. Every byte is checked."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time

UDP, TCP, SECOND, KERNELS, NOBODY, IDLE, KILLED, ENDS, WITNESS = range(5000, 5009)
SIZES = [1, 100, 1000, 1400, 1472]
LONG_SIZES = [2000, 8000, 60000]
STREAM = 1 << 18


def pattern(length, seed=0):
    return bytes((i * 7 + seed) & 255 for i in range(length))


def listener(address, port):
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.bind((address, port))
    own.listen(8)
    return own


def echo_stream(connection):
    total = 0
    while data := connection.recv(65536):
        connection.sendall(data)
        total += len(data)
    connection.close()
    return total


def serve_streams(address, port):
    own = listener(address, port)
    print(f"listens at {port}", flush=True)
    while True:
        connection, _ = own.accept()
        print(f"{port}: {echo_stream(connection)} bytes", flush=True)


def serve_datagrams(address):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind((address, UDP))
    print(f"receives at {UDP}", flush=True)
    while True:
        data, peer = own.recvfrom(65536)
        own.sendto(data, peer)


def serve_idle(address):
    connection, _ = listener(address, IDLE).accept()
    connection.recv(1)


def serve_killed(address):
    """Until one of them says so."""
    own = listener(address, KILLED)

    def wait(connection):
        connection.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    while True:
        connection, _ = own.accept()
        threading.Thread(target=wait, args=[connection], daemon=True).start()


def serve_ends(address):
    """Says something, and ends with the connection open."""
    connection, _ = listener(address, ENDS).accept()
    connection.recv(1)
    connection.sendall(b"bye")


def serve_witness(address):
    """Tells the second one what became of the first one."""
    own = listener(address, WITNESS)
    (victim, _), (asker, _) = own.accept(), own.accept()
    victim.settimeout(30)
    asker.recv(1)
    try:
        said = repr(victim.recv(1))
    except OSError as error:
        said = errno.errorcode[error.errno]
    asker.sendall(said.encode())


def serve(address):
    others = [lambda: serve_datagrams(address), lambda: serve_idle(address)]
    for other in others:
        threading.Thread(target=other, daemon=True).start()
    serve_streams(address, TCP)


def datagrams_sent():
    """By the device, in all."""
    with open("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts") as file:
        return int(file.read())


def case(name, least, most, run):
    """What it does, in datagrams of the device: so many at the least, and no more than that. (Questions by SIDR are datagrams, too.)"""
    before, start = datagrams_sent(), time.monotonic()
    run()
    count = datagrams_sent() - before
    print(f"== {name}: {count} datagrams, {time.monotonic() - start:.1f} s", flush=True)
    assert least <= count <= most, f"not {least} to {most}"


def ask(address):
    many = 1 << 30
    case("datagrams", 30, many, lambda: datagrams(address, SIZES, 4))
    # What is longer than the MTU is the kernel's, in fragments.
    case("long datagrams, by the kernel", 0, 20, lambda: datagrams(address, LONG_SIZES, 1))
    case("a stream", 300, many, lambda: stream(address, TCP, pattern(STREAM)))
    second = subprocess.Popen([sys.executable, __file__, "ask-second", address])
    case("two processes, to two processes at one address", 600, many, lambda: (stream(address, TCP, pattern(STREAM)), second.wait()))
    assert second.returncode == 0, "the other one failed"
    case("who has no such device", 0, 20, lambda: stream(address, KERNELS, b"short"))
    case("nobody", 0, 20, lambda: nobody(address))
    killed(address)
    victim(address)
    ends(address)
    idle(address)


def datagrams(address, sizes, count):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.settimeout(10)
    for n in range(count):
        for size in sizes:
            sent = pattern(size, n)
            own.sendto(sent, (address, UDP))
            got, _ = own.recvfrom(65536)
            assert got == sent, f"{len(got)} bytes came back for {size}"


def stream(address, port, data):
    own = socket.create_connection((address, port), 10)
    own.settimeout(20)
    got, at = bytearray(), 0
    while len(got) < len(data):
        if at < len(data):
            at += own.send(data[at : at + 16384])
        got += own.recv(65536)
    own.shutdown(socket.SHUT_WR)
    assert own.recv(1) == b"" and got == data, "a stream comes back as it went"


def nobody(address):
    start = time.monotonic()
    try:
        socket.create_connection((address, NOBODY), 10)
    except ConnectionRefusedError:
        assert time.monotonic() - start < 6, "a refusal takes no time"
        return
    raise AssertionError("nobody listens there")


def killed(address):
    """A process is killed: each of its connections is reset, though nothing is sent by it, and those of another process at its address go on."""
    own = [socket.create_connection((address, KILLED), 10) for _ in range(3)]
    other = socket.create_connection((address, TCP), 10)
    time.sleep(0.5)
    start = time.monotonic()
    own[0].sendall(b"k")
    for connection in own:
        connection.settimeout(30)
        try:
            raise AssertionError(f"who was killed said {connection.recv(1)}")
        except ConnectionResetError:
            pass
    took = time.monotonic() - start
    print(f"== a process is killed: its connections are reset after {took:.2f} s", flush=True)
    assert took < 5, "of those that wait, no timer would tell so soon"
    other.sendall(b"on")
    other.settimeout(10)
    assert other.recv(2) == b"on", "the other process goes on"
    try:
        raise AssertionError(f"nobody listens there any more: {socket.create_connection((address, KILLED), 10)}")
    except ConnectionRefusedError:
        pass


def victim(address):
    """The same of who has asked."""
    own = subprocess.Popen([sys.executable, __file__, "ask-victim", address], stdout=subprocess.PIPE)
    own.stdout.readline()
    witness = socket.create_connection((address, WITNESS), 10)
    witness.settimeout(30)
    time.sleep(0.5)
    witness.sendall(b"?")
    start = time.monotonic()
    own.kill()
    said, took = witness.recv(100), time.monotonic() - start
    print(f"== who has asked is killed: {said.decode()} after {took:.2f} s", flush=True)
    assert said == b"ECONNRESET" and took < 5, "of those that wait, no timer would tell so soon"


def ask_victim(address):
    _connection = socket.create_connection((address, WITNESS), 10)
    print("connected", flush=True)
    time.sleep(60)


def ends(address):
    """A program that ends is none that is killed: its stream ends in order."""
    own = socket.create_connection((address, ENDS), 10)
    own.settimeout(30)
    own.sendall(b"?")
    time.sleep(3)
    got = [own.recv(8), own.recv(8), own.recv(8)]
    print(f"== a program ends: {got}", flush=True)
    assert got == [b"bye", b"", b""], "a stream ends as it was ended"


def idle(address):
    """The device is removed beneath a connection: whoever waits hears of it. (Within a second by its own clock; an emulated machine takes longer to start a program.)"""
    own = socket.create_connection((address, IDLE), 10)
    own.settimeout(30)
    environment = {"PATH": os.environ["PATH"]}
    subprocess.Popen(["sh", "-c", "sleep 1; rdma link delete rxe0"], env=environment)
    start = time.monotonic()
    try:
        own.recv(1)
        raise AssertionError("a device that is gone gave something")
    except TimeoutError as error:
        raise AssertionError("nobody heard of the device's end") from error
    except OSError as error:
        took = time.monotonic() - start
        assert error.errno == errno.ENETDOWN and took < 15, f"{error}, after {took} s"
        print(f"== the device is removed: {error}, {took - 1:.1f} s after that was asked for", flush=True)


ROLES = {
    "serve": serve,
    "second": lambda address: serve_streams(address, SECOND),
    "killed": serve_killed,
    "ends": serve_ends,
    "witness": serve_witness,
    "kernels": lambda address: serve_streams(address, KERNELS),
    "ask": ask,
    "ask-second": lambda address: stream(address, SECOND, pattern(STREAM, 3)),
    "ask-victim": ask_victim,
    "ask-by-kernel": lambda address: case("a stream by the kernel, to who has a device", 0, 0, lambda: stream(address, TCP, b"short")),
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2])
