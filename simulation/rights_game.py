"""A game about rights: principals ask for whatever there is, while an administrator gives and takes rights.

Promises: no answer gives or takes what its principal had no right to since the request came; what waited is judged
again when its answer leaves; nothing is refused to somebody who had the right all the time; and nothing is answered
after the end of a session.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.operations import Operation, ResourceKind
from cordwood.model.settings.authorizer_settings import STANDARD_AUTHORIZER
from cordwood.security.sessions import ANONYMOUS, Principal, Session
from cordwood.wire.apis import ApiKey
from simulation.checkers.claims import claims_of
from simulation.checkers.rights import RightsChecker
from simulation.game import Game, Pace, play_out
from simulation.workloads.judged_clients import CLASSIC, CONSUMERS, POSITIONS, TOPICS, JudgedClient
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import EVERYBODY, Connection, Exchange
from simulation.world.world import World

PACE = Pace(waits=0.1, waits_ms=(1, 5, 50, 400), eagerness=0.75)
SUPER_USER = str(ANONYMOUS)
"""The tests of a world ask under this name, and so does the administrator of the game."""
USERS = ("alice", "bob", "carol")
HOSTS = ("10.0.0.1", "10.0.0.2")
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": SUPER_USER,
    "group.initial.rebalance.delay.ms": "100",
}
SESSIONS_MS = (None, None, 100, 1000)
LONGEST_WAIT_MS = 5000
CHANGES = 0.2
"""The probability that it is the administrator who acts."""


def _rules() -> Iterator[Acl]:
    """The rules that the administrator makes and removes."""
    topics = [(Pattern.LITERAL, name) for name in (*TOPICS, EVERYTHING)]
    kinds: list[tuple[ResourceKind, tuple[Operation, ...], list[tuple[Pattern, str]]]] = [
        (
            ResourceKind.TOPIC,
            (Operation.READ, Operation.WRITE, Operation.DESCRIBE),
            [*topics, (Pattern.PREFIXED, "or")],
        ),
        (
            ResourceKind.GROUP,
            (Operation.READ, Operation.ALL),
            [(Pattern.LITERAL, name) for name in (POSITIONS, CONSUMERS, CLASSIC, EVERYTHING)],
        ),
        (ResourceKind.TRANSACTIONAL_ID, (Operation.WRITE,), [(Pattern.LITERAL, name) for name in (*USERS, EVERYTHING)]),
    ]
    for kind, operations, names in kinds:
        for operation, (pattern, name), user in product(operations, names, USERS):
            principal = str(Principal("User", user))
            for host in (EVERYTHING, HOSTS[0]):
                yield Acl(kind, pattern, name, principal, host, operation, Permission.ALLOW)
            yield Acl(kind, pattern, name, principal, EVERYTHING, operation, Permission.DENY)


RULES = tuple(_rules())


@dataclass
class RightsOutcome:
    """Counts of the events in a game."""

    given: int = 0
    refused: int = 0
    revisions: int = 0
    too_late: int = 0
    """Requests after the end of a session."""


def play(seed: int, steps: int = 1500) -> RightsOutcome:
    """Plays one game. Raises SimulationFailed with the seed and the last steps if an invariant breaks."""
    return play_out(RightsGame(seed), steps)


class RightsGame(Game[RightsOutcome]):
    topic, partitions = TOPICS[0], 1

    def __init__(self, seed: int) -> None:
        super().__init__(seed, random.Random(seed), World(seed, SETTINGS), PACE)
        self._clients = [JudgedClient(self.world, self.chance, user) for user in USERS]
        self._connections: dict[str, Connection] = {}

    def _begin(self) -> None:
        super()._begin()
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in TOPICS[1:]]
        self.world.ask(ApiKey.CREATE_TOPICS, 4, topics=topics, timeout_ms=1000)
        for key_type, name in ((0, CONSUMERS), (1, USERS[0])):
            self.world.ask(ApiKey.FIND_COORDINATOR, 2, key=name, key_type=key_type)
        self._checker = RightsChecker(lambda: self.world.node.image.acls, SUPER_USER)
        self.world.network.on_request = self._arrived
        self.world.network.on_sent = self._answered

    def _arrived(self, exchange: Exchange) -> None:
        self._checker.arrived(exchange, self.world.clock.boot_ms)
        self._note(f"{exchange.session.principal} asks {exchange}")

    def _answered(self, exchange: Exchange) -> None:
        self._note(f"{exchange} is answered")
        self._checker.answered(exchange, claims_of(exchange, self.world.node.image.topic_name))

    def _take_step(self, number: int) -> None:
        super()._take_step(number)
        self._checker.look()

    def _somebody_acts(self) -> None:
        if self.chance.random() < CHANGES:
            self._change_rules()
            return
        client = self.chance.choice(self._clients)
        connection = self._connections.get(client.user)
        if connection is None or not connection.open or self.chance.random() < 0.1:
            connection = self._connections[client.user] = self._connect(client.user)
        client.ask(connection)

    def _connect(self, user: str) -> Connection:
        connection = self.world.connect()
        lasts_ms = self.chance.choice(SESSIONS_MS)
        ends_ms = None if lasts_ms is None else self.world.clock.boot_ms + lasts_ms
        mechanism = None if lasts_ms is None else "SCRAM-SHA-256"
        host = self.chance.choice(HOSTS)
        connection.session = Session(EVERYBODY, host, Principal("User", user), mechanism, ends_ms)
        return connection

    def _change_rules(self) -> None:
        there = list(self.world.node.image.acls)
        connection = self.world.connect()
        if there and self.chance.random() < len(there) / 40:
            rule = self.chance.choice(sorted(there))
            self._note(f"removed: {rule}")
            named = {
                "resource_type_filter": rule.kind,
                "resource_name_filter": rule.name,
                "pattern_type_filter": rule.pattern,
                "principal_filter": rule.principal,
                "host_filter": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            connection.request(ApiKey.DELETE_ACLS, 3, {"filters": [named]}, lambda _: connection.close())
            return
        rule = self.chance.choice(RULES)
        if rule.permission is Permission.DENY and self.chance.random() < 0.7:
            rule = rule._replace(permission=Permission.ALLOW)
        self._note(f"made: {rule}")
        made = {
            "resource_type": rule.kind,
            "resource_name": rule.name,
            "resource_pattern_type": rule.pattern,
            "principal": rule.principal,
            "host": rule.host,
            "operation": rule.operation,
            "permission_type": rule.permission,
        }
        connection.request(ApiKey.CREATE_ACLS, 3, {"creations": [made]}, lambda _: connection.close())

    def _finish(self) -> None:
        self._note("--- everybody waits for the last answers ---")
        self.world.advance(LONGEST_WAIT_MS)
        hanging = [each for connection in self._connections.values() for each in connection.under_way.values()]
        if hanging:
            raise InvariantBroken(f"{hanging[0]} is not answered")

    def _outcome(self) -> RightsOutcome:
        checker = self._checker
        return RightsOutcome(checker.given, checker.refused, checker.revisions, checker.too_late)
