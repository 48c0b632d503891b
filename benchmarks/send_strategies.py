"""How bytes get from a segment file in the page cache to a socket: CPU seconds of the broker per GB, by strategy.

Run: python benchmarks/send_strategies.py [--gigabytes 4] [--response 1048576,52428800] [--json FILE]

One server process per strategy (its CPU alone is counted), one client process that reads and drops. The last table
is the cost of a small request and response: the other job of the same code. docs/decisions/sending-records.md
explains what was chosen.
"""

import argparse
import asyncio
import ctypes
import json
import mmap
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import uvloop

REQUEST = struct.Struct(">q")
_libc = ctypes.CDLL(None, use_errno=True)
_SYS_CACHESTAT = 451


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent"))


def cached_pages(fd: int, position: int, length: int) -> int:
    """How many pages of the range are in the page cache: what a sendfile that must not block has to ask first."""
    wanted, answer = _Range(position, length), _CacheStat()
    if _libc.syscall(_SYS_CACHESTAT, fd, ctypes.byref(wanted), ctypes.byref(answer), 0) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return int(answer.cached)


class TransportServer(asyncio.BufferedProtocol):
    """Requests of eight bytes (how much to send), answers through the uvloop transport."""

    def __init__(self, fd: int, slice_size: int) -> None:
        self.fd = fd
        self.slice_size = slice_size
        self.incoming = bytearray(65536)
        self.view = memoryview(self.incoming)
        self.filled = 0
        self.left = 0
        self.position = 0
        self.paused = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=0)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.view[self.filled :]

    def buffer_updated(self, count: int) -> None:
        self.filled += count
        while self.filled >= 8:
            (size,) = REQUEST.unpack_from(self.incoming)
            self.incoming[: self.filled - 8] = self.incoming[8 : self.filled]
            self.filled -= 8
            self.answer(size)

    def answer(self, size: int) -> None:
        self.left, self.position = size, 0
        self.pump()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.pump()

    def pump(self) -> None:
        raise NotImplementedError


class EchoOverTransport(TransportServer):
    def answer(self, size: int) -> None:
        self.transport.write(b"x" * size)


class ReadAndWrite(TransportServer):
    """preadv into one buffer that is used again, then transport.write."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.buffer = memoryview(bytearray(self.slice_size))

    def pump(self) -> None:
        while self.left and not self.paused:
            part = self.buffer[: min(self.left, self.slice_size)]
            got = os.preadv(self.fd, [part], self.position, os.RWF_NOWAIT)
            assert got == len(part)
            self.left -= got
            self.position += got
            self.transport.write(part)


class ReadFreshAndWrite(TransportServer):
    """The naive way: a new bytes object per slice."""

    def pump(self) -> None:
        while self.left and not self.paused:
            part = os.pread(self.fd, min(self.left, self.slice_size), self.position)
            self.left -= len(part)
            self.position += len(part)
            self.transport.write(part)


class MapAndWrite(TransportServer):
    """transport.write of a view of a memory map. Would block in a page fault when the page is not there."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.map = memoryview(mmap.mmap(self.fd, 0, prot=mmap.PROT_READ))

    def pump(self) -> None:
        while self.left and not self.paused:
            part = self.map[self.position : self.position + min(self.left, self.slice_size)]
            self.left -= len(part)
            self.position += len(part)
            self.transport.write(part)


