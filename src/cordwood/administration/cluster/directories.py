"""The data directories of one broker, and the moves of logs between them."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from cordwood.administration.asking import ask
from cordwood.administration.config.changes import broker_resource, change_settings
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words, size_in_words
from cordwood.wire.apis import ApiKey

LOOK_AGAIN_S = 0.5
_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class LogPlace(NamedTuple):
    partition: int
    directory: str
    size_bytes: int
    lag: int
    is_future: bool
    """True if this is the copy of a log that moves."""


class Directories(NamedTuple):
    paths: list[str]
    logs: list[LogPlace]


def directories_of(address: Address, topic: str, timeout_s: float) -> Directories:
    """The directories of a broker, with the logs of a topic. Raises Failure."""
    told = ask(address, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}, timeout_s)
    logs = [
        LogPlace(each.partition_index, result.log_dir, each.partition_size, each.offset_lag, each.is_future_key)
        for result in told.results
        for found in result.topics
        if found.name == topic
        for each in found.partitions
    ]
    return Directories([result.log_dir for result in told.results], sorted(logs))


def named_directory(name: str, paths: Sequence[str], node_id: int) -> str:
    """The directory of a broker that a path names: as it is, as one of this machine, or by its end. Raises Failure."""
    for wanted in (name, os.path.abspath(name)):
        if wanted in paths:
            return wanted
    end = os.path.normpath(name)
    ending = [] if os.path.isabs(name) else [path for path in paths if path.endswith(f"/{end}")]
    if len(ending) == 1:
        return ending[0]
    raise Failure(
        "LOG_DIR_NOT_FOUND",
        f"{name} is {'none' if not ending else 'the end of several'} of the directories of broker {node_id}",
        f"it has {', '.join(paths)}",
        ExitCode.NOT_FOUND,
    )


def begin_moves(address: Address, topic: str, partitions: Sequence[int], directory: str, timeout_s: float) -> None:
    """Asks a broker to move logs. Raises Failure for the first refusal."""
    values = {"dirs": [{"path": directory, "topics": [{"name": topic, "partitions": list(partitions)}]}]}
    answer = ask(address, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, values, timeout_s)
    for result in answer.results:
        for each in result.partitions:
            if each.error_code:
                raise Failure(code_name(each.error_code), f"{topic}-{each.partition_index} does not move")


def await_moves(
    address: Address,
    node_id: int,
    topic: str,
    partitions: set[int],
    to: str,
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    """Waits until no copy is left, and says the progress. Raises Failure for logs that are not in the directory."""
    told = ""
    while True:
        logs = [each for each in directories_of(address, topic, timeout_s).logs if each.partition in partitions]
        copies = [each for each in logs if each.is_future]
        if not copies:
            break
        copied = size_in_words(sum(each.size_bytes for each in copies))
        line = f"{count_in_words(len(copies), 'log')} to move, {copied} copied so far"
        if line != told:
            say(line)
            told = line
        time.sleep(LOOK_AGAIN_S)
    left = sorted(each.partition for each in logs if each.directory != to)
    if left:
        raise Failure(
            "KAFKA_STORAGE_ERROR",
            f"partitions {', '.join(map(str, left))} of {topic} did not move to {to}",
            f"the log of broker {node_id} says why",
        )


@contextmanager
def throttled(connection: Connection, node_id: int, rate: int | None, say: Callable[[str], None]) -> Iterator[None]:
    """Limits the rate at which the broker copies logs between its directories, and lifts the limit at the end.
    `say` is told of a limit that stays."""
    if rate is None:
        yield
        return
    broker = broker_resource(str(node_id))
    change_settings(connection, broker, {_RATE: str(rate)}, ())
    try:
        yield
    finally:
        try:
            change_settings(connection, broker, {}, (_RATE,))
        except Failure as failure:
            say(f"the throttle was not lifted ({failure.message}): remove {_RATE} of broker {node_id}")
