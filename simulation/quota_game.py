"""A game about quotas: clients write and read more than they may, while an administrator changes their quotas.

Promises: each answer holds its client back for the time that all use of those who share the quota asks for, no longer
and no shorter; it tells this time; and it does not wait for it.
"""

import random
from dataclasses import dataclass

from cordwood.model.identifiers import TopicPartition
from cordwood.model.quotas import Named, QuotaKey
from cordwood.records.build import build_batch
from cordwood.security.sessions import Principal, Session
from cordwood.wire.apis import ApiKey
from simulation.checkers.quotas import QuotaChecker
from simulation.game import Game, Pace, play_out
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import CLIENT_ID, EVERYBODY, Connection, Exchange, encode_request
from simulation.world.world import World

PACE = Pace(waits=0.2, waits_ms=(1, 50, 400, 3000), eagerness=0.6)
USERS = ("alice", "bob")
ENTITIES = (
    {Named.USER: "alice"},
    {Named.USER: None},
    {Named.CLIENT_ID: CLIENT_ID},
    {Named.CLIENT_ID: None},
    {Named.USER: "bob", Named.CLIENT_ID: CLIENT_ID},
    {Named.USER: "bob", Named.CLIENT_ID: None},
    {Named.USER: None, Named.CLIENT_ID: None},
)
KEYS = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
RATES = (100.0, 1000.0, 20_000.0)
WINDOWS, WINDOW_S = 4, 2
CHANGES = 0.1
"""The probability that it is the administrator who acts."""
LONGEST_WAIT_MS = 1000


@dataclass
class QuotaOutcome:
    """Counts of the events in a game."""

    throttled: int = 0
    free: int = 0


def play(seed: int, steps: int = 1500) -> QuotaOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(QuotaGame(seed), steps)


class QuotaGame(Game[QuotaOutcome]):
    topic, partitions = "orders", 1

    def __init__(self, seed: int) -> None:
        settings = {"quota.window.num": str(WINDOWS), "quota.window.size.seconds": str(WINDOW_S)}
        super().__init__(seed, random.Random(seed), World(seed, settings), PACE)
        self._connections: dict[str, Connection] = {}

    def _begin(self) -> None:
        super()._begin()
        burst_ms = (WINDOWS - 1) * WINDOW_S * 1000
        self._checker = QuotaChecker(lambda: self.world.node.image.quotas.by_entity, burst_ms)
        self.world.network.on_request = self._arrived
        self.world.network.on_sent = self._answered

    def _arrived(self, exchange: Exchange) -> None:
        if exchange.key is ApiKey.PRODUCE:
            size = len(encode_request(exchange.key, exchange.version, exchange.correlation_id, exchange.values))
            self._checker.arrived(exchange, size, self.world.clock.boot_ms)

    def _answered(self, exchange: Exchange) -> None:
        self._note(f"{exchange} of {exchange.session.principal} is answered")
        if exchange.key in (ApiKey.PRODUCE, ApiKey.FETCH):
            self._checker.answered(exchange, exchange.answer_size, self.world.clock.boot_ms)

    def _take_step(self, number: int) -> None:
        super()._take_step(number)
        self._checker.look()

    def _somebody_acts(self) -> None:
        if self.chance.random() < CHANGES:
            self._change_quotas()
            return
        user = self.chance.choice(USERS)
        connection = self._connections.get(user)
        if connection is None or not connection.open or self.chance.random() < 0.05:
            connection = self._connections[user] = self.world.connect()
            connection.session = Session(EVERYBODY, "10.0.0.1", Principal("User", user))
        if self.chance.random() < 0.5:
            self._produce(connection)
        else:
            self._fetch(connection)

    def _produce(self, connection: Connection) -> None:
        value = b"v" * self.chance.choice((10, 1000, 5000))
        batch = bytes(build_batch([(self.world.clock.wall_ms, None, value, ())]))
        topic = {"name": self.topic, "partition_data": [{"index": 0, "records": batch}]}
        values = {"acks": -1, "timeout_ms": 1000, "topic_data": [topic]}
        connection.request(ApiKey.PRODUCE, 9, values)

    def _fetch(self, connection: Connection) -> None:
        """A fetch of records that there are, or one that waits for others."""
        log = self.world.node.hosted.leader(*TopicPartition(self.topic, 0)).log.offsets
        offset = self.chance.choice((log.start, max(log.start, log.end - 2), log.end))
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 100_000}
        values = {
            "max_wait_ms": self.chance.choice((0, LONGEST_WAIT_MS)),
            "min_bytes": 1,
            "max_bytes": 50_000,
            "topics": [{"topic": self.topic, "partitions": [asked]}],
        }
        connection.request(ApiKey.FETCH, 12, values)

    def _change_quotas(self) -> None:
        entity, key, rate = self.chance.choice(ENTITIES), self.chance.choice(KEYS), self.chance.choice(RATES)
        remove = self.chance.random() < 0.5
        self._note(f"{'no ' if remove else ''}{key} {rate} for {entity}")
        changed = {
            "entity": [{"entity_type": of, "entity_name": name} for of, name in entity.items()],
            "ops": [{"key": key, "value": rate, "remove": remove}],
        }
        connection = self.world.connect()
        values = {"entries": [changed], "validate_only": False}
        connection.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, values, lambda _: connection.close())

    def _finish(self) -> None:
        self._note("--- everybody waits for the last answers ---")
        self.world.advance(LONGEST_WAIT_MS + 1000)
        hanging = [each for connection in self._connections.values() for each in connection.under_way.values()]
        if hanging:
            raise InvariantBroken(f"{hanging[0]} is not answered")

    def _outcome(self) -> QuotaOutcome:
        return QuotaOutcome(self._checker.throttled, self._checker.free)