class SendfileBesideTransport(TransportServer):
    """os.sendfile on a second descriptor of the socket, asking cachestat first so that it cannot block."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.socket_fd = os.dup(transport.get_extra_info("socket").fileno())
        self.loop = asyncio.get_running_loop()
        self.waiting = False

    def pump(self) -> None:
        while self.left:
            want = min(self.left, self.slice_size)
            assert cached_pages(self.fd, self.position, want) > 0
            try:
                sent = os.sendfile(self.socket_fd, self.fd, self.position, want)
            except BlockingIOError:
                if not self.waiting:
                    self.waiting = True
                    self.loop.add_writer(self.socket_fd, self.pump)
                return
            self.left -= sent
            self.position += sent
        if self.waiting:
            self.waiting = False
            self.loop.remove_writer(self.socket_fd)


class OwnSocket:
    """The socket without a transport: add_reader, recv_into, send or sendfile, add_writer when it is full."""

    def __init__(self, fd: int, slice_size: int, how: str, connection: socket.socket) -> None:
        self.fd, self.slice_size, self.how, self.connection = fd, slice_size, how, connection
        self.loop = asyncio.get_running_loop()
        self.incoming = bytearray(65536)
        self.view = memoryview(self.incoming)
        self.filled = self.left = self.position = 0
        self.buffer = memoryview(bytearray(slice_size))
        self.unsent = self.buffer[:0]
        self.waiting = False
        self.loop.add_reader(connection.fileno(), self.readable)

    def readable(self) -> None:
        try:
            count = self.connection.recv_into(self.view[self.filled :])
        except BlockingIOError:
            return
        if count == 0:
            self.loop.remove_reader(self.connection.fileno())
            self.connection.close()
            return
        self.filled += count
        while self.filled >= 8:
            (size,) = REQUEST.unpack_from(self.incoming)
            self.incoming[: self.filled - 8] = self.incoming[8 : self.filled]
            self.filled -= 8
            if self.how == "echo":
                self.connection.send(b"x" * size)
            else:
                self.left, self.position = size, 0
                self.writable()

    def writable(self) -> None:
        try:
            if self.how == "sendfile":
                self.send_file()
            else:
                self.send_read()
        except BlockingIOError:
            if not self.waiting:
                self.waiting = True
                self.loop.add_writer(self.connection.fileno(), self.writable)
            return
        if self.waiting:
            self.waiting = False
            self.loop.remove_writer(self.connection.fileno())

    def send_file(self) -> None:
        while self.left:
            want = min(self.left, self.slice_size)
            assert cached_pages(self.fd, self.position, want) > 0
            sent = os.sendfile(self.connection.fileno(), self.fd, self.position, want)
            self.left -= sent
            self.position += sent

    def send_read(self) -> None:
        while self.left or self.unsent:
            if not self.unsent:
                part = self.buffer[: min(self.left, self.slice_size)]
                got = os.preadv(self.fd, [part], self.position, os.RWF_NOWAIT)
                self.left -= got
                self.position += got
                self.unsent = part
            self.unsent = self.unsent[self.connection.send(self.unsent) :]


Build = Callable[[int, int], Any]
TRANSPORTS: dict[str, Build] = {
    "echo, transport": EchoOverTransport,
    "a preadv + write": ReadAndWrite,
    "a' pread + write, fresh": ReadFreshAndWrite,
    "b mmap + write": MapAndWrite,
    "c sendfile beside transport": SendfileBesideTransport,
}
OWN = {"echo, own socket": "echo", "d preadv + send, own socket": "read", "d sendfile, own socket": "sendfile"}


async def serve(listener: socket.socket, strategy: str, path: str, slice_size: int, done: asyncio.Event) -> None:
    fd = os.open(path, os.O_RDONLY)
    loop = asyncio.get_running_loop()
    if strategy in TRANSPORTS:
        build = TRANSPORTS[strategy]
        server = await loop.create_server(lambda: build(fd, slice_size), sock=listener)
        await done.wait()
        server.close()
        return

    def accept() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        OwnSocket(fd, slice_size, OWN[strategy], connection)

    listener.setblocking(False)
    loop.add_reader(listener.fileno(), accept)
    await done.wait()
    loop.remove_reader(listener.fileno())


def run_server(listener: socket.socket, strategy: str, path: str, slice_size: int, control: int, report: int) -> None:
    async def main() -> None:
        done = asyncio.Event()
        asyncio.get_running_loop().add_reader(control, done.set)
        await serve(listener, strategy, path, slice_size, done)

    # Not getrusage: on many kernels it counts in clock ticks.
    before = time.process_time()
    uvloop.run(main())
    os.write(report, json.dumps(time.process_time() - before).encode())


def drain(address: tuple[str, int], response: int, rounds: int) -> float:
    """Asks and reads; seconds of wall clock."""
    with socket.create_connection(address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sink = memoryview(bytearray(1 << 20))
        started = time.perf_counter()
        request = REQUEST.pack(response)
        for _ in range(rounds):
            client.sendall(request)
            left = response
            while left:
                left -= client.recv_into(sink, min(left, len(sink)))
        return time.perf_counter() - started


def measure(strategy: str, path: str, slice_size: int, response: int, rounds: int) -> dict[str, float]:
    listener = socket.create_server(("127.0.0.1", 0))
    control_read, control_write = os.pipe()
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run_server(listener, strategy, path, slice_size, control_read, report_write)
        finally:
            os._exit(0)
    wall = drain(listener.getsockname(), response, rounds)
    listener.close()
    os.write(control_write, b"x")
    cpu = json.loads(os.read(report_read, 4096))
    os.waitpid(pid, 0)
    for fd in (control_read, control_write, report_read, report_write):
        os.close(fd)
    return {"wall_s": wall, "cpu_s": cpu}


def best(strategy: str, path: str, slice_size: int, response: int, rounds: int, repeats: int) -> dict[str, float]:
    runs = [measure(strategy, path, slice_size, response, rounds) for _ in range(repeats)]
    return min(runs, key=lambda run: run["cpu_s"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gigabytes", type=float, default=2)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--response", default="1048576,52428800")
    arguments.add_argument("--slices", default="65536,131072,262144,524288,1048576")
    arguments.add_argument("--directory", default=None)
    arguments.add_argument("--json")
    options = arguments.parse_args()
    rows = []
    with tempfile.NamedTemporaryFile(dir=options.directory) as file:
        block = os.urandom(1 << 20)
        for _ in range(64):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        print(f"{'strategy':30} {'response':>10} {'slice':>8} {'GB/s':>6} {'CPU s/GB':>9}")
        for response in map(int, options.response.split(",")):
            rounds = max(1, int(options.gigabytes * 1e9 / response))
            for strategy in [name for name in (*TRANSPORTS, *OWN) if not name.startswith("echo")]:
                for slice_size in map(int, options.slices.split(",")):
                    run = best(strategy, file.name, slice_size, response, rounds, options.repeats)
                    gigabytes = rounds * response / 1e9
                    cpu = run["cpu_s"] / gigabytes
                    rows.append(
                        {"strategy": strategy, "response": response, "slice": slice_size, "cpu_s_per_gb": cpu} | run
                    )
                    print(f"{strategy:30} {response:10} {slice_size:8} {gigabytes / run['wall_s']:6.2f} {cpu:9.3f}")
                    sys.stdout.flush()
        print(f"\n{'strategy':30} {'bytes':>10} {'requests/s':>10} {'CPU us per request':>20}")
        for strategy in (name for name in (*TRANSPORTS, *OWN) if name.startswith("echo")):
            run = best(strategy, file.name, 0, 64, 20_000, options.repeats)
            cpu = run["cpu_s"] / 20_000 * 1e6
            rows.append({"strategy": strategy, "response": 64, "cpu_us": cpu} | run)
            print(f"{strategy:30} {64:10} {20_000 / run['wall_s']:10.0f} {cpu:20.1f}")
    if options.json:
        with open(options.json, "w") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
