"""Which partition a row goes to."""

import numpy as np
import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from cordwood.columnar.partitioning import murmur2_partitions, rows_by_partition

LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # those of Apache Kafka's own test
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_keys_go_where_the_java_client_sends_them(key: str, hashed: int) -> None:
    assert murmur2_partitions(pa.array([key]), LARGEST).tolist() == [(hashed & 0x7FFFFFFF) % LARGEST]
    assert murmur2_partitions(pa.array([key]), 12).tolist() == [(hashed & 0x7FFFFFFF) % 12]


def test_keys_of_all_lengths_and_bytes() -> None:
    keys = [bytes((37 * length + place) & 0xFF for place in range(length)) for length in range(300)]
    expected = [(murmur2(key) & 0x7FFFFFFF) % 1013 for key in keys]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert murmur2_partitions(pa.array(keys, kind), 1013).tolist() == expected


def test_null_keys_have_no_partition_of_their_own() -> None:
    assert murmur2_partitions(pa.array([None, b"", None]), 1).tolist() == [-1, 0, -1]
    assert murmur2_partitions(pa.nulls(2), 9).tolist() == [-1, -1]
    assert murmur2_partitions(pa.array([], pa.string()), 9).tolist() == []


def test_slices_and_chunks_are_the_same_keys() -> None:
    keys = [None if number % 7 == 3 else f"key {number}" for number in range(100)]
    expected = murmur2_partitions(pa.array(keys), 50).tolist()
    assert expected[3] == -1
    assert murmur2_partitions(pa.array(keys).slice(13, 60), 50).tolist() == expected[13:73]
    chunks = pa.chunked_array([pa.array(keys[:31]), pa.array(keys[20:]).slice(11)])
    assert murmur2_partitions(chunks, 50).tolist() == expected


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        murmur2_partitions(pa.array([[1]]), 3)
    with pytest.raises(ValueError, match="0 partitions"):
        murmur2_partitions(pa.array([b"a"]), 0)
    broken = pa.Array.from_buffers(
        pa.binary(), 2, [None, pa.py_buffer(np.array([0, 99, 5], np.int32)), pa.py_buffer(b"short")]
    )
    with pytest.raises(ValueError, match="row 0: the array's offsets point outside"):
        murmur2_partitions(broken, 3)


def test_rows_come_together_by_partition_and_keep_their_order() -> None:
    partitions = np.array([3, 0, 3, 1, 0, 3], np.int32)
    assert [(partition, rows.tolist()) for partition, rows in rows_by_partition(partitions, 5)] == [
        (0, [1, 4]),
        (1, [3]),
        (3, [0, 2, 5]),
    ]
    assert rows_by_partition(np.empty(0, np.int32), 5) == []


@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_row_without_a_partition_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match=f"row 1: there is no partition {partition}"):
        rows_by_partition(np.array([0, partition], np.int32), 2)
