"""Network namespaces joined by a switch in user space, which can drop and delay packets of any link and direction.

The kernel's own ways (netem, filters of tc or nftables) are not on every machine; tun devices are. Each namespace has
one, and the switch passes packets between them. The namespaces have no names: they are gone when their processes are.

    python -m tests.cluster.faults.switch 4    # run by Network; says where the namespaces are, obeys lines on its input
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN = 1
IFF_NO_PI = 0x1000
MTU = 9000
START_WITHIN_S = 20.0
_PACKETS_AT_ONCE = 64

Link = tuple[int, int]
"""From one place to another: each direction is a link of its own."""


class NoNetwork(Exception):
    """This machine does not let us have networks of our own; the message says why."""


class Slow(NamedTuple):
    """How late packets of a link are: each by a time between two bounds, in order."""

    least_ms: float
    most_ms: float


def address_of(place: int) -> str:
    return f"10.99.0.{place + 1}"


class Network:
    """Places 0 to N-1, each in a namespace of its own. Every link works until told otherwise."""

    def __init__(self, places: int) -> None:
        if os.geteuid() != 0:
            raise NoNetwork("network namespaces need root: sudo -E make test-crash")
        for tool, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
            if shutil.which(tool) is None:
                raise NoNetwork(f"{tool} is not installed: apt-get install {package}")
        if not os.path.exists("/dev/net/tun"):
            raise NoNetwork("there is no /dev/net/tun: modprobe tun")
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.faults.switch", str(places)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = self._answer()
        self._namespaces = [f"/proc/{self._switch.pid}/fd/{number}" for number in told["namespaces"]]

    def _answer(self) -> dict[str, list[int]]:
        assert self._switch.stdout is not None
        ready, _, _ = select.select([self._switch.stdout], [], [], START_WITHIN_S)
        line = self._switch.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise NoNetwork("the switch did not start")
        answer: dict[str, list[int]] = json.loads(line)
        return answer

    def enter(self, place: int) -> None:
        """Moves this thread, and all that it starts from now on, to a place."""
        namespace = os.open(self._namespaces[place], os.O_RDONLY)
        _enter(namespace)
        os.close(namespace)

    def command_at(self, place: int) -> tuple[str, ...]:
        """The beginning of a command that runs at a place."""
        return ("nsenter", f"--net={self._namespaces[place]}")

    def set(self, *, dropped: Iterable[Link] = (), slow: Mapping[Link, Slow] | None = None) -> None:
        """From now on exactly these links drop packets or are slow."""
        line = {"dropped": sorted(set(dropped)), "slow": [[*link, *how] for link, how in (slow or {}).items()]}
        assert self._switch.stdin is not None
        self._switch.stdin.write(json.dumps(line) + "\n")
        self._switch.stdin.flush()
        self._answer()

    def close(self) -> None:
        assert self._switch.stdin is not None
        self._switch.stdin.close()
        try:
            self._switch.wait(10)
        except subprocess.TimeoutExpired:
            self._switch.kill()
            self._switch.wait(10)


_libc = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class _Switch:
    """The process behind a Network."""

    def __init__(self, places: int) -> None:
        self._ports: list[int] = []
        self.namespaces: list[int] = []
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for place in range(places):
            if _libc.unshare(CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            self.namespaces.append(os.open("/proc/self/ns/net", os.O_RDONLY))
            port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
            for words in (
                "link set lo up",
                f"addr add {address_of(place)}/24 dev wire",
                f"link set wire mtu {MTU} txqueuelen 10000 up",
            ):
                subprocess.run(["ip", *words.split()], check=True, timeout=20)
            self._ports.append(port)
        _enter(home)
        self._place_of = {bytes(map(int, address_of(place).split("."))): place for place in range(places)}
        self._dropped: set[Link] = set()
        self._slow: dict[Link, Slow] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._last_due: dict[Link, float] = defaultdict(float)
        self._count = 0

    def obey(self, line: str) -> None:
        told = json.loads(line)
        self._dropped = {(source, target) for source, target in told["dropped"]}
        self._slow = {(source, target): Slow(least, most) for source, target, least, most in told["slow"]}

    def run(self) -> None:
        poll = select.epoll()
        for port in (sys.stdin.fileno(), *self._ports):
            poll.register(port, select.EPOLLIN)
        place_at = {port: place for place, port in enumerate(self._ports)}
        while True:
            timeout = max(self._waiting[0][0] - time.monotonic(), 0) if self._waiting else -1
            for port, _ in poll.poll(timeout):
                if port in place_at:
                    self._read(place_at[port])
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                self.obey(line)
                print("{}", flush=True)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._waiting)
                self._pass_on(target, packet)

    def _read(self, source: int) -> None:
        port = self._ports[source]
        for _ in range(_PACKETS_AT_ONCE):
            try:
                packet = os.read(port, MTU + 100)
            except BlockingIOError:
                return
            target = self._place_of.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if target is None or (source, target) in self._dropped:
                continue
            slow = self._slow.get((source, target))
            if slow is None:
                self._pass_on(target, packet)
                continue
            due = max(time.monotonic() + random.uniform(*slow) / 1000, self._last_due[source, target])
            self._last_due[source, target] = due
            self._count += 1
            heapq.heappush(self._waiting, (due, self._count, target, packet))

    def _pass_on(self, target: int, packet: bytes) -> None:
        # A packet that finds no room is lost; whoever sent it sends it again.
        with contextlib.suppress(BlockingIOError):
            os.write(self._ports[target], packet)


if __name__ == "__main__":
    switch = _Switch(int(sys.argv[1]))
    print(json.dumps({"namespaces": switch.namespaces}), flush=True)
    switch.run()
