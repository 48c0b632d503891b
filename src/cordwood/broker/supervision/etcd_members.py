"""The etcd of a local cluster: three members on the loopback address, run by the supervisor."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from typing import NamedTuple

from cordwood.broker.supervision.children import Child
from cordwood.model.failure import Failure

MEMBERS = 3
_START_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.05


class Etcd(NamedTuple):
    path: str
    version: str
    refusal: str | None
    """The reason why this etcd cannot keep the metadata; None: it can."""


def etcd_on_path() -> Etcd | None:
    path = shutil.which("etcd")
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return Etcd(path, "?", str(error))
    found = re.search(r"etcd Version: (\S+)", said)
    version = "?" if found is None else found[1]
    try:
        from cordwood.cluster.stores.etcd.versions import refusal
    except ImportError as error:
        return Etcd(path, version, f"packages are not installed ({error}): in a clone, pip install '.[cluster]'")
    return Etcd(path, version, refusal(version, with_auth=False))


def member_directory(directory: str, number: int) -> str:
    return f"{directory}/etcd-{number}"


class EtcdMembers:
    """Three members, made by `start`."""

    def __init__(self, members: list[Child], client_ports: list[int]) -> None:
        self.members = members
        self._client_ports = client_ports

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self._client_ports)

    @classmethod
    async def start(cls, etcd: Etcd, directory: str, client_ports: list[int], peer_ports: list[int]) -> "EtcdMembers":
        """Starts the members, and returns when all serve. Raises Failure."""
        environment = {name: text for name, text in os.environ.items() if not name.startswith("ETCD")}
        peers = {f"etcd-{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(peer_ports, 1)}
        members = []
        for number, (name, peer) in enumerate(peers.items(), 1):
            client = f"http://127.0.0.1:{client_ports[number - 1]}"
            command = [
                etcd.path,
                f"--name={name}",
                f"--data-dir={member_directory(directory, number)}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                "--initial-cluster=" + ",".join(f"{each}={url}" for each, url in peers.items()),
                "--auto-compaction-mode=revision",
                "--auto-compaction-retention=10000",
                "--log-level=warn",
            ]
            members.append(await Child.launch(name, command, f"{directory}/{name}.log", environment))
        started = cls(members, client_ports)
        try:
            await asyncio.gather(*map(started._serves, members, client_ports))
        except BaseException:
            await started.stop()
            raise
        return started

    async def _serves(self, member: Child, port: int) -> None:
        """Waits until the member answers that it is healthy, which takes a leader."""
        deadline_s = asyncio.get_running_loop().time() + _START_WITHIN_S
        while not await _healthy(port):
            if member.ended:
                raise Failure("ETCD", f"{member.name} ended: {member.exit_reason}\n{member.last_words()}")
            if asyncio.get_running_loop().time() > deadline_s:
                raise Failure("ETCD", f"{member.name} does not serve after {_START_WITHIN_S:g} s: see {member.output}")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def stop(self) -> None:
        """Kills the members. Every change that etcd has confirmed is on disk; members that all stop in order would wait
        seconds for a new leader among them."""
        await asyncio.gather(*(member.kill() for member in self.members))


async def _healthy(port: int) -> bool:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return b'"true"' in await reader.read()
            finally:
                writer.close()
    return False
