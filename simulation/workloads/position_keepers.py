"""Programs that keep their positions in the broker: commits and fetches, in all versions."""

from typing import Any

from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Connection, Exchange
from simulation.world.stage import GROUP, Client, Stage

TOPIC_IDS_FROM = 10
GROUPS_FROM = 8
ALL_TOPICS_FROM = 2


class PositionKeeper(Client):
    """A client with its own group. Each commit has a higher offset than all earlier ones."""

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name)
        self._offset = 0

    def act(self) -> str | None:
        match self.chance.randrange(5):
            case 0:
                return self._find_coordinator()
            case 1 | 2:
                return self._commit()
            case _:
                return self._fetch()

    def finish(self) -> bool:
        return False

    def _find_coordinator(self) -> str:
        version = self.stage.version(ApiKey.FIND_COORDINATOR)
        values: dict[str, Any] = {"coordinator_keys": [self.name]} if version >= 4 else {"key": self.name}
        self.connection.request(ApiKey.FIND_COORDINATOR, version, values | {"key_type": 0}, self._found)
        return "looks for its coordinator"

    def _found(self, exchange: Exchange) -> None:
        if not self.routes.failed(exchange):
            answer = exchange.answer.coordinators[0] if exchange.version >= 4 else exchange.answer
            if not answer.error_code:
                self.routes.coordinators[GROUP] = answer.node_id

    @property
    def _coordinator(self) -> Connection:
        known = self.routes.coordinator
        return self.connection if known is None else self.connection_to(known)

    def _commit(self) -> str | None:
        version = self.stage.version(ApiKey.OFFSET_COMMIT)
        topic = self.stage.some_topic()
        if topic is None:
            return None
        self._offset += 1
        index = self.chance.randrange(len(topic.partitions))
        committed = {"partition_index": index, "committed_offset": self._offset, "committed_metadata": "here"}
        entry = self.stage.topic_fields(topic, version >= TOPIC_IDS_FROM) | {"partitions": [committed]}
        self._coordinator.request(
            ApiKey.OFFSET_COMMIT, version, {"group_id": self.name, "topics": [entry]}, self.routes.noted
        )
        return f"commits {self._offset} in {topic.name}-{index}"

    def _fetch(self) -> str | None:
        version = self.stage.version(ApiKey.OFFSET_FETCH)
        topics: list[dict[str, Any]] | None = [
            self.stage.topic_fields(topic, version >= TOPIC_IDS_FROM)
            | {"partition_indexes": list(range(len(topic.partitions)))}
            for topic in self.stage.topics()
        ]
        if version >= ALL_TOPICS_FROM and self.chance.random() < 0.3:
            topics = None
        if version >= GROUPS_FROM:
            values: dict[str, Any] = {"groups": [{"group_id": self.name, "topics": topics}]}
        else:
            values = {"group_id": self.name, "topics": topics}
        self._coordinator.request(ApiKey.OFFSET_FETCH, version, values, self.routes.noted)
        return "fetches its positions"
