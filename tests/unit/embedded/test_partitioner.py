"""Keys go to the partitions that other clients choose for them."""

import random

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from cordwood.embedded.client_rules import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        # The values that the Java client's own tests expect.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_the_java_client(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


def test_hashes_are_those_of_kafka_python() -> None:
    chance = random.Random(7)
    for length in range(200):
        key = chance.randbytes(length)
        assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


def test_every_partition_gets_keys() -> None:
    assert {partition_of(str(number).encode(), 7) for number in range(200)} == set(range(7))
