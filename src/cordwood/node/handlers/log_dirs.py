"""DescribeLogDirs: the sizes of partitions on disk."""

from typing import TYPE_CHECKING, Any

from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.node.partition import Partition
from cordwood.node.request import Request, by_topic, serves
from cordwood.node.turns import Steps
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.node.node import Node


SIZED_PER_STEP = 100
"""Partitions in one step: a log may have to be opened to be sized."""


def describe_log_dirs(node: "Node", request: Request) -> Steps:
    """Describes the one data directory, with the size of each requested partition (null: of all)."""
    body = yield from request.read()
    asked = ((topic.topic, index) for topic in body.topics or () for index in topic.partitions)
    names = (partition.name for partition in list(node.hosted)) if body.topics is None else asked
    sized: list[tuple[str, dict[str, Any]]] = []
    for looked_at, (topic, index) in enumerate(names, 1):
        partition = node.hosted.get(topic, index)
        if partition is not None:
            sized.append((topic, _sized(node, partition)))
        if not looked_at % SIZED_PER_STEP:
            yield

    def measured(free: tuple[int, int] | Exception) -> None:
        total_bytes, usable_bytes = (-1, -1) if isinstance(free, Exception) else free
        result = {
            "error_code": ErrorCode.NONE,
            "log_dir": node.logs.path,
            "topics": by_topic(sized),
            "total_bytes": total_bytes,
            "usable_bytes": usable_bytes,
            "is_cordoned": False,
        }
        request.answer(error_code=ErrorCode.NONE, results=[result])

    node.effects.for_client(request.reply.connection_id, node.logs.free_bytes, measured)


def _sized(node: "Node", partition: Partition) -> dict[str, Any]:
    size_bytes = 0
    if partition.opened is not None or node.logs.has_log(partition.name):
        try:
            size_bytes = partition.log.segments.size_bytes
        except StorageFailure as failure:
            node.report_storage_failure(failure)
    return {
        "partition_index": partition.name.partition,
        "partition_size": size_bytes,
        "offset_lag": 0,
        "is_future_key": False,
    }


HANDLERS = (serves(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, describe_log_dirs),)
