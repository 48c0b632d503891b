"""Names of groups, positions of a group, and its deletion. Positions are committed as by a group without members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.client.answers import NO_POSITION, Committed
from cordwood.client.brokers import Brokers, KeyType
from cordwood.client.errors import UnknownTopic, error_code, refusal
from cordwood.client.link import Link
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.delete_groups import DeleteGroups
    from cordwood.wire.message_types.offset_commit import OffsetCommit
    from cordwood.wire.message_types.offset_fetch import OffsetFetch


def committed(
    brokers: Brokers, group: str, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, Committed]:
    topics = None
    if partitions is not None:
        if not partitions:
            return {}
        topics = [
            {"name": name, "partition_indexes": [partition.partition for partition in of_topic]}
            for name, of_topic in by_topic(partitions).items()
        ]
    # `require_stable`: the answer waits for a transaction that is just committing positions of this group.
    values = {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": topics}],
        "require_stable": True,
    }

    def read(link: Link, response: OffsetFetch.Response) -> dict[TopicPartition, Committed]:
        answer = response.groups[0] if response.groups else response
        _check(link, ApiKey.OFFSET_FETCH, f"of group {group}", answer.error_code)
        found: dict[TopicPartition, Committed] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if error_code(row.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                _check(link, ApiKey.OFFSET_FETCH, f"of group {group} in {partition}", row.error_code)
                if row.committed_offset >= 0 or row.metadata:
                    found[partition] = Committed(max(row.committed_offset, NO_POSITION), row.metadata or "")
        return found

    return brokers.ask_coordinator(KeyType.GROUP, group, ApiKey.OFFSET_FETCH, values, read)


_LAST_WITH_RETENTION: Final = 4
"""The last version of OffsetCommit with a retention of positions."""


def commit(
    brokers: Brokers,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str | Mapping[TopicPartition, str],
    retention_ms: int | None = None,
) -> None:
    if not offsets:
        return
    values: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "committed_offset": offsets[partition],
                        "committed_metadata": metadata if isinstance(metadata, str) else metadata.get(partition, ""),
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in by_topic(offsets).items()
        ],
    }

    def read(link: Link, response: OffsetCommit.Response) -> None:
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if error_code(row.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    message = f"group {group} cannot have a position in {partition}: there is no such partition"
                    raise UnknownTopic(topic.name, message)
                _check(link, ApiKey.OFFSET_COMMIT, f"of group {group} in {partition}", row.error_code)

    if retention_ms is None:
        brokers.ask_coordinator(KeyType.GROUP, group, ApiKey.OFFSET_COMMIT, values, read)
    else:
        values["retention_time_ms"] = retention_ms
        brokers.ask_coordinator(KeyType.GROUP, group, ApiKey.OFFSET_COMMIT, values, read, at_most=_LAST_WITH_RETENTION)


def names(brokers: Brokers) -> list[str]:
    """The names of all groups, from all brokers: each broker knows the groups that it coordinates."""

    def attempt() -> list[str]:
        found: set[str] = set()
        for link in brokers.all():
            response = link.ask(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
            _check(link, ApiKey.LIST_GROUPS, "", response.error_code)
            found.update(row.group_id for row in response.groups)
        return sorted(found)

    return brokers.retried(attempt)


def delete_group(brokers: Brokers, group: str) -> None:
    def read(link: Link, response: DeleteGroups.Response) -> None:
        for row in response.results:
            # A group that does not exist counts as deleted.
            if error_code(row.error_code) != ErrorCode.GROUP_ID_NOT_FOUND:
                _check(link, ApiKey.DELETE_GROUPS, f"of group {group}", row.error_code)

    brokers.ask_coordinator(KeyType.GROUP, group, ApiKey.DELETE_GROUPS, {"groups_names": [group]}, read)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition)
    return found


def _check(link: Link, api_key: ApiKey, about: str, code: int) -> None:
    if code:
        raise refusal(error_code(code), link.was_asked(api_key, about))
