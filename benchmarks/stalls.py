"""How long one connection's widest request keeps others waiting: a second connection pings while the first one asks.

Run: python -m benchmarks.stalls [--elements 249000] [--only Fetch,OffsetFetch] [--source DIRECTORY]

Every API gets the widest request that it takes (`cordwood.wire.widths`), or one of `--elements`, which may be refused.
Printed for each: the longest wait of an ApiVersions on the other connection, the most CPU time of the loop's thread
that one turn of 50 ms or longer took (on a busy machine the honest figure), when the answer came, and by how much the
broker's memory grew. `--source` runs the broker of another checkout, to compare.
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
from pathlib import Path
from typing import Any

from benchmarks.processes import rss_bytes
from benchmarks.wide_requests import GROUP, WIDE, Stage, fetch_session
from cordwood.wire.apis import APIS, ApiKey, flexible
from cordwood.wire.codec import reader, writer
from cordwood.wire.schema import load
from cordwood.wire.widths import max_elements

PARTITIONS = 1000
ANSWER_WITHIN_S = 180.0
_RUN = """
import sys
from cordwood.broker import loop_watch
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


class Pinging:
    """Another client: one ApiVersions after the other."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._client = Client(address)
        self._frame = self._client.frame(ApiKey.API_VERSIONS, 0, {})
        self._ended = threading.Event()
        self.longest_s = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            sent_s = time.monotonic()
            self._client.send(self._frame)
            if not self._client.answer():
                return
            self.longest_s = max(self.longest_s, time.monotonic() - sent_s)
            time.sleep(0.0005)

    def end(self) -> float:
        self._ended.set()
        self._thread.join()
        self._client.close()
        return self.longest_s


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
    """A topic with many partitions, all of them open, and a group with a position in each."""
    client = Client(address)
    topic = {"name": "wide", "num_partitions": PARTITIONS, "replication_factor": 1}
    created = client.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000)
    stage = Stage("wide", PARTITIONS, created.topics[0].topic_id)
    client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])
    client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[GROUP])
    for key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT):
        client.ask(key, WIDE[key].version, **WIDE[key].fields(PARTITIONS + 1, stage))
    client.close()
    return stage


class Turns:
    """The long turns that the broker's loop watch reports."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._read = 0

    def longest(self) -> str:
        """The turn that took most CPU since the last call."""
        said = self._output.read_bytes()[self._read :]
        self._read += len(said)
        turns = [(float(cpu_ms), api.decode()) for api, cpu_ms in _TURN.findall(said)]
        return "{:>6.1f} ms ({})".format(*max(turns)) if turns else "under 50 ms"


def attack(
    address: tuple[str, int], pid: int, turns: Turns, name: str, key: ApiKey, version: int, fields: dict[str, Any]
) -> None:
    client = Client(address)
    frame = client.frame(key, version, fields)
    before = rss_bytes(pid)
    turns.longest()
    pinging = Pinging(address)
    time.sleep(0.2)
    started_s = time.monotonic()
    client.send(frame)
    answer = client.answer()
    took_s = time.monotonic() - started_s
    grown = (rss_bytes(pid) - before) / 1e6
    longest_s = pinging.end()
    client.close()
    said = f"{len(answer):>11,} bytes" if answer else "      hung up    "
    print(
        f"{name:<32} {len(frame):>10,} bytes  longest ping {longest_s * 1000:>8.1f} ms  "
        f"CPU of a turn {turns.longest():<24} {said} after {took_s:>7.2f} s  {grown:>+8.1f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, help="as many elements in each, whatever is allowed")
    parser.add_argument("--only", help="names of APIs, with commas")
    parser.add_argument("--source", type=Path, help="a checkout whose broker is run")
    arguments = parser.parse_args()
    only = None if arguments.only is None else set(arguments.only.split(","))
    with tempfile.TemporaryDirectory() as directory:
        process, address = start_broker(arguments.source, Path(directory))
        try:
            stage = set_up(address)
            turns = Turns(Path(directory) / "broker.out")
            for key, wide in WIDE.items():
                name = APIS[key].name
                if only is not None and name not in only:
                    continue
                count = arguments.elements or max_elements(key)
                if key == ApiKey.OFFSET_FETCH:
                    count = 3000
                attack(address, process.pid, turns, name, key, wide.version, wide.fields(count, stage))
                if key == ApiKey.FETCH:
                    fields = fetch_session(count, stage)
                    attack(address, process.pid, turns, f"{name} (a session)", key, wide.version, fields)
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
