"""Clients that ask for the ends of partitions, as tools that show lag do."""

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Exchange
from simulation.world.stage import Client

LATEST = -1


class EndWatcher(Client):
    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        index = self.chance.randrange(len(topic.partitions))
        asked = {"partition_index": index, "current_leader_epoch": -1, "timestamp": LATEST}
        values = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic.name, "partitions": [asked]}],
        }
        leader = self.connection_to(self.routes.leader(topic.name, index))
        leader.request(ApiKey.LIST_OFFSETS, self.stage.version(ApiKey.LIST_OFFSETS), values, self._told)
        return f"asks where {topic.name}-{index} ends"

    def finish(self) -> bool:
        return False

    def _told(self, exchange: Exchange) -> None:
        if not self.routes.failed(exchange):
            (entry,) = exchange.answer.topics[0].partitions
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()
