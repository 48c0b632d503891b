"""How fast record batches become Arrow columns and columns become batches, beside the reader and builder in Python.

Run: python -m benchmarks.columnar [--rounds 9] [--megabytes 8]

Time is the thread's CPU time and the best of the rounds, so that a busy machine disturbs little. GB/s count keys and
values. `plain` is the same by `records.records_in` and `records.build.build_batch`, one Python object per record; the
last column is the ratio.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import pyarrow as pa

from cordwood.columnar.decoding import Decoder
from cordwood.columnar.encoding import OutgoingRows
from cordwood.columnar.partitioning import murmur2_partitions, rows_by_partition
from cordwood.records.batch import Codec
from cordwood.records.build import NewRecord, build_batch
from cordwood.records.records import records_in

NOW_MS = 1_700_000_000_000
PLAIN_RECORDS = 5_000
CASES = [  # size of a value, records in a batch, codec
    (100, 1, Codec.NONE),
    (100, 140, Codec.NONE),
    (100, 8_000, Codec.NONE),
    (1024, 900, Codec.NONE),
    (100, 140, Codec.LZ4),
    (100, 8_000, Codec.LZ4),
    (1024, 900, Codec.LZ4),
    (100, 8_000, Codec.ZSTD),
    (1024, 900, Codec.ZSTD),
    (100, 8_000, Codec.SNAPPY),
    (100, 8_000, Codec.GZIP),
]


def event(size: int, source: random.Random) -> bytes:
    """Something like JSON, which compresses as such things do."""
    text = json.dumps({"order": source.randrange(10**9), "customer": source.randrange(5000), "paid": source.random()})
    while len(text) < size:
        text += json.dumps({"item": source.randrange(2000), "price": source.randrange(10**4) / 100})
    return text[:size].encode()


def made_records(count: int, size: int) -> list[NewRecord]:
    source = random.Random(size)
    return [(NOW_MS + place, b"key-%d" % source.randrange(1000), event(size, source), ()) for place in range(count)]


def best_s(work: Callable[[], object], rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def row(what: str, count: int, size: int, taken_s: float, plain_s: float) -> None:
    print(
        f"{what:<44}{count / taken_s / 1e6:>8.2f}{count * size / taken_s / 1e9:>8.2f}"
        f"{PLAIN_RECORDS / plain_s / 1e6:>10.2f}{(count / taken_s) / (PLAIN_RECORDS / plain_s):>8.0f}"
    )


def decode(records: list[NewRecord], size: int, per_batch: int, codec: Codec, rounds: int) -> None:
    data = bytearray()
    for first in range(0, len(records), per_batch):
        data += build_batch(records[first : first + per_batch], base_offset=first, codec=codec)
    decoder = Decoder()

    def columns() -> int:
        return sum(piece.count for piece in decoder.decode(data, start_offset=0, end_offset=1 << 62))

    assert columns() == len(records)
    few = [bytes(build_batch(records[:PLAIN_RECORDS], codec=codec))]
    if per_batch < PLAIN_RECORDS:
        few = [
            bytes(build_batch(records[first : first + per_batch], codec=codec))
            for first in range(0, PLAIN_RECORDS, per_batch)
        ]
    plain_s = best_s(lambda: [list(records_in(batch)) for batch in few], 3)
    what = f"decode {size} B, {per_batch} per batch, {codec.name.lower()}"
    row(what, len(records), size, best_s(columns, rounds), plain_s)


def encode(records: list[NewRecord], size: int, partition_count: int, codec: Codec, rounds: int) -> None:
    keys, values = pa.array([record[1] for record in records]), pa.array([record[2] for record in records])
    times = np.array([record[0] for record in records])

    def batches() -> None:
        outgoing = OutgoingRows(keys, values, None, times)
        partitions = murmur2_partitions(keys, partition_count)
        groups = [(rows, 0) for _, rows in rows_by_partition(partitions, partition_count)]
        outgoing.encode_groups(groups, codec=codec, producer_id=1, producer_epoch=0)

    few = list(islice(records, PLAIN_RECORDS))
    plain_s = best_s(lambda: build_batch(few, codec=codec), 3)
    what = f"encode {size} B, {partition_count} partitions, {codec.name.lower()}"
    row(what, len(records), size, best_s(batches, rounds), plain_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=8, help="how much is decoded or encoded at a time")
    arguments = parser.parse_args()
    print(f"{'':<44}{'M rec/s':>8}{'GB/s':>8}{'plain M/s':>10}{'ratio':>8}")
    made = {size: made_records(max(PLAIN_RECORDS, (arguments.megabytes << 20) // size), size) for size in (100, 1024)}
    for size, per_batch, codec in CASES:
        decode(made[size], size, per_batch, codec, arguments.rounds)
    for size in made:
        for partition_count in (1, 100):
            for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
                encode(made[size], size, partition_count, codec, arguments.rounds)


if __name__ == "__main__":
    main()
