"""How a fetcher asks its leader: the state of its one request, the partitions that it names, and its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.model.identifiers import TopicId
from cordwood.model.state_tables import Moves, State
from cordwood.node.partitions.partition import Partition
from cordwood.replication.follower import FetchFrom, FollowerReplica
from cordwood.wire.fetch import UNKNOWN_HIGH_WATERMARK

if TYPE_CHECKING:
    from cordwood.node.replication.fetcher_rooms import FetcherRooms

NO_SESSION, SESSIONLESS = 0, -1
MIN_BYTES = 1


class Asking(State):
    IDLE = "no request is due: there is nothing to ask for, or records wait for the disk"
    DUE = "a request goes out in the next turn"
    ASKED = "a request is outstanding"
    HURRIED = "a request is outstanding, and the leader was asked to answer it at once"
    PAUSED = "the leader could not be asked, and is asked again after a pause"
    STOPPED = "the broker stops: nothing is fetched any more, so that its logs come to rest"


FETCHER_MOVES = Moves(
    "fetcher",
    {
        Asking.IDLE: {Asking.DUE, Asking.ASKED, Asking.HURRIED, Asking.PAUSED},
        Asking.DUE: {Asking.IDLE},
        Asking.ASKED: {Asking.DUE},
        Asking.HURRIED: {Asking.ASKED},
        Asking.PAUSED: {Asking.IDLE},
        Asking.STOPPED: set(Asking),
    },
)


class Asked(NamedTuple):
    """One partition of a request."""

    partition: Partition
    following: FollowerReplica
    place: FetchFrom


def fetch_values(rooms: FetcherRooms, asked: Mapping[tuple[TopicId, int], Asked], wait_ms: int) -> dict[str, Any]:
    """The fields of a request for these partitions, which the leader holds for this long if it has no records."""
    settings = rooms.image.settings
    topics: dict[TopicId, list[dict[str, int]]] = {}
    for (topic_id, index), (partition, following, place) in asked.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition": index,
                "current_leader_epoch": following.leader_epoch,
                "fetch_offset": place.offset,
                "last_fetched_epoch": place.last_fetched_epoch,
                "log_start_offset": place.log_start,
                "partition_max_bytes": settings.replica_fetch_max_bytes,
                # A leader that is told of an older high watermark than its own answers at once.
                "high_watermark": following.leader_high_watermark
                if partition.news_until_ms > rooms.loop.now.boot_ms
                else UNKNOWN_HIGH_WATERMARK,
            }
        )
    return {
        "replica_state": {
            "replica_id": rooms.image.node_id,
            "replica_epoch": rooms.serving.broker_epoch,
        },
        "max_wait_ms": wait_ms,
        "min_bytes": MIN_BYTES,
        "max_bytes": settings.replica_fetch_response_max_bytes,
        "isolation_level": 0,
        "session_id": NO_SESSION,
        "session_epoch": SESSIONLESS,
        "topics": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
