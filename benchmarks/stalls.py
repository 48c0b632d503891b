"""How long one connection's worst requests keep others waiting: a second connection produces while the first one asks.

Run: python -m benchmarks.stalls [--only Fetch,OffsetFetch] [--newest] [--elements 249000] [--source DIRECTORY]

Every API gets, in every version, the widest requests that it takes (`cordwood.wire.widths`): each of its arrays in
turn, with names that exist or do not, repeated or not, and with the longest strings (`benchmarks.hostile_requests`).
Before that, topics with long settings, groups and transactional ids are stored. Printed for each version: the longest
wait of a Produce (acks=all) on the other connection, the most CPU time of the loop's thread that one turn of 50 ms or
longer took (on a busy machine the honest figure), when the slowest answer came, and by how much the broker's memory
grew. The run fails if a turn took MAX_TURN_CPU_MS of CPU. `--newest` sends only the newest version of each API,
`--elements` asks for so many elements instead, which may be refused, `--source` runs the broker of another checkout.
"""

import argparse
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hostile_requests import LONG_LIST, STORED, THROTTLED, Hostile, fields_of, hostile_requests
from benchmarks.processes import rss_bytes
from benchmarks.wide_requests import GROUP, WIDE, Stage, fetch_session
from cordwood.node.apis import SERVED
from cordwood.records.build import build_batch
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.schema import load
from cordwood.wire.widths import max_elements

PARTITIONS = 1000
MAX_TURN_CPU_MS = 50.0
OTHER = "other"
"""The topic of the other client."""
ANSWER_WITHIN_S = 180.0
_RUN = """
import sys
from cordwood.broker.machine import loop_watch
from cordwood.cli import main

held = getattr(loop_watch.LoopWatch, "held", None)

def said(self, api, who, took_s, cpu_s):
    print(f"TURN {api} {cpu_s * 1000:.1f}", flush=True)
    held(self, api, who, took_s, cpu_s)

if held is not None:
    loop_watch.LoopWatch.held = said
sys.exit(main())
"""
_TURN = re.compile(rb"^TURN (\S+) ([0-9.]+)$", re.MULTILINE)
_READY = re.compile(rb"^cordwood ready on (\S+):(\d+)", re.MULTILINE)


class Client:
    """One connection that sends fields and reads whole answers."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def frame(self, key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
        parts = [struct.pack(">hhih", key, version, 7, 6) + b"stalls"]
        if flexible(key, version):
            parts.append(b"\0")
        writer(load(APIS[key].name)["request"], version)(fields, parts.append)
        body = b"".join(parts)
        return struct.pack(">i", len(body)) + body

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """The next answer, or nothing if the broker hangs up."""
        with suppress(ConnectionError, TimeoutError):
            size = struct.unpack(">i", self._exactly(4))[0]
            return self._exactly(size)
        return b""

    def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        self.send(self.frame(key, version, fields))
        answer = self.answer()
        assert answer, f"the broker hung up on {key.name}"
        entity, _ = reader(load(APIS[key].name)["response"], version)(answer, 5 if flexible(key, version) else 4)
        return entity

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class Producing:
    """Another client: one Produce with acks=all after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = Client(address)
        batch = bytes(build_batch([(1, None, b"v", ())]))
        topic = {"name": OTHER, "partition_data": [{"index": 0, "records": batch}]}
        self._frame = self._client.frame(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic]})
        self._ended = threading.Event()
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            sent_s = time.monotonic()
            self._client.send(self._frame)
            if not self._client.answer():
                return
            self._longest_s = max(self._longest_s, time.monotonic() - sent_s)
            time.sleep(0.0005)

    def longest_s(self) -> float:
        """The longest wait since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()


def start_broker(source: Path | None, directory: Path) -> tuple[subprocess.Popen[bytes], tuple[str, int]]:
    environment = dict(os.environ)
    if source is not None:
        environment["PYTHONPATH"] = str(source / "src")
    output = directory / "broker.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, "serve", "--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    while (ready := _READY.search(output.read_bytes())) is None:
        if process.poll() is not None:
            raise SystemExit(output.read_text())
        time.sleep(0.05)
    return process, (ready[1].decode(), int(ready[2]))


def set_up(address: tuple[str, int]) -> Stage:
    """A topic with many partitions, all of them open, and a group with a position in each; topics with long settings,
    groups with positions, settings and members, and transactional ids."""
    client = Client(address)
    topic = {"name": "wide", "num_partitions": PARTITIONS, "replication_factor": 1}
    created = client.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000)
    stage = Stage("wide", PARTITIONS, created.topics[0].topic_id)
    client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
    client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[GROUP])
    for key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        client.ask(key, WIDE[key].version, **WIDE[key].fields(PARTITIONS + 1, stage))
    client.ask(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[{"name": OTHER, "num_partitions": 1, "replication_factor": 1}],
        timeout_ms=30_000,
    )
    store(client, stage)
    client.close()
    return stage


def store(client: Any, stage: Stage, count: int = STORED) -> None:
    """Stores things by requests: `client` has an `ask`."""
    configs = [{"name": THROTTLED, "value": LONG_LIST}]
    each = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
    topics = [{"name": f"stored{number}", **each} for number in range(count)]
    client.ask(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=60_000)
    position = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "m" * 999,
    }
    for number in range(count):
        name = f"stored{number}"
        topics = [{"name": stage.topic, "partitions": [position]}]
        client.ask(
            ApiKey.OFFSET_COMMIT, 8, group_id=name, member_id="", generation_id_or_member_epoch=-1, topics=topics
        )
        client.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000)
    changes = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}]
    groups = [{"resource_type": 32, "resource_name": f"stored{number}", "configs": changes} for number in range(count)]
    client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=groups)


class Turns:
    """The long turns that the broker's loop watch reports."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._read = 0

    def longest(self) -> tuple[float, str]:
        """The turn that took most CPU since the last call: milliseconds, and whose turn it was; 0 if none was long."""
        with self._output.open("rb") as output:
            output.seek(self._read)
            said = output.read()
        self._read += len(said)
        return max([(float(cpu_ms), api.decode()) for api, cpu_ms in _TURN.findall(said)], default=(0.0, ""))


