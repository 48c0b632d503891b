"""Clients that move partitions between the data directories of brokers."""

from cordwood.wire.apis import ApiKey
from simulation.world.stage import Client


class DirectoryMover(Client):
    """Moves one partition of one broker at a time, now and then one that is not there, or to its present directory."""

    def act(self) -> str | None:
        topic = self.stage.some_topic()
        if topic is None:
            return None
        machine = self.chance.choice(self.stage.world.machines)
        index = self.chance.randrange(len(topic.partitions))
        path = self.chance.choice(machine.setup.data_directories)
        version = self.stage.version(ApiKey.ALTER_REPLICA_LOG_DIRS)
        values = {"dirs": [{"path": path, "topics": [{"name": topic.name, "partitions": [index]}]}]}
        self.connection_to(machine.broker_id).request(ApiKey.ALTER_REPLICA_LOG_DIRS, version, values, self.routes.noted)
        return f"moves {topic.name}-{index} at {machine} to {path}"

    def finish(self) -> bool:
        return False
