"""One end of a conversation between two guests, of connections that leave a verbs device for the kernel: `leave.py ROLE ADDRESS`. Every byte is checked."""

import array
import ctypes
import hashlib
import mmap
import os
import re
import resource
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time

FORKS, INETD, EXECS, PASSES, MIDDLE, PLAIN, SILENT, STOPPED, ENDED = range(5100, 5109)
LEN = 1 << 18
LIBC = ctypes.CDLL(None)
# Of the cases, those in whose names this is: a regular expression.
WANTED = os.environ.get("WANTED", "")
UNPRELOADED = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}


def pattern(length, seed=0):
    return hashlib.shake_128(bytes([seed])).digest(length)


def listener(address, port, backlog=16):
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.bind((address, port))
    own.listen(backlog)
    return own


def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        echo(self.request)


class Forking(socketserver.ForkingTCPServer):
    allow_reuse_address = True
    request_queue_size = 32


def forks(address):
    """A child for each connection, which the parent closes: Python's own."""
    with Forking((address, FORKS), Echo) as server:
        server.serve_forever()


def inetd(address):
    """A program for each connection, which has it as its standard input and output, and nothing of ours."""
    own = listener(address, INETD)
    while True:
        connection, _ = own.accept()
        subprocess.Popen(["cat"], stdin=connection, stdout=connection, env=UNPRELOADED)
        connection.close()


def execs(address):
    """The process itself becomes another program, once it has read something."""
    connection, _ = listener(address, EXECS).accept()
    assert connection.recv(5, socket.MSG_WAITALL) == b"first"
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    os.execve("/bin/cat", ["cat"], UNPRELOADED)


RECEIVER = """
import array, socket
own = socket.socket(fileno=0)
_, rights, _, _ = own.recvmsg(1, 64)
fds = array.array("i", rights[0][2])
connection = socket.socket(fileno=fds[0])
while data := connection.recv(65536):
    connection.sendall(data)
"""


def passes(address):
    """To a process that has nothing of ours, by SCM_RIGHTS."""
    connection, _ = listener(address, PASSES).accept()
    ours, theirs = socket.socketpair()
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdin=theirs, env=UNPRELOADED)
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
    connection.close()
    receiver.wait()


def middle(address):
    """The parent reads a part of a stream that goes on, writes more than the peer reads, and a child goes on with both."""
    connection, _ = listener(address, MIDDLE).accept()
    first = connection.recv(100_000, socket.MSG_WAITALL)
    sent = pattern(LEN, 7)
    connection.setblocking(False)
    at = connection.send(sent)
    connection.setblocking(True)
    child = os.fork()
    if child == 0:
        writer = threading.Thread(target=connection.sendall, args=[sent[at:]])
        writer.start()
        read = hashlib.sha256(first)
        while data := connection.recv(65536):
            read.update(data)
        writer.join()
        connection.sendall(read.digest())
        os._exit(0)
    connection.close()
    os.waitpid(child, 0)


def plain(address, port):
    """A server without a child of its own."""
    own = listener(address, port)
    while True:
        connection, _ = own.accept()
        threading.Thread(target=echo, args=[connection], daemon=True).start()


def stopped(address):
    """For twelve seconds, as soon as it is told so."""
    own = listener(address, STOPPED)
    connection, _ = own.accept()
    assert connection.recv(1) == b"s"
    subprocess.Popen(["sh", "-c", f"sleep 12; kill -CONT {os.getpid()}"], env=UNPRELOADED)
    os.kill(os.getpid(), signal.SIGSTOP)
    echo(connection)


def ended(address):
    """Its stream has ended when a child goes on with the other direction; who asks next is told what that one has read."""
    own = listener(address, ENDED)
    while True:
        connection, _ = own.accept()
        assert connection.recv(1) == b"?"
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.5)
        reading, writing = os.pipe()
        if os.fork() == 0:
            read = b"".join(iter(lambda: connection.recv(65536), b""))
            os.write(writing, hashlib.sha256(read).digest())
            os._exit(0)
        connection.close()
        asker, _ = own.accept()
        asker.sendall(os.read(reading, 32))
        asker.close()


def datagrams_sent():
    """By the device, in all."""
    with open("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts") as file:
        return int(file.read())


def case(name, least, most, run):
    """What it does, in datagrams of the device: so many at the least, and no more than that."""
    if not re.search(WANTED, name):
        return
    before, start = datagrams_sent(), time.monotonic()
    run()
    count = datagrams_sent() - before
    print(f"== {name}: {count} datagrams, {time.monotonic() - start:.1f} s", flush=True)
    assert least <= count <= most, f"not {least} to {most}"


