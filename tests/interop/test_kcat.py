"""kcat, Debian's: an old librdkafka behind a command line."""

import json
import shutil
import subprocess

import pytest
from tests.conftest import MakeTopic, RunningBroker

KCAT = shutil.which("kcat")

pytestmark = [pytest.mark.landing, pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: kcat)")]


def kcat(broker: RunningBroker, *arguments: str, stdin: bytes = b"") -> bytes:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", broker.bootstrap, *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_metadata(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap]
    (described,) = listed["topics"]
    assert described["topic"] == topic
    assert len(described["partitions"]) == 3
    assert all("error" not in partition for partition in described["partitions"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker: RunningBroker, topic: str, codec: str) -> None:
    lines = b"".join(b"k%d:value %d\n" % (n, n) for n in range(100))
    kcat(broker, "-P", "-t", topic, "-K", ":", "-z", codec, "-X", "acks=all", stdin=lines)
    assert kcat(broker, "-C", "-t", topic, "-K", ":", "-e", "-q") == lines


def test_idempotent_produce_with_headers_and_nulls(broker: RunningBroker, topic: str) -> None:
    kcat(
        broker,
        *("-P", "-t", topic, "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", "-X", "enable.idempotence=true"),
        stdin=b"k:\n:v\n",
    )
    out = kcat(broker, "-C", "-t", topic, "-e", "-q", "-J").splitlines()
    first, second = (json.loads(line) for line in out)
    assert (first["key"], first["payload"], first["headers"]) == ("k", None, ["a", "1", "b", "2"])
    assert (second["key"], second["payload"]) == (None, "v")


def test_from_an_offset_from_the_end_and_a_bounded_count(broker: RunningBroker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin=b"".join(b"v%d\n" % n for n in range(50)))
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "47", "-e", "-q") == b"v47\nv48\nv49\n"
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q") == b"v48\nv49\n"
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "2", "-q") == b"v0\nv1\n"


def test_query_offsets_by_timestamp(broker: RunningBroker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin=b"a\nb\n")
    assert f"{topic} [0] offset 0" in kcat(broker, "-Q", "-t", f"{topic}:0:0").decode()
    assert f"{topic} [0] offset 2" in kcat(broker, "-Q", "-t", f"{topic}:0:-1").decode()
    assert f"{topic} [0] offset 0" in kcat(broker, "-Q", "-t", f"{topic}:0:-2").decode()
