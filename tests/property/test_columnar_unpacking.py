"""Compressed sections, unpacked into room that is used again, beside the codecs that everything else uses."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples

from cordwood.columnar.unpacking import Unpacker
from cordwood.records.batch import Codec
from cordwood.records.compression import compress, decompress
from cordwood.records.corruption import CorruptRecords

codecs = st.sampled_from([codec for codec in Codec if codec])
contents = st.tuples(st.binary(max_size=300), st.integers(0, 60)).map(lambda pair: pair[0] * pair[1])
mutations = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)
raw_snappy = st.just(-1)


def packed(codec: int, content: bytes) -> tuple[int, bytes]:
    if codec != -1:
        return codec, compress(codec, content)
    import cramjam

    return Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(content))


def outcome(codec: int, section: bytes, max_size: int) -> bytes | None:
    try:
        return decompress(codec, section, max_size)
    except CorruptRecords:
        return None


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(codecs | raw_snappy, contents, mutations), min_size=1, max_size=5),
    st.integers(1, 20_000),
    st.integers(0, 20_000),
)
def test_sections_are_unpacked_or_refused_as_they_are_elsewhere(
    sections: list[tuple[int, bytes, list[tuple[int, int]]]], room: int, max_size: int
) -> None:
    unpacker = Unpacker(room)
    wanted = []
    for chosen, content, changes in sections:
        codec, section = packed(chosen, content)
        damaged = bytearray(section)
        for place, value in changes:
            if damaged:
                damaged[place % len(damaged)] = value
        expected = outcome(codec, bytes(damaged), max_size)
        used = unpacker.used
        try:
            start, end = unpacker.unpack(codec, memoryview(damaged), max_size)
        except CorruptRecords:
            assert expected is None
            assert unpacker.used == used
        else:
            assert bytes(unpacker.data[start:end]) == expected
            wanted.append(expected)
    assert bytes(unpacker.data) == b"".join(part for part in wanted if part is not None)


@settings(max_examples=examples(200), deadline=None)
@given(codecs, st.binary(max_size=300), st.integers(1, 5000))
def test_arbitrary_bytes_are_judged_alike(codec: int, data: bytes, max_size: int) -> None:
    expected = outcome(codec, data, max_size)
    try:
        start, end = (unpacker := Unpacker(1000)).unpack(codec, memoryview(data), max_size)
        assert bytes(unpacker.data[start:end]) == expected
    except CorruptRecords:
        assert expected is None