def connect(address, port):
    own = socket.create_connection((address, port), 20)
    own.settimeout(60)
    return own


def echoes(own, data, ends=True):
    got, at = bytearray(), 0
    while len(got) < len(data):
        if at < len(data):
            at += own.send(data[at : at + 16384])
        more = own.recv(65536)
        assert more, f"the end after {len(got)} of {len(data)} bytes"
        got += more
    assert got == data, "a stream comes back as it went"
    if ends:
        own.shutdown(socket.SHUT_WR)
        assert own.recv(1) == b"", "and ends"


def one(address, port, seed=0, first=b""):
    own = connect(address, port)
    own.sendall(first)
    echoes(own, pattern(LEN, seed))


def together(address, port, count):
    failed = []

    def run(seed):
        try:
            one(address, port, seed)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=[seed]) for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def middle_of_stream(address):
    own = connect(address, MIDDLE)
    sent, got = pattern(4 << 20, 3), bytearray()
    writer = threading.Thread(target=lambda: (own.sendall(sent), own.shutdown(socket.SHUT_WR)))
    writer.start()
    time.sleep(1)
    while data := own.recv(65536):
        got += data
    writer.join()
    assert got == pattern(LEN, 7) + hashlib.sha256(sent).digest(), f"{len(got)} bytes"


def in_child(own, run):
    """What a child does with a connection; its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run(own)
            status = 0
        except OSError as error:
            print(f"   the child: {error}", flush=True)
            status = 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def by_child(address):
    """Who asks has the child, and goes on itself afterwards."""
    own = connect(address, PLAIN)
    echoes(own, pattern(5000, 1), ends=False)
    assert in_child(own, lambda own: echoes(own, pattern(LEN, 2), ends=False)) == 0
    echoes(own, pattern(LEN, 3))


def without_means(address):
    """The other end may not use TCP_REPAIR: the connection stays the parent's, and the child has none, and says so."""
    own = connect(address, SILENT)
    echoes(own, pattern(5000, 1), ends=False)
    with tempfile.TemporaryFile() as log:

        def logging(own):
            os.dup2(log.fileno(), 2)
            echoes(own, b"from the child", ends=False)

        assert in_child(own, logging) == 2
        log.seek(0)
        said = log.read().decode()
        print(f"   which logs: {said.strip()}", flush=True)
        assert f"goes on in process {os.getpid()} alone" in said
    echoes(own, pattern(LEN, 2))


def unseen_call():
    """syscall(2), but that the library does not see it, nor takes its lock for it. (Guests are of x86-64.)"""
    code = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3")
    page = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 6)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    call.page = page
    return call


def await_leaving(own, leaver):
    """Until the kernel is being given the connection: TCP_REPAIR. False: that is over, and was not seen."""
    SYS_GETSOCKOPT, TCP_REPAIR = 55, 19
    value, length, call = ctypes.c_int(0), ctypes.c_int(4), unseen_call()
    arguments = SYS_GETSOCKOPT, own.fileno(), socket.IPPROTO_TCP, TCP_REPAIR, ctypes.addressof(value), ctypes.addressof(length)
    # (It takes less than a millisecond, under a lock that a call which comes then waits for.)
    while not value.value and leaver.is_alive():
        call(*arguments)
    return value.value != 0


def is_kernels(own):
    """Whether the kernel has it: TCP_INFO."""
    SYS_GETSOCKOPT, TCP_INFO, TCP_ESTABLISHED = 55, 11, 1
    value, length = ctypes.c_ubyte(0), ctypes.c_int(1)
    arguments = SYS_GETSOCKOPT, own.fileno(), socket.IPPROTO_TCP, TCP_INFO, ctypes.addressof(value), ctypes.addressof(length)
    assert unseen_call()(*arguments) == 0
    return value.value == TCP_ESTABLISHED


def connect_on_device(address, port):
    """One that is not the kernel's from the beginning. (On a busy machine it may take longer than a second to hear of the other end, and then the kernel has it.)"""
    for _ in range(40):
        own = connect(address, port)
        if not is_kernels(own):
            return own
        own.close()
        time.sleep(1)
    raise AssertionError("the kernel has each")


def leave_all():
    """A filter of system calls that is none: before it, whatever can be is the kernel's."""
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
    assert LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0, 0, 0) == -1


