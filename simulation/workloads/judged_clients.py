"""Clients of several principals that ask for whatever there is, with and without rights."""

import random
from collections.abc import Callable
from typing import Any, Final

from cordwood.records.build import build_batch
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Connection, Exchange
from simulation.world.world import World

TOPICS: Final = ("orders", "orders-eu", "refunds")
CONSUMERS, CLASSIC, POSITIONS = "consumers", "classic", "positions"
"""Groups: two with members, and one that is its positions."""
PATTERNS: Final = (".*", "orders.*")


class JudgedClient:
    """One process of a principal. It sends requests whether it has the right or not."""

    def __init__(self, world: World, chance: random.Random, user: str) -> None:
        self._world = world
        self._chance = chance
        self.user = user
        self._epoch = 0
        """The member's epoch in the group of the consumer protocol."""
        self._owned: list[dict[str, Any]] = []
        self._producer = (-1, -1)

    def ask(self, connection: Connection) -> None:
        """Sends a request that the seed picks."""
        asks: list[Callable[[], tuple[ApiKey, int, dict[str, Any]]]] = [
            self._produce,
            self._fetch,
            self._fetch,
            self._pass_for_a_follower,
            self._commit,
            self._positions,
            lambda: (ApiKey.METADATA, 9, {"topics": None}),
            self._beat,
            self._beat,
            self._join,
            lambda: (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": self.user, "transaction_timeout_ms": 60_000}),
            self._add_partition,
        ]
        key, version, values = self._chance.choice(asks)()
        connection.request(key, version, values, self._ended)

    def _topic(self) -> str:
        return self._chance.choice(TOPICS)

    def _produce(self) -> tuple[ApiKey, int, dict[str, Any]]:
        batch = bytes(build_batch([(self._world.clock.wall_ms, b"key", self.user.encode(), ())]))
        topic = {"name": self._topic(), "partition_data": [{"index": 0, "records": batch}]}
        return ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 1000, "topic_data": [topic]}

    def _fetch(self) -> tuple[ApiKey, int, dict[str, Any]]:
        """A fetch of all topics from their starts, or one that waits at the end of a topic."""
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        names: tuple[str, ...] = TOPICS
        wait_ms = 0
        if self._chance.random() < 0.7:
            names, wait_ms = (self._topic(),), self._chance.choice((50, 500, 3000))
            asked["fetch_offset"] = self._world.node.hosted.leader(names[0], 0).log.offsets.end
        topics = [{"topic": name, "partitions": [asked]} for name in names]
        return ApiKey.FETCH, 12, {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 10_000, "topics": topics}

    def _pass_for_a_follower(self) -> tuple[ApiKey, int, dict[str, Any]]:
        """Asks what only a broker may ask, in the name of one that is registered."""
        image = self._world.node.image
        state = {"replica_id": image.node_id, "replica_epoch": image.broker_epochs[image.node_id]}
        topic = image.topics[self._topic()]
        epoch = topic.partitions[0].leader_epoch
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": epoch}
        topics = [{"topic_id": topic.topic_id, "partitions": [asked]}]
        values = {"replica_state": state, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "topics": topics}
        return ApiKey.FETCH, 15, values

    def _commit(self) -> tuple[ApiKey, int, dict[str, Any]]:
        position = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        topics = [{"name": self._topic(), "partitions": [position]}]
        return ApiKey.OFFSET_COMMIT, 8, {"group_id": POSITIONS, "topics": topics}

    def _positions(self) -> tuple[ApiKey, int, dict[str, Any]]:
        topics = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
        return ApiKey.OFFSET_FETCH, 7, {"group_id": POSITIONS, "topics": topics}

    def _beat(self) -> tuple[ApiKey, int, dict[str, Any]]:
        joins = self._epoch == 0
        values = {
            "group_id": CONSUMERS,
            "member_id": self.user,
            "member_epoch": self._epoch,
            "rebalance_timeout_ms": 1000 if joins else -1,
            "subscribed_topic_regex": self._chance.choice(PATTERNS) if joins else None,
            "topic_partitions": [] if joins else self._owned,
        }
        return ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values

    def _join(self) -> tuple[ApiKey, int, dict[str, Any]]:
        values = {
            "group_id": CLASSIC,
            "session_timeout_ms": 6000,
            "rebalance_timeout_ms": 500,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": self.user.encode()}],
        }
        return ApiKey.JOIN_GROUP, 3, values

    def _add_partition(self) -> tuple[ApiKey, int, dict[str, Any]]:
        producer_id, epoch = self._producer
        values = {
            "v3_and_below_transactional_id": self.user,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": self._topic(), "partitions": [0]}],
        }
        return ApiKey.ADD_PARTITIONS_TO_TXN, 3, values

    def _ended(self, exchange: Exchange) -> None:
        answer = exchange.answer
        if exchange.key is ApiKey.INIT_PRODUCER_ID and exchange.answered:
            self._producer = (answer.producer_id, answer.producer_epoch)
        elif exchange.key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            if not exchange.answered or answer.error_code:
                self._epoch, self._owned = 0, []
                return
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._owned = [
                    {"topic_id": each.topic_id, "partitions": each.partitions}
                    for each in answer.assignment.topic_partitions
                ]
