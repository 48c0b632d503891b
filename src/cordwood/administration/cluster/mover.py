"""Moves partitions, a few at a time, until each has arrived and its first replica leads it.

A partition with little to copy costs only a write of the metadata, so many such partitions move at once. A move that
waits for a broker that does not run is reported, with the partitions and the broker.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from cordwood.administration.asking import ask, first_answer
from cordwood.administration.brokers import brokers
from cordwood.administration.cluster.electing import PREFERRED, elect
from cordwood.administration.cluster.gathering import ABSENT, Gathered, Reassignment, names_of, reassignments
from cordwood.administration.cluster.view import NodeView, PartitionState, nodes_of, partitions_of
from cordwood.administration.connection import Connection
from cordwood.client.settings import Address
from cordwood.cluster.planner.balance import Key, PlannedMove
from cordwood.model.errors import code_name
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words
from cordwood.wire.apis import ApiKey

SOONEST_S: Final = 0.02
"""The pause before the first look at moves that have begun; each look that finds nothing new doubles it."""
LATEST_S: Final = 0.5
SMALL_BYTES: Final = 1 << 20
"""A move that copies less counts as small."""
SMALL_AT_ONCE: Final = 200
QUIET_S: Final = 3.0
"""After this long without news the command says what the moves wait for."""
LEADERS_S: Final = 30.0
"""The wait for the leaders, after the replicas have moved."""
ELECT_AGAIN_S: Final = 2.0
_ELECTED_AT_ONCE: Final = 100
"""Elections in one request: clients look for their leaders anew after each."""

Answer = TypeVar("Answer")
Progress = Callable[[int, int, int], None]
"""Takes the numbers of partitions that have moved, are moving and wait."""


class Pauses:
    """Pauses between looks: short while there is news."""

    def __init__(self) -> None:
        self._next_s = SOONEST_S
        self.quiet_since_s = time.monotonic()

    def news(self) -> None:
        self._next_s = SOONEST_S
        self.quiet_since_s = time.monotonic()

    @property
    def quiet_s(self) -> float:
        return time.monotonic() - self.quiet_since_s

    def pause(self) -> None:
        time.sleep(self._next_s)
        self._next_s = min(2 * self._next_s, LATEST_S)


class Mover:
    def __init__(
        self,
        connection: Connection,
        gathered: Gathered,
        moves: Sequence[PlannedMove],
        at_once: int,
        say: Callable[[str], None],
        progress: Progress | None,
        joined: Iterable[Reassignment] = (),
        *,
        every_leader: bool = False,
    ) -> None:
        """`say` takes a text for people; `joined`: moves under way that the mover also waits for; `every_leader`: the
        first replica of every partition is to lead, not only of those that move."""
        self._connection = connection
        self._addresses = [gathered.address]
        self._at_once = at_once
        self._say = say
        self._progress = progress
        self._moves = moves
        self._every_leader = every_leader
        self.waiting = list(moves)
        self.moving: dict[Key, tuple[int, ...]] = {move.key: move.target for move in joined}
        """The targets of the moves under way."""
        self._small: set[Key] = set()
        self.moved = 0
        self.refused: list[Refused] = []
        self.may_have_begun = False
        """True if a broker may have begun a move."""
        self._said: set[str] = set()
        """The waits that the last look found."""

    def run(self) -> None:
        """Moves the partitions. Returns when every move that was not refused has ended. Raises Failure."""
        pauses = Pauses()
        while self.waiting or self.moving:
            if self.moving:
                under_way = {move.key for move in self._ask(reassignments)}
                arrived = self.moving.keys() - under_way
                self.moved += len(arrived)
                for key in arrived:
                    del self.moving[key]
                    pauses.news()
            self._begin(self._next())
            if self._progress is not None:
                self._progress(self.moved, len(self.moving), len(self.waiting))
            if self.moving:
                if pauses.quiet_s > QUIET_S:
                    self.say_waits()
                pauses.pause()

    def _next(self) -> list[PlannedMove]:
        """The moves to begin: `at_once` large ones at a time, and many small ones beside them."""
        small = len(self._small & self.moving.keys())
        room = {True: SMALL_AT_ONCE - small, False: self._at_once - (len(self.moving) - small)}
        chosen: list[PlannedMove] = []
        left: list[PlannedMove] = []
        for move in self.waiting:
            is_small = move.size_bytes < SMALL_BYTES
            room[is_small] -= 1
            (chosen if room[is_small] >= 0 else left).append(move)
        self.waiting = left
        return chosen

    def _begin(self, moves: Sequence[PlannedMove]) -> None:
        if not moves:
            return
        before, self.may_have_begun = self.may_have_begun, True
        refused = self._ask(lambda address, timeout_s: begin(address, targets(moves), timeout_s))
        self.refused += refused
        keys = {each.key for each in refused}
        begun = [move for move in moves if move.key not in keys]
        self.may_have_begun = before or bool(begun)
        self.moving.update({move.key: move.after for move in begun})
        self._small.update(move.key for move in begun if move.size_bytes < SMALL_BYTES)

    def _ask(self, question: Callable[[Address, float], Answer]) -> Answer:
        """Asks the broker that answered last, or another one."""
        timeout_s = self._connection.timeout_s
        try:
            address, answer = first_answer(self._addresses, lambda asked: question(asked, timeout_s))
        except Failure as failure:
            if failure.exit_code is not ExitCode.NOT_REACHABLE:
                raise
            address, answer = first_answer(brokers(self._connection), lambda asked: question(asked, timeout_s))
        self._addresses = [address]
        return answer

    def say_waits(self) -> None:
        """Reports the waits that the last look did not find."""
        _, nodes = self._ask(nodes_of)
        waits = waits_in_words(self.moving, nodes)
        for text in waits:
            if text not in self._said:
                self._say(text)
        self._said = set(waits)

    # Leaders

    def await_leaders(self) -> list[PartitionState]:
        """Elects the first replica of each partition, and waits until it leads. Returns the partitions with other
        leaders after LEADERS_S. Raises Failure."""
        pauses, last = Pauses(), -1
        began_s = time.monotonic()
        elect_at_s = began_s
        while elsewhere := self._led_by_others():
            if len(elsewhere) != last:
                pauses.news()
                last = len(elsewhere)
                if self._progress is not None:
                    self._say(f"waiting for {count_in_words(last, 'leadership')} to move")
            if time.monotonic() - began_s > LEADERS_S:
                return elsewhere
            if time.monotonic() >= elect_at_s:
                # A first replica that came back a moment ago is refused until it is in sync.
                elect_at_s = time.monotonic() + ELECT_AGAIN_S
                self._elect([(each.topic, each.partition) for each in elsewhere])
                continue
            pauses.pause()
        return []

    def _led_by_others(self) -> list[PartitionState]:
        """The partitions whose leader is not the first of their replicas, although the first one can lead."""
        refused = {each.key for each in self.refused}
        preferred = {move.key: move.after[0] for move in self._moves if move.key not in refused}
        topics = [] if self._every_leader else sorted({topic for topic, _ in preferred})
        found = self._ask(lambda address, timeout_s: partitions_of(address, topics, timeout_s))
        if self._every_leader:
            preferred = {(each.topic, each.partition): each.replicas[0] for each in found}
        _, nodes = self._ask(nodes_of)
        return led_by_others(found, preferred, nodes)

    def _elect(self, keys: Sequence[Key]) -> None:
        """Asks for elections. The next look at the leaders shows their outcomes. If an election is refused, the
        controller holds it later by itself."""
        for start in range(0, len(keys), _ELECTED_AT_ONCE):
            with suppress(Failure):
                self._ask(partial(_elect_preferred, keys[start : start + _ELECTED_AT_ONCE]))


def led_by_others(
    found: Iterable[PartitionState], preferred: Mapping[Key, int], nodes: Iterable[NodeView]
) -> list[PartitionState]:
    """The partitions without their preferred leader, although it serves and has room. Partitions without any leader are
    left out: no election of a preferred leader helps them."""
    able = {node.node_id for node in nodes if node.state == "serves" and not node.disk_full}
    return [
        each
        for each in found
        if each.leader >= 0 and preferred.get((each.topic, each.partition), each.leader) in able - {each.leader}
    ]


def _elect_preferred(keys: Sequence[Key], address: Address, timeout_s: float) -> None:
    elect(address, PREFERRED, keys, timeout_s)


def waits_in_words(moving: Mapping[Key, Sequence[int]], nodes: Iterable[NodeView]) -> list[str]:
    """A text about the brokers that moves wait for, since they do not serve, and the partitions."""
    states = {node.node_id: node.state for node in nodes}
    waits: dict[int, list[Key]] = {}
    for key, target in moving.items():
        for broker in target:
            if states.get(broker, ABSENT) != "serves":
                waits.setdefault(broker, []).append(key)
    return [
        f"waiting for node {broker}, which {_STATES[states.get(broker, ABSENT)]}: {names_of(keys)}. Start it, or send "
        f"the partitions elsewhere with `cordwood cluster drain {broker}` in another terminal, or stop the moves with "
        "Ctrl-C and `cordwood cluster reassign --cancel`"
        for broker, keys in sorted(waits.items())
    ]


_STATES = {ABSENT: "does not run", "starting": "is starting", "fenced": "is starting", "draining": "is stopping"}


def targets(moves: Iterable[PlannedMove]) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(move.topic, move.partition, move.after) for move in moves]


class Refused(NamedTuple):
    """A move that a broker refused."""

    topic: str
    partition: int
    error: str
    message: str

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: {self.message}"


def refusals_in_words(refused: Sequence[Refused], shown: int = 10) -> Failure:
    """The failure that names the refused moves."""
    lines = [str(each) for each in refused[:shown]]
    if len(refused) > shown:
        lines.append(f"... and {len(refused) - shown} more")
    return Failure(refused[0].error, "\n".join([f"{count_in_words(len(refused), 'move')} refused:", *lines]))


def begin(address: Address, moves: Iterable[tuple[str, int, Sequence[int] | None]], timeout_s: float) -> list[Refused]:
    """Begins moves, or cancels those without replicas. Returns the refused ones. Raises Failure."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for topic, partition, replicas in moves:
        wanted = {"partition_index": partition, "replicas": None if replicas is None else list(replicas)}
        topics.setdefault(topic, []).append(wanted)
    values = {
        "timeout_ms": int(timeout_s * 1000),
        "allow_replication_factor_change": True,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    answer = ask(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, values, timeout_s)
    if answer.error_code:
        raise Failure(code_name(answer.error_code), answer.error_message or "the broker refuses the moves")
    return [
        Refused(topic.name, each.partition_index, code_name(each.error_code), each.error_message or "")
        for topic in answer.responses
        for each in topic.partitions
        if each.error_code
    ]