def meanwhile(address):
    """A call that comes while it is found out that a connection stays is not lost for it."""
    unread, seen = pattern(LEN // 8, 5), [0, 0]
    for turn in range(40):
        # (On a busy machine its moment may be missed.)
        if turn >= 10 and all(seen):
            break
        own = connect_on_device(address, SILENT)
        # (What nobody has read is written to the kernel, which takes its time.)
        own.sendall(unread)
        time.sleep(0.3)
        own.settimeout(None)
        second = struct.pack("ll", 1, 0)
        leaver = threading.Thread(target=leave_all)
        # (What is lost is waited for in vain.)
        signal.alarm(30)
        leaver.start()
        seen[turn % 2] += await_leaving(own, leaver)
        if turn % 2:
            own.shutdown(socket.SHUT_WR)
            assert own.recv(len(unread), socket.MSG_WAITALL) == unread
            assert own.recv(1) == b"", "the end comes back"
        else:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, second)
            assert own.recv(len(unread), socket.MSG_WAITALL) == unread
            try:
                assert not own.recv(1), "nothing has come"
                assert False, "nor has it ended"
            except BlockingIOError:
                echoes(own, b"after")
        signal.alarm(0)
        leaver.join()
        own.close()
    print(f"   {seen[0]} options and {seen[1]} ends met it on its way", flush=True)
    assert all(seen), "either call came in the middle"


def own_numbers():
    return {int(number) for number in os.listdir("/proc/self/fd")}


def threads(status):
    status.seek(0)
    return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def many(address):
    """So many leave at once as there are neither descriptors nor threads for: a part of them at a time."""
    owns = [connect_on_device(address, PLAIN) for _ in range(100)]
    for own in owns:
        echoes(own, b"before", ends=False)
    used, free, limits = own_numbers(), 20, resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = next(limit for limit in range(4096) if limit - sum(number < limit for number in used) >= free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    leaver, most = threading.Thread(target=leave_all), 0
    with open("/proc/self/status") as status:
        before = threads(status)
        leaver.start()
        while leaver.is_alive():
            most = max(most, threads(status))
            time.sleep(0.002)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert all(is_kernels(own) for own in owns), "each is the kernel's"
    for own in owns:
        echoes(own, b"after")
        own.close()
    print(f"   {most - before} threads for {len(owns)}", flush=True)
    # (Who waits here, who has them leave, and a rest that somebody writes.)
    assert most - before < 6, "not one for each"


def to_stopped(address):
    """The other end does not answer for a while: so with it."""
    own = connect(address, STOPPED)
    own.sendall(b"s")
    time.sleep(1)
    start = time.monotonic()
    assert in_child(own, lambda own: echoes(own, b"from the child", ends=False)) == 2
    print(f"   after {time.monotonic() - start:.1f} s", flush=True)
    echoes(own, pattern(LEN, 2))


def half_closed(address):
    """One direction has ended before the other goes on by the kernel."""
    own = connect(address, ENDED)
    own.sendall(b"?")
    assert own.recv(1) == b"", "it ends at once"
    time.sleep(2)
    for at in range(0, LEN, 16384):
        own.sendall(pattern(LEN, 9)[at : at + 16384])
    own.close()
    asker = connect(address, ENDED)
    assert asker.recv(32, socket.MSG_WAITALL) == hashlib.sha256(pattern(LEN, 9)).digest(), "all of it came"


def ask(address):
    few = 80
    case("a server that forks", 3, few, lambda: one(address, FORKS))
    time.sleep(1)
    case("and again", 3, few, lambda: one(address, FORKS, 1))
    time.sleep(1)
    case("eight at a time", 3, 8 * few, lambda: together(address, FORKS, 8))
    case("a program for each connection", 3, few, lambda: one(address, INETD))
    time.sleep(1)
    case("and again", 3, few, lambda: one(address, INETD, 1))
    case("a process that becomes a program", 3, few, lambda: exec_after_first(address))
    case("a connection that is passed on", 3, few, lambda: one(address, PASSES))
    case("in the middle of a stream", 100, 4000, lambda: middle_of_stream(address))
    case("a child of who asks", 3, few, lambda: by_child(address))
    case("one direction has ended", 3, few, lambda: half_closed(address))
    case("many at once", 500, 10000, lambda: many(address))
    case("who may not", 300, 4000, lambda: without_means(address))
    case("calls meanwhile", 300, 20000, lambda: meanwhile(address))
    case("who is stopped", 300, 4000, lambda: to_stopped(address))


def exec_after_first(address):
    own = connect(address, EXECS)
    own.sendall(b"first")
    echoes(own, pattern(LEN))


ROLES = {
    "forks": forks,
    "inetd": inetd,
    "execs": execs,
    "passes": passes,
    "middle": middle,
    "plain": lambda address: plain(address, PLAIN),
    "silent": lambda address: plain(address, SILENT),
    "stopped": stopped,
    "ended": ended,
    "ask": ask,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](sys.argv[2])
