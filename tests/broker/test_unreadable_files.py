"""A broker whose disk cannot read one file: readers of other partitions do not suffer for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import eventually
from tests.raw_client import RawClient

from cordwood.embedded import Broker
from cordwood.log.directory.data_directories import DataDirectories
from cordwood.log.files.os_file import OsFile
from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.node.partitions import unreadable
from cordwood.wire.apis import ApiKey

PLENTY = 1 << 20
BOTH = ("victim", "fine")


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Records of the topic `victim` cannot be read, and are not in memory."""

    def fail(file: OsFile, *_: object) -> int:
        raise StorageFailure(f"cannot read {file.path}: Input/output error")

    with Broker(data_dir=tmp_path) as broker:
        for topic in BOTH:
            broker.log.append(topic, None, "x")
        for name in ("read_now", "send_now", "read_cold"):
            monkeypatch.setattr(OsFile, name, _of_victim(fail, getattr(OsFile, name)))
        yield broker
        monkeypatch.undo()


def _of_victim(fail: Any, real: Any) -> Any:
    def call(file: OsFile, *arguments: Any) -> Any:
        return (fail if "victim" in file.path else real)(file, *arguments)

    return call


def fetched(broker: Broker) -> dict[str, tuple[ErrorCode, bool]] | None:
    """For each topic its error, and whether there are records; None: the broker hung up. As a follower asks: for all
    partitions in one request."""
    client = RawClient(broker.bootstrap_servers)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": PLENTY}
    topics = [{"topic": topic, "partitions": [asked]} for topic in BOTH]
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": PLENTY, "session_epoch": -1, "topics": topics}
    try:
        answer = client.send(ApiKey.FETCH, 12, **values)
    except (AssertionError, ConnectionError):
        return None
    finally:
        client.close()
    found = {}
    for topic in answer.responses:
        (partition,) = topic.partitions
        found[topic.topic] = ErrorCode(partition.error_code), bool(partition.records)
    return found


def test_a_file_that_cannot_be_read_is_refused_alone_from_the_second_fetch_on(broker: Broker) -> None:
    answers = [fetched(broker) for _ in range(5)]
    assert answers[0] is None, "the size of the answer was told before the file was read"
    assert answers[1:] == [{"victim": (ErrorCode.KAFKA_STORAGE_ERROR, False), "fine": (ErrorCode.NONE, True)}] * 4


def test_the_disk_is_probed_after_a_read_failed_while_its_answer_was_sent(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker on a dead disk that only readers use would lead on, and serve nobody, until somebody restarts it."""
    probed: list[DataDirectories] = []

    def probe(directories: DataDirectories) -> list[object]:
        probed.append(directories)
        return []

    monkeypatch.setattr(DataDirectories, "probe", probe)
    assert fetched(broker) is None
    eventually(lambda: probed, what="a probe")


def test_a_file_that_can_be_read_again_is_served_after_a_while(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "REFUSED_MS", 50)
    assert fetched(broker) is None
    monkeypatch.undo()
    served = dict.fromkeys(BOTH, (ErrorCode.NONE, True))
    eventually(lambda: fetched(broker) == served, what="both topics")