@dataclass
class Worst:
    """The worst figures of the requests of one version."""

    wait_s: float = 0.0
    turn: tuple[float, str] = (0.0, "")
    took_s: float = 0.0
    grown_mb: float = 0.0
    request: str = ""
    hung_up: int = 0
    sent: int = 0

    def add(self, other: "Worst") -> None:
        if other.turn > self.turn or not self.request:
            self.turn, self.request = other.turn, other.request
        self.wait_s = max(self.wait_s, other.wait_s)
        self.took_s = max(self.took_s, other.took_s)
        self.grown_mb = max(self.grown_mb, other.grown_mb)
        self.hung_up += other.hung_up
        self.sent += other.sent

    def __str__(self) -> str:
        cpu_ms, api = self.turn
        turn = f"{cpu_ms:6.1f} ms ({api})" if api else "short"
        return (
            f"{self.sent:>3} requests  longest wait {self.wait_s * 1000:>8.1f} ms  CPU of a turn {turn:<34} "
            f"answered within {self.took_s:>6.2f} s  {self.grown_mb:>+8.1f} MB  {self.hung_up} hung up"
        )


class Attacker:
    def __init__(self, address: tuple[str, int], pid: int, turns: Turns) -> None:
        self._address = address
        self._pid = pid
        self._turns = turns
        self._other = Producing(address)

    def attack(self, name: str, key: ApiKey, version: int, fields: dict[str, Any]) -> Worst:
        client = Client(self._address)
        frame = client.frame(key, version, fields)
        before = rss_bytes(self._pid)
        self._turns.longest()
        self._other.longest_s()
        started_s = time.monotonic()
        answer = b""
        with suppress(ConnectionError):
            client.send(frame)
            answer = client.answer()
        took_s = time.monotonic() - started_s
        client.close()
        grown_mb = (rss_bytes(self._pid) - before) / 1e6
        return Worst(self._other.longest_s(), self._turns.longest(), took_s, grown_mb, name, not answer, 1)

    def end(self) -> None:
        self._other.end()


def worst_of(attacker: Attacker, stage: Stage, requests: list[Hostile], elements: int | None) -> Worst:
    worst = Worst()
    for each in requests:
        worst.add(attacker.attack(str(each), each.key, each.version, fields_of(each, stage, elements)))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, help="as many elements in each, whatever is allowed")
    parser.add_argument("--newest", action="store_true", help="only the newest version of each API")
    parser.add_argument("--only", help="names of APIs, with commas")
    parser.add_argument("--source", type=Path, help="a checkout whose broker is run")
    arguments = parser.parse_args()
    only = None if arguments.only is None else set(arguments.only.split(","))
    too_long = []
    with tempfile.TemporaryDirectory() as directory:
        process, address = start_broker(arguments.source, Path(directory))
        try:
            stage = set_up(address)
            attacker = Attacker(address, process.pid, Turns(Path(directory) / "broker.out"))
            for number, api in SERVED.items():
                key = ApiKey(number)
                name = APIS[key].name
                if only is not None and name not in only:
                    continue
                first = api.max_version if arguments.newest else api.min_version
                for version in range(first, api.max_version + 1):
                    requests = list(hostile_requests(key, range(version, version + 1)))
                    worst = worst_of(attacker, stage, requests, arguments.elements)
                    if key == ApiKey.FETCH and version == WIDE[key].version:
                        session = fetch_session(arguments.elements or max_elements(key), stage)
                        worst.add(attacker.attack(f"{name} v{version} a session", key, version, session))
                    print(f"{name:<28} v{version:<3} {worst}", flush=True)
                    if worst.turn[0] >= MAX_TURN_CPU_MS:
                        too_long.append(f"{worst.turn[0]:.1f} ms of CPU in a turn: {worst.request}")
            attacker.end()
        finally:
            process.terminate()
            process.wait(30)
    for each in too_long:
        print(each)
    sys.exit(bool(too_long))


if __name__ == "__main__":
    main()
