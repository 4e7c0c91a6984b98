"""multiprocessing, subprocess and socketserver with sockets. Each mode has four clients that talk to an echo, and compare."""

import multiprocessing
import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Listener
from multiprocessing.managers import BaseManager

CLIENTS = 4
SIZE = 1_000_000

fork = multiprocessing.get_context("fork")
spawn = multiprocessing.get_context("spawn")


def echo(connection):
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def talk(port, size=SIZE):
    data = os.urandom(size)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        for at in range(0, size, 50_000):
            connection.sendall(data[at : at + 50_000])
            got = bytearray()
            while len(got) < min(50_000, size - at):
                part = connection.recv(65_536)
                assert part, f"the echo ended at {at} + {len(got)}"
                got += part
            assert got == data[at : at + 50_000], f"other bytes at {at}"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"", "the echo went on after the end"


def clients(port, count=CLIENTS):
    """Processes that know nothing of this one's sockets."""
    started = [spawn.Process(target=talk, args=(port,)) for _ in range(count)]
    for process in started:
        process.start()
    return started


def joined(processes):
    for process in processes:
        process.join(30)
        assert process.exitcode == 0, f"{process} ended with {process.exitcode}"


def listener(port):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(16)
    return listening


def speak(address, blocks):
    with Client(address, authkey=b"key") as connection:
        for n in range(blocks):
            connection.send((n, bytes(50_000)))
            assert connection.recv() == (n, 50_000)


def own(port):
    with Listener(("127.0.0.1", port), backlog=16, authkey=b"key") as listening:
        # A process that forks before it ever waited for a connection leaves its listener to the child: the first one finds it on the
        # kernel, and says little.
        for blocks in (1, *(2 * CLIENTS * [20])):
            process = fork.Process(target=speak, args=(listening.address, blocks))
            process.start()
            with listening.accept() as connection:
                for _ in range(blocks):
                    n, block = connection.recv()
                    connection.send((n, len(block)))
            joined([process])


class Store:
    def __init__(self):
        self.items = {}

    def put(self, key, value):
        self.items[key] = value

    def get(self, key):
        return self.items[key]


class Manager(BaseManager):
    pass


Manager.register("Store", Store)


def use(store, number):
    for n in range(20):
        store.put((number, n), bytes([n]) * 5_000)
        assert store.get((number, n)) == bytes([n]) * 5_000


def manager(port):
    with Manager(address=("127.0.0.1", port), authkey=b"key", ctx=spawn) as managing:
        store = managing.Store()
        started = [spawn.Process(target=use, args=(store, n)) for n in range(CLIENTS)]
        for process in started:
            process.start()
        joined(started)


def serve_for_ever(listening):
    while True:
        echo(listening.accept()[0])


def serve_from_now_on(listening, ready):
    # Who asks whether anybody waits has said that he will accept. A client that comes before any worker has is the kernel's.
    select.select([listening], [], [], 0)
    ready.release()
    serve_for_ever(listening)


def prefork(port):
    listening = listener(port)
    ready = fork.Semaphore(0)
    # (Daemons, which end with this process: what goes wrong here is told at once, and not waited for at its exit.)
    workers = [fork.Process(target=serve_from_now_on, args=(listening, ready), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        assert ready.acquire(timeout=30), "a worker does not begin"
    # One at a time: a worker that serves one client leaves the next to the others, by way of the kernel.
    for _ in range(2 * CLIENTS):
        joined(clients(port, 1))
    for worker in workers:
        worker.terminate()
        worker.join(10)


def forked(port):
    listening = listener(port)
    started = clients(port)
    children = []
    for _ in started:
        connection, _ = listening.accept()
        child = fork.Process(target=echo, args=(connection,))
        child.start()
        connection.close()
        children.append(child)
    joined(started + children)


def accept_and_leave(listening):
    connection, _ = listening.accept()
    if os.fork() == 0:
        # Wait until the parent is gone.
        while os.getppid() != 1 and os.getppid() == PARENT:
            pass
        echo(connection)
    os._exit(0)


PARENT = 0


def orphaned(port):
    listening = listener(port)
    started = clients(port, 1)
    child = os.fork()
    if child == 0:
        global PARENT
        PARENT = os.getpid()
        accept_and_leave(listening)
    assert os.waitpid(child, 0)[1] == 0
    joined(started)


def both(port):
    """Parent and child write whole records, which may come in any order."""
    listening = listener(port)
    client = socket.create_connection(("127.0.0.1", port), 10)
    connection, _ = listening.accept()
    child = os.fork()
    letter = b"c" if child == 0 else b"p"
    for _ in range(250):
        connection.sendall(letter * 2_000)
    if child == 0:
        os._exit(0)
    connection.shutdown(socket.SHUT_WR) if os.waitpid(child, 0)[1] == 0 else None
    got = bytearray()
    while data := client.recv(1 << 16):
        got += data
    assert got.count(b"c") == got.count(b"p") == 500_000 and len(got) == 1_000_000


def take(pipe):
    while (connection := pipe.recv()) is not None:
        echo(connection)


def sent(port):
    listening = listener(port)
    pipe, end = fork.Pipe()
    worker = fork.Process(target=take, args=(end,))
    worker.start()
    started = clients(port)
    for _ in started:
        connection, _ = listening.accept()
        pipe.send(connection)
        connection.close()
    joined(started)
    pipe.send(None)
    joined([worker])


def handed_to(port, program):
    listening = listener(port)
    started = clients(port)
    children = []
    for _ in started:
        connection, _ = listening.accept()
        children.append(program(connection))
        connection.close()
    joined(started)
    assert [child.wait(10) for child in children] == [0] * CLIENTS


def stdio(port):
    handed_to(port, lambda connection: subprocess.Popen(["/bin/cat"], stdin=connection, stdout=connection))


def pass_fds(port):
    def program(connection):
        script = f"import socket, sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        script += f"import processes; processes.echo(socket.socket(fileno={connection.fileno()}))"
        return subprocess.Popen([sys.executable, "-c", script], pass_fds=[connection.fileno()])

    handed_to(port, program)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


def serve(port, kind):
    kind.allow_reuse_address = True
    with kind(("127.0.0.1", port), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        joined(clients(port))
        server.shutdown()
        thread.join()


def threading_(port):
    serve(port, socketserver.ThreadingTCPServer)


def forking(port):
    serve(port, socketserver.ForkingTCPServer)


if __name__ == "__main__":
    signal.alarm(50)
    mode, port = sys.argv[1], int(sys.argv[2])
    {"threading": threading_}.get(mode, globals().get(mode))(port)
    print("equal")
