"""How long one client's hostile records keep another client waiting: `python -m benchmarks.stalls_records [case ...]`.

For each case a broker is started as a process on a fresh directory. One connection sends the case's requests; a second
one asks for ApiVersions all the time, and the longest of its waits is the figure. The broker's CPU time and its largest
memory, and that of the processes it started, are read from /proc. Nothing here passes or fails: the tests that hold the
bounds count records, bytes and files.
"""

import argparse
import multiprocessing
import random
import struct
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from crc32c import crc32c
from tests.broker_process import BrokerProcess
from tests.raw_client import RawClient

from cordwood.records.batch import Codec
from cordwood.records.build import build_batch
from cordwood.records.compression import compress
from cordwood.wire.apis import ApiKey

PRODUCE_VERSION = 9
PATIENCE_S = 900.0
SMALLEST_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"


def now_ms() -> int:
    return int(time.time() * 1000)


def sealed(batch: bytearray, count: int, codec: int, max_timestamp_ms: int) -> bytes:
    """The batch with this count, codec and time in its header, and a length and CRC that fit."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">q", batch, 35, max_timestamp_ms)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def bomb(count: int, codec: int) -> bytes:
    """So many equal records, and a time in the header that none of them has."""
    batch = build_batch([(now_ms(), None, None, ())])[:61] + compress(codec, SMALLEST_RECORD * count)
    return sealed(batch, count, codec, now_ms() + 1000)


def produce(client: RawClient, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
    data = [{"index": partition, "records": batch} for batch in batches]
    answer = client.send(
        ApiKey.PRODUCE, PRODUCE_VERSION, acks=1, timeout_ms=60_000, topic_data=[{"name": topic, "partition_data": data}]
    )
    return [part.error_code for each in answer.responses for part in each.partition_responses]


def create(client: RawClient, topic: str, **settings: str) -> None:
    configs = [{"name": name.replace("_", "."), "value": value} for name, value in settings.items()]
    entry = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    client.send(ApiKey.CREATE_TOPICS, 5, topics=[entry], timeout_ms=10_000, validate_only=False)


# The cases


def equal_records_by_time(client: RawClient) -> str:
    """18 million equal records in a batch of some kilobytes, then four questions by time."""
    create(client, "times")
    codes = produce(client, "times", bomb(18_000_000, Codec.ZSTD))
    return f"produce {codes}, then {questions(client, 'times', 4)}"


def dense_records_by_time(client: RawClient) -> str:
    """400,000 different records in one batch, a time in its header that none of them has, and eight questions."""
    create(client, "times")
    rows = [(0, None, None, ())] * 400_000
    codes = produce(client, "times", sealed(build_batch(rows, codec=Codec.ZSTD), len(rows), Codec.ZSTD, now_ms()))
    return f"produce {codes}, then {questions(client, 'times', 8)}"


def questions(client: RawClient, topic: str, count: int) -> list[tuple[int, int]]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": now_ms() - 10_000}
    for _ in range(count):
        client.request(
            ApiKey.LIST_OFFSETS,
            5,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [partition]}],
        )
    answers = [client.answer(ApiKey.LIST_OFFSETS, 5).topics[0].partitions[0] for _ in range(count)]
    return [(each.error_code, each.offset) for each in answers][:1]


def claimed_records(client: RawClient) -> str:
    """2,900 batches of 61 bytes, each of which claims 2^31-1 records."""
    create(client, "claims")
    batch = sealed(build_batch([(now_ms(), None, None, ())])[:61], 2**31 - 1, 0, now_ms())
    codes = produce(client, "claims", *[batch] * 2900)
    return f"error codes {set(codes)}"


def small_segments(client: RawClient) -> str:
    """2,900 small batches on a topic whose segments hold one batch each."""
    create(client, "rolls", segment_bytes="14")
    codes = produce(client, "rolls", *[bytes(build_batch([(now_ms(), None, None, ())]))] * 2900)
    return f"error codes {set(codes)}"


def compacted_records(client: RawClient) -> str:
    """20 batches of 500,000 small records with keys, on a compacted topic."""
    create(client, "keys", cleanup_policy="compact")
    rows = [(now_ms(), b"k", None, ())] * 500_000
    batch = bytes(build_batch(rows, codec=Codec.ZSTD))
    codes = [code for _ in range(20) for code in produce(client, "keys", batch)]
    return f"error codes {set(codes)}"


def compacted_headers(client: RawClient) -> str:
    """20 small batches of one record with 400,000 headers, on a compacted topic."""
    create(client, "keys", cleanup_policy="compact")
    batch = bytes(build_batch([(now_ms(), b"k", None, (("", None),) * 400_000)], codec=Codec.ZSTD))
    codes = [code for _ in range(20) for code in produce(client, "keys", batch)]
    return f"error codes {set(codes)}"


def producer_ids(client: RawClient) -> str:
    """60,000 producer ids that nobody was given, in one partition."""
    create(client, "ids")
    template = build_batch([(now_ms(), None, None, ())], producer_id=0, producer_epoch=0, base_sequence=0)
    seed = random.Random(1)
    for _ in range(600):
        batches = []
        for _ in range(100):
            struct.pack_into(">q", template, 43, seed.getrandbits(62))
            struct.pack_into(">I", template, 17, crc32c(memoryview(template)[21:]))
            batches.append(bytes(template))
        produce(client, "ids", *batches)
    return ""


CASES: dict[str, Callable[[RawClient], str]] = {
    each.__name__: each
    for each in (
        equal_records_by_time,
        dense_records_by_time,
        claimed_records,
        small_segments,
        compacted_records,
        compacted_headers,
        producer_ids,
    )
}


class Pinging:
    """A second client, in a process of its own, that asks for ApiVersions until it is told to stop."""

    def __init__(self, address: str) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_ping, args=(address, theirs))
        self._process.start()

    def longest_s(self) -> float:
        """The longest wait since this was last asked."""
        self._ours.send(False)
        return float(self._ours.recv())

    def stop(self) -> None:
        self._ours.send(True)
        self._process.join()


def _ping(address: str, orders: Connection) -> None:
    client = RawClient(address, timeout_s=PATIENCE_S)
    longest_s = 0.0
    while True:
        started_s = time.monotonic()
        client.send(ApiKey.API_VERSIONS, 0)
        longest_s = max(longest_s, time.monotonic() - started_s)
        if orders.poll(0.001):
            if orders.recv():
                return
            orders.send(longest_s)
            longest_s = 0.0


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "data") as broker:
        pinging = Pinging(broker.bootstrap)
        client = RawClient(broker.bootstrap, timeout_s=PATIENCE_S)
        time.sleep(0.5)
        quiet_s = pinging.longest_s()
        started_s = time.monotonic()
        told = CASES[name](client)
        took_s = time.monotonic() - started_s
        longest_s = pinging.longest_s()
        pinging.stop()
        files = sum(1 for _ in Path(directory).rglob("*.log"))
        assert broker.pid is not None
        print(
            f"{name:24} longest wait {longest_s * 1000:8.0f} ms (before: {quiet_s * 1000:.0f} ms)  "
            f"case {took_s:6.1f} s  broker {peak_mb(broker.pid):5.0f} MB  segments {files:5}  {told}",
            flush=True,
        )
        client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], help="all of them if none is named")
    for name in parser.parse_args().cases or CASES:
        measure(name)


if __name__ == "__main__":
    main()
