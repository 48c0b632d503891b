"""The common part of members of both group protocols: their partitions, and their positions.

A member reads on from the group's position when it got the partition, and commits as it goes. The metadata of each
commit names its member, so that a fetched position identifies its commit. A member may be silent for a while, like a
stopped process, and then goes on with its old knowledge.
"""

from collections.abc import Callable, Iterable
from typing import Any

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.world.exchange import Connection, Exchange
from simulation.world.stage import GROUP, Client, Stage

TOPIC = "grove"
NO_EPOCH = -1
NO_POSITION = -1

AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of the coordinator: the request may have taken effect or not."""


class GroupMember(Client):
    commit_versions: range
    fetch_version: int

    def __init__(self, stage: Stage, name: str, group_id: str, instance_id: str | None) -> None:
        super().__init__(stage, name)
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = NO_EPOCH
        """The member's epoch, or its generation."""
        self.positions: dict[int, int | None] = {}
        """Positions by owned partition; None: the group's position is not fetched yet."""
        self.over = False
        """True if this process has ended."""
        self.silent_until_ms = 0
        self.rebalance_ms = self.chance.choice((1500, 4000))
        self._busy = False
        """True if a request about membership is under way."""
        self._fetching = False
        self._commits = 0
        self._commit_version = self.chance.choice(self.commit_versions)
        self._tenures: dict[int, int] = {}
        """The number of times that the member has got the partition: an answer about an earlier tenure says nothing."""

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    @property
    def partition_count(self) -> int:
        return len(self.stage.image.topics[TOPIC].partitions)

    @property
    def connection(self) -> Connection:
        """A connection to the group's coordinator, or to any broker while the member does not know it."""
        known = self.routes.coordinator
        if known is None or (self.stage.several and self.chance.random() < self.stage.astray):
            return super().connection
        return self.connection_to(known)

    @property
    def settled(self) -> bool:
        """True if the member has its share, and no request to send."""
        raise NotImplementedError

    def act(self) -> str | None:
        if self.over or self.stage.world.clock.boot_ms < self.silent_until_ms:
            return None
        if self._is_lost:
            return self.routes.find_coordinator(self.group_id)
        return self._next(leaves=True)

    def finish(self) -> bool:
        if self.over:
            return False
        if self._is_lost:
            self.routes.find_coordinator(self.group_id)
            return True
        self._next(leaves=False)
        return not self.settled

    @property
    def _is_lost(self) -> bool:
        """True if the member has to find its coordinator first."""
        return self.stage.several and self.routes.coordinator is None

    def _heard(self, exchange: Exchange, errors: Iterable[int]) -> None:
        """Takes the errors of an answer: another broker may be the coordinator."""
        if not self.routes.failed(exchange) and ErrorCode.NOT_COORDINATOR in errors:
            self.routes.coordinators.pop(GROUP, None)

    def _next(self, *, leaves: bool) -> str | None:
        """Takes the next action; with `leaves` the member may leave."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends like a process that is told to stop: static members do not send a leave."""
        if self.instance_id is None and self.member_id and not self._busy:
            self._leave()
            self.over = True
        else:
            self.die()

    def _leave(self) -> str:
        raise NotImplementedError

    def die(self) -> None:
        """Ends without leaving the group."""
        self.over = True
        self.hang_up()

    # Requests

    def _ask(
        self, key: ApiKey, version: int, values: dict[str, Any], done: Callable[[Any], None], lost: Callable[[], None]
    ) -> None:
        """Sends a request about membership; calls `lost` if its outcome is unknown."""
        self._busy = True

        def ended(exchange: Exchange) -> None:
            self._busy = False
            if self.over:
                return
            self._heard(exchange, [exchange.answer.error_code] if exchange.answered else ())
            if not exchange.answered or ErrorCode(exchange.answer.error_code) in AGAIN:
                lost()
            else:
                done(exchange.answer)

        self.connection.request(key, version, values, ended)

    # Partitions

    def _gain(self, partition: int) -> None:
        self._tenures[partition] = self._tenures.get(partition, 0) + 1
        self.positions[partition] = None

    def _lose_everything(self) -> None:
        self.positions.clear()

    def _read(self) -> str | None:
        """Reads a little and commits, or fetches the group's positions."""
        if unknown := [partition for partition, position in self.positions.items() if position is None]:
            return None if self._fetching else self._fetch(unknown)
        known = sorted(self.positions)
        return self._commit(self.chance.sample(known, self.chance.randint(1, len(known)))) if known else None

    def _commit(self, partitions: list[int]) -> str:
        self._commits += 1
        token = f"{self.name}:{self._commits}"
        entries = []
        for partition in sorted(partitions):
            position = self.positions[partition]
            assert position is not None
            self.positions[partition] = position + self.chance.randint(1, 3)
            entry = {"partition_index": partition, "committed_offset": self.positions[partition]}
            entries.append(entry | {"committed_metadata": token})
        values = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [{"name": TOPIC, "partitions": entries}],
        }

        def ended(exchange: Exchange) -> None:
            entries = exchange.answer.topics[0].partitions if exchange.answered else ()
            self._heard(exchange, [entry.error_code for entry in entries])
            if exchange.answered and not self.over:
                for entry in exchange.answer.topics[0].partitions:
                    self._committed(ErrorCode(entry.error_code))

        self.connection.request(ApiKey.OFFSET_COMMIT, self._commit_version, values, ended)
        return f"commits {token} in {partitions} with epoch {self.epoch}"

    def _committed(self, error: ErrorCode) -> None:
        """Takes the answer to one of its commits."""
        raise NotImplementedError

    def _fetch(self, partitions: list[int]) -> str:
        tenures = {partition: self._tenures[partition] for partition in partitions}
        version = self.fetch_version
        topics = [{"name": TOPIC, "partition_indexes": partitions}]
        values: dict[str, Any] = {"group_id": self.group_id, "topics": topics}
        if version >= 8:
            values = {"groups": [values | {"member_id": self.member_id, "member_epoch": self.epoch}]}
        self._fetching = True

        def ended(exchange: Exchange) -> None:
            self._fetching = False
            if self.routes.failed(exchange):
                return
            answer = exchange.answer if version < 8 else exchange.answer.groups[0]
            self._heard(exchange, [answer.error_code])
            if answer.error_code:
                return
            for entry in answer.topics[0].partitions:
                partition = entry.partition_index
                current = partition in self.positions and self._tenures[partition] == tenures[partition]
                if current and self.positions[partition] is None and not entry.error_code:
                    self.positions[partition] = max(0, entry.committed_offset)

        self.connection.request(ApiKey.OFFSET_FETCH, version, values, ended)
        return f"asks where to begin in {partitions}"
