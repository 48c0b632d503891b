"""The stage that workloads share: the world, the dice, the ledger, and the topics that clients know."""

import random
from collections.abc import Mapping
from typing import Any

from cordwood.cluster.image import TopicImage
from cordwood.node.apis import SERVED
from cordwood.simulation.exchange import Connection
from cordwood.simulation.ledger import Ledger
from cordwood.simulation.world import World
from cordwood.wire.apis import ApiKey


class Stage:
    def __init__(self, world: World, chance: random.Random, ledger: Ledger) -> None:
        self.world = world
        self.chance = chance
        self.ledger = ledger
        self._identities = 0

    def new_identity(self, who: str) -> bytes:
        """A unique identity for a record."""
        self._identities += 1
        return f"{who}.{self._identities}".encode()

    def topics(self) -> list[TopicImage]:
        """Topics as clients know them, without internal ones."""
        return [topic for topic in self.world.node.image.sorted_topics() if not topic.internal]

    def some_topic(self) -> TopicImage | None:
        topics = self.topics()
        return self.chance.choice(topics) if topics else None

    def version(self, key: ApiKey, lowest: int = 0) -> int:
        api = SERVED[key]
        return self.chance.randint(max(lowest, api.min_version), api.max_version)

    def topic_fields(self, topic: TopicImage, by_id: bool, name_field: str = "name") -> dict[str, Any]:
        return {"topic_id": topic.topic_id} if by_id else {name_field: topic.name}


class Client:
    """One program with at most one connection, which it opens again when it needs it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self._connection: Connection | None = None

    @property
    def chance(self) -> random.Random:
        return self.stage.chance

    @property
    def connection(self) -> Connection:
        if self._connection is None or not self._connection.open:
            self._connection = self.stage.world.connect()
        return self._connection

    @property
    def unanswered(self) -> int:
        return 0 if self._connection is None else len(self._connection.under_way)

    def hang_up(self) -> None:
        """Gives up waiting: closes the connection, whatever requests are under way."""
        if self._connection is not None and self._connection.open:
            self._connection.close()
        self._connection = None

    def act(self) -> str | None:
        """Acts once, if there is an action to take; returns a line for the transcript."""
        raise NotImplementedError

    def finish(self) -> bool:
        """In the liveness phase: takes one of the remaining steps. False once none is left."""
        raise NotImplementedError


Values = Mapping[str, Any]
