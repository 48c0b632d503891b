"""A real etcd of one or three members on the loopback address, for tests: started, killed, paused, ended by pid."""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests import pausing
from tests.deadline import eventually
from tests.etcd.finding import Etcd

from cordwood.broker.supervision.local_brokers import free_ports

START_WITHIN_S = 90.0
_START_ATTEMPTS = 3


class _PortTaken(Exception):
    """Somebody else listens on a port that was free a moment ago."""


class Certificate(NamedTuple):
    """A certificate that signs itself; all members and clients have the same."""

    file: Path
    key: Path


class Place(NamedTuple):
    """Where a member runs: `command` begins the command of its process."""

    directory: Path
    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()


class EtcdMember:
    """One process of etcd with a data directory and two ports, which it keeps over restarts."""

    def __init__(
        self, etcd: Etcd, name: str, place: Place, client_port: int, peer_port: int, certificate: Certificate | None
    ) -> None:
        self.name = name
        self._client_url = f"http{'s' if certificate else ''}://{place.host}:{client_port}"
        self._certificate = certificate
        self.endpoint = f"{place.host}:{client_port}"
        self.peer_url = f"http://{place.host}:{peer_port}"
        self._etcd = etcd
        self._command = place.command
        self.data = place.directory / name
        self._output = place.directory / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the member does not run"
        return self._process.pid

    def launch(self, initial_cluster: str, options: tuple[str, ...]) -> None:
        assert self._process is None, "the member runs already"
        command = [
            *_ends_with_us(),
            *self._command,
            self._etcd.path,
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self._client_url}",
            f"--advertise-client-urls={self._client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={initial_cluster}",
            "--log-level=warn",
            *self._tls_options(),
            *options,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _tls_options(self) -> list[str]:
        if self._certificate is None:
            return []
        file, key = self._certificate
        return [f"--cert-file={file}", f"--key-file={key}", f"--trusted-ca-file={file}", "--client-cert-auth"]

    def _open(self, path: str, body: bytes | None, timeout_s: float, token: str = "") -> bytes:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self._certificate is not None:
            context = ssl.create_default_context(cafile=str(self._certificate.file))
            context.load_cert_chain(*self._certificate)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        opener = urllib.request.build_opener(*handlers)
        request = urllib.request.Request(self._client_url + path, body, {"Authorization": token} if token else {})
        with opener.open(request, timeout=timeout_s) as answer:
            read: bytes = answer.read()
            return read

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_healthy(self) -> None:
        """Waits until the member serves, which takes a leader."""

        def healthy() -> bool:
            self._check_alive()
            try:
                return b"true" in self._open("/health", None, 2)
            except OSError:
                return False

        eventually(healthy, what=f"the health of {self.name}")

    def post(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        """The answer of etcd's JSON gateway."""
        decoded: dict[str, Any] = json.loads(self._open(path, json.dumps(body).encode(), 30, token))
        return decoded

    def snapshot(self, path: Path) -> None:
        """Saves a copy of the data, as `etcdctl snapshot save` does."""
        with path.open("wb") as file:
            for line in self._open("/v3/maintenance/snapshot", b"{}", 60).splitlines():
                file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))

    def restore(self, tool: Path, snapshot: Path, *, bump: int) -> None:
        """Replaces the data of a member that does not run and is alone by a copy, at a revision that is `bump` higher
        than the copy's, and without history. The former data is kept, with a name that ends in `.lost`."""
        assert self._process is None, "the member runs"
        self.data.rename(self.data.with_name(f"{self.data.name}.lost"))
        options = (f"--bump-revision={bump}", "--mark-compacted") if bump else ()
        command = [
            str(tool),
            *("snapshot", "restore", str(snapshot), f"--data-dir={self.data}", f"--name={self.name}"),
            f"--initial-cluster={self.name}={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            *options,
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def put_back(self) -> None:
        """Ends a `restore`: the member gets the data that it had before."""
        assert self._process is None, "the member runs"
        shutil.rmtree(self.data)
        self.data.with_name(f"{self.data.name}.lost").rename(self.data)

    def _check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            said = self._output.read_text(errors="replace")[-3000:]
            if "address already in use" in said:
                raise _PortTaken
            raise AssertionError(f"etcd ended with {self._process.returncode}:\n{said}")

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: a leader hands its leadership over first."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP. What is asked of the member after this gets no answer."""
        assert self._process is not None
        pausing.pause(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        pausing.resume(self._process.pid)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        if number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


class EtcdCluster:
    """Members that form one etcd. A `with` block starts them, and ends all that still run."""

    def __init__(
        self,
        etcd: Etcd,
        directory: Path,
        members: int = 1,
        *,
        options: tuple[str, ...] = (),
        certificate: Certificate | None = None,
        places: Sequence[Place] = (),
    ) -> None:
        """`options`: further flags of every member. Without others, nothing is synced to disk and elections are
        quick. `places`: where each member runs, if not all of them in `directory`."""
        self._etcd = etcd
        self._places = places or [Place(directory)] * members
        self._count = len(self._places)
        self._certificate = certificate
        # Members that vote would elect again and again where the machine stands still for 200 ms.
        election_ms = 200 if self._count == 1 else 1000
        elections = (f"--heartbeat-interval={election_ms // 10}", f"--election-timeout={election_ms}")
        self._options = options or ("--unsafe-no-fsync", *elections)
        self.members: list[EtcdMember] = []

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def __enter__(self) -> Self:
        for attempt in range(_START_ATTEMPTS):
            places = [place._replace(directory=place.directory / f"etcd-{attempt}") for place in self._places]
            for place in places:
                place.directory.mkdir(parents=True, exist_ok=True)
            try:
                self._start(places)
                return self
            except _PortTaken:
                self.end()
            except BaseException:
                self.end()
                raise
        raise AssertionError("no free ports for etcd")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _start(self, places: Sequence[Place]) -> None:
        ports = free_ports(2 * self._count)
        self.members = [
            EtcdMember(self._etcd, f"m{number}", place, client_port, peer_port, self._certificate)
            for number, (place, client_port, peer_port) in enumerate(zip(places, ports[::2], ports[1::2], strict=True))
        ]
        for member in self.members:
            self.launch(member)
        for member in self.members:
            member.wait_healthy()

    def launch(self, member: EtcdMember) -> None:
        """Starts a member that does not run, and does not wait for it."""
        peers = ",".join(f"{each.name}={each.peer_url}" for each in self.members)
        member.launch(peers, self._options)

    def restart(self, member: EtcdMember) -> None:
        """Starts a member that was killed or stopped, on its data, and waits until it serves."""
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            self.launch(member)
            try:
                return member.wait_healthy()
            except _PortTaken:
                member.kill()
                if time.monotonic() > deadline:
                    raise

    def at(self, endpoint: str) -> EtcdMember:
        (found,) = (member for member in self.members if member.endpoint == endpoint)
        return found

    def leader(self) -> EtcdMember:
        """The member that leads, while all members run."""

        def leading() -> list[EtcdMember]:
            statuses = [(member, member.post("/v3/maintenance/status", {})) for member in self.members]
            return [member for member, status in statuses if status.get("leader") == status["header"]["member_id"]]

        return eventually(leading, what="a leader of etcd")[0]

    def end(self) -> None:
        for member in self.members:
            member.kill()


def _ends_with_us() -> list[str]:
    """A command that has the kernel kill the member when the process of the tests dies, whichever way."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
