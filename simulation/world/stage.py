"""The stage that workloads share: the world, the dice, the ledger, and the topics that clients know."""

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cordwood.cluster.metadata.image import ClusterImage, TopicImage
from cordwood.history.events import Event
from cordwood.history.recorder import Recorder
from cordwood.node.apis import SERVED
from cordwood.node.partitions.partition import Partition
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Connection, Exchange
from simulation.world.ledger import Ledger
from simulation.world.world import World

ASTRAY = 0.03

GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""


class Stage:
    def __init__(self, world: World, chance: random.Random, ledger: Ledger) -> None:
        self.world = world
        self.chance = chance
        self.ledger = ledger
        self.history: list[Event] = []
        """The events that clients recorded, for the history checker."""
        self.recorder = Recorder(sink=self.history.append, clock_ms=lambda: world.clock.boot_ms)
        self._identities = 0
        self.astray = ASTRAY
        """The probability that a client asks any broker although it knows better."""
        self._image: ClusterImage | None = None

    def new_identity(self, who: str) -> bytes:
        """A unique identity for a record."""
        self._identities += 1
        return f"{who}.{self._identities}".encode()

    @property
    def several(self) -> bool:
        """True if there are several brokers: then clients have to find the leaders."""
        return len(self.world.machines) > 1

    @property
    def image(self) -> ClusterImage:
        """The metadata of the broker that knows most."""
        if not self.several:
            return self.world.node.image
        if running := self.world.running:
            self._image = max((machine.node.image for machine in running), key=lambda image: image.revision)
        assert self._image is not None, "no broker has ever run"
        return self._image

    def leading(self, topic: str, index: int) -> Partition | None:
        """The partition on the running broker that leads it; an older leader may not know that it is deposed."""
        if not self.several:
            return self.world.node.hosted.leader(topic, index)
        leading = [
            partition
            for machine in self.world.running
            if (partition := machine.node.hosted.get(topic, index)) is not None and partition.role.leads
        ]
        return max(leading, key=lambda partition: partition.role.leader_epoch, default=None)

    def topics(self) -> list[TopicImage]:
        """Topics as clients know them, without internal ones."""
        return [topic for topic in self.image.sorted_topics() if not topic.internal]

    def some_topic(self) -> TopicImage | None:
        topics = self.topics()
        return self.chance.choice(topics) if topics else None

    def version(self, key: ApiKey, lowest: int = 0) -> int:
        api = SERVED[key]
        return self.chance.randint(max(lowest, api.min_version), api.max_version)

    def topic_fields(self, topic: TopicImage, by_id: bool, name_field: str = "name") -> dict[str, Any]:
        return {"topic_id": topic.topic_id} if by_id else {name_field: topic.name}


class Routes:
    """The leaders of partitions and the coordinator of a group, as one client has learnt them from brokers.

    With one broker there is nothing to learn. A client that does not know asks any broker, and now and then a client
    that knows does so, too: brokers have to refuse.
    """

    def __init__(self, stage: Stage, connection_to: Callable[[int], Connection]) -> None:
        self._stage = stage
        self._connection_to = connection_to
        self._leaders: dict[tuple[str, int], int] = {}
        self.coordinators: dict[int, int] = {}
        """The coordinator of the client's group (0) and of its transactional id (1)."""
        self._home: int | None = None
        self._learning = False
        self._looking: set[int] = set()

    @property
    def coordinator(self) -> int | None:
        """The coordinator of the client's group."""
        return self.coordinators.get(GROUP)

    def coordinator_of(self, key_type: int, key: str) -> int:
        """The coordinator, or any broker while the client does not know it, or goes astray."""
        if not self._stage.several:
            return self.anywhere()
        if key_type not in self.coordinators:
            self.find_coordinator(key, key_type)
        elif self._stage.chance.random() >= self._stage.astray:
            return self.coordinators[key_type]
        return self.anywhere()

    def anywhere(self) -> int:
        """Any broker: the same until it fails."""
        machines = self._stage.world.machines
        if len(machines) == 1:
            return machines[0].broker_id
        if self._home is None:
            self._home = self._stage.chance.choice(machines).broker_id
        return self._home

    def leader(self, topic: str, index: int) -> int:
        if self._stage.several and (
            self._stage.chance.random() < self._stage.astray or (topic, index) not in self._leaders
        ):
            return self._stage.chance.choice(self._stage.world.machines).broker_id
        return self._leaders.get((topic, index), self.anywhere())

    def failed(self, exchange: Exchange) -> bool:
        """Notes that a request was not answered: another broker may know more. True if there was no answer."""
        if exchange.answered:
            return False
        self._home = None
        self.coordinators.clear()
        self.learn()
        return True

    def noted(self, exchange: Exchange) -> None:
        """Takes the end of a request whose answer does not matter."""
        self.failed(exchange)

    def learn(self) -> None:
        """Asks for the leaders of all partitions, unless such a request is under way."""
        if self._learning or not self._stage.several:
            return
        self._learning = True
        self._connection_to(self.anywhere()).request(ApiKey.METADATA, 4, {"topics": None}, self._learnt)

    def _learnt(self, exchange: Exchange) -> None:
        self._learning = False
        if not exchange.answered:
            self._home = None
            return
        self._leaders = {
            (topic.name, each.partition_index): each.leader_id
            for topic in exchange.answer.topics
            for each in topic.partitions
            if each.leader_id > 0
        }

    def not_at(self, broker_id: int) -> None:
        """Forgets coordinators at this broker, which has said that it is none."""
        self.coordinators = {kind: each for kind, each in self.coordinators.items() if each != broker_id}

    def find_coordinator(self, key: str, key_type: int = GROUP) -> str | None:
        """Asks for the coordinator of the group or the transactional id, unless such a request is under way."""
        if key_type in self._looking:
            return None
        self._looking.add(key_type)
        values = {"key": key, "key_type": key_type}
        found = partial(self._found, key_type)
        self._connection_to(self.anywhere()).request(ApiKey.FIND_COORDINATOR, 3, values, found)
        return "looks for its coordinator"

    def _found(self, key_type: int, exchange: Exchange) -> None:
        self._looking.discard(key_type)
        if not exchange.answered:
            self._home = None
        elif not exchange.answer.error_code:
            self.coordinators[key_type] = exchange.answer.node_id


class Client:
    """One program with at most one connection to each broker, which it opens again when needed."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.routes = Routes(stage, self.connection_to)
        self._connections: dict[int, Connection] = {}

    @property
    def chance(self) -> random.Random:
        return self.stage.chance

    @property
    def connection(self) -> Connection:
        """A connection to any broker."""
        return self.connection_to(self.routes.anywhere())

    def connection_to(self, broker_id: int) -> Connection:
        connection = self._connections.get(broker_id)
        if connection is None or not connection.open:
            connection = self._connections[broker_id] = self.stage.world.connect(broker_id)
        return connection

    @property
    def unanswered(self) -> int:
        return sum(len(connection.under_way) for connection in self._connections.values())

    def hang_up(self) -> None:
        """Gives up waiting: closes all connections, whatever requests are under way."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def act(self) -> str | None:
        """Acts once, if there is an action to take; returns a line for the transcript."""
        raise NotImplementedError

    def finish(self) -> bool:
        """Takes one of the remaining steps, in the liveness phase. False once none is left."""
        raise NotImplementedError


Values = Mapping[str, Any]
