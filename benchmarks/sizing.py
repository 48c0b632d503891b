"""What one broker needs for each partition, connection and group: memory, and disk beside the records.

Run: python -m benchmarks.sizing [--count 2000]

A broker with default settings and an empty directory gets so many of each, one kind after the other. Memory is what the
process has more of than before (RSS), disk what `du` would say. docs/operations/sizing.md uses these figures.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import processes
from benchmarks.systems import CordwoodSystem, create_topics
from cordwood.client.link import Link
from cordwood.client.settings import Address, ClientSettings
from cordwood.model.errors import ErrorCode
from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey

_PER_TOPIC = 100
_SETTLES_S = 1.5
_LAST_WITH_NAMES = 9


class Sizing:
    def __init__(self, system: CordwoodSystem, count: int) -> None:
        self._system = system
        self._count = count
        host, _, port = system.bootstrap.partition(":")
        self._address = Address(host, int(port))
        self._rss = self._disk = 0
        self._link = self._connect()

    def _connect(self) -> Link:
        link = Link(self._address, ClientSettings(str(self._address)))
        link.connect()
        return link

    def run(self) -> Iterator[str]:
        self._note()
        yield f"a broker that has just started: {self._rss / 1e6:.1f} MB"
        topics = [f"sizing-{number}" for number in range(self._count // _PER_TOPIC)]
        create_topics(self._system, topics, _PER_TOPIC, {})
        yield self._more("a partition that was never used")
        self._write(topics)
        yield self._more("a partition with a record, its log open")
        links = [self._connect() for _ in range(self._count)]
        yield self._more("a connection at rest")
        for link in links:
            link.close()
        self._note()
        for number in range(self._count):
            self._commit(f"group-{number}", topics[0])
        yield self._more("a group with one position")

    def _write(self, topics: Sequence[str]) -> None:
        record = bytes(build_batch([(int(time.time() * 1000), None, b"x" * 100, ())]))
        for topic in topics:
            parts = [{"index": index, "records": record} for index in range(_PER_TOPIC)]
            values = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000}
            data = [{"name": topic, "partition_data": parts}]
            answer = self._link.ask(ApiKey.PRODUCE, {**values, "topic_data": data}, at_most=_LAST_WITH_NAMES)
            codes = {part.error_code for each in answer.responses for part in each.partition_responses}
            assert codes == {ErrorCode.NONE}, codes

    def _commit(self, group: str, topic: str) -> None:
        parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        values = {"group_id": group, "topics": [{"name": topic, "partitions": parts}]}
        for _ in range(100):
            answer = self._link.ask(ApiKey.OFFSET_COMMIT, values, at_most=_LAST_WITH_NAMES)
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                return
            time.sleep(0.05)  # the coordinator is loading
        raise AssertionError(f"{group}: {code}")

    def _more(self, what: str) -> str:
        rss, disk = self._rss, self._disk
        self._note()
        memory, space = (self._rss - rss) / self._count, (self._disk - disk) / self._count
        return f"{what}: {memory / 1000:.2f} kB of memory, {space / 1000:.2f} kB on disk"

    def _note(self) -> None:
        time.sleep(_SETTLES_S)
        self._rss = processes.rss_bytes(self._system.pid)
        self._disk = sum(path.stat().st_blocks * 512 for path in self._system.data.rglob("*"))


def measure(directory: Path, count: int) -> list[str]:
    system = CordwoodSystem(directory, as_shipped=True)
    system.start()
    try:
        return list(Sizing(system, count).run())
    finally:
        system.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m benchmarks.sizing", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="partitions, connections and groups: hundreds")
    with tempfile.TemporaryDirectory(dir=".", prefix=".sizing-") as name:
        for line in measure(Path(name), parser.parse_args().count):
            print(line)
