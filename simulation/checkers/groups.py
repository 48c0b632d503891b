"""Checks groups as the wire shows them: owners of partitions, and commits that count.

No partition has two owners in one generation of a classic group. In a group of the consumer protocol no member is
assigned a partition that another member has not given back, unless that member was out: it left, joined anew, sent no
heartbeat for a session, or kept the partition beyond the rebalance timeout. A member that lost a partition, its place
or its generation commits no position any more, and positions come from accepted commits.

The judgement uses requests when the node gets them and answers when the node gives them. An answer that never left
counts as not given.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import ApiKey
from simulation.checkers.fetched_positions import Commit, PositionsChecker
from simulation.workloads.classic_members import share_in
from simulation.workloads.consumer_members import JOINING, LEAVING, SESSION_MS
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange, Network

LONG_AGO_MS = -(2**40)

Named = tuple[str, str]
"""Group and member."""

Key = tuple[str, int]
"""Group and partition."""


class Heard(NamedTuple):
    """The state of a member of the consumer protocol, from heartbeats that were accepted."""

    epoch: int
    reconciled_ms: int
    """The arrival of the heartbeat that took the member to this epoch, and named the partitions to give back."""
    last_ms: int
    """The arrival of the last heartbeat."""


class GroupsChecker:
    def __init__(self) -> None:
        self.positions = PositionsChecker[Key]()
        self.rounds: set[tuple[str, int]] = set()
        """Groups and generations in which a member got a share."""
        self.taken = 0
        """The number of partitions taken from members of the consumer protocol that were out without knowing it."""
        self.moves = 0
        """The number of times that a group changed its protocol."""
        # The classic protocol
        self._owners: dict[tuple[str, int, int], str] = {}
        self._generations: dict[str, int] = {}
        """The highest generation in which a member has synced, which outlives the broker."""
        self._announced: dict[str, int] = {}
        """The highest generation that members have joined. A new broker may count it again."""
        self._instances: dict[Named, str] = {}
        self._out: set[Named] = set()
        # The consumer protocol
        self._holders: dict[Key, str] = {}
        """The member that was assigned a partition and has not given it back."""
        self._heard: dict[Named, Heard] = {}
        self._rebalance_ms: dict[Named, int] = {}
        self._dispossessed: dict[Named, int] = {}
        """Members that lost a partition unknowingly, and the request that took it: later requests must be refused."""
        self._requests = 0
        self._numbers: dict[Exchange, int] = {}
        self._left: set[Named] = set()
        self._settled: dict[Exchange, dict[Key, int]] = {}
        self._homes: dict[str, tuple[Network, int]] = {}
        """The network of each group's coordinator and its leader epoch. In a higher epoch the coordinator may be
        another broker."""
        self._on_request: dict[ApiKey, Callable[[Exchange], None]] = {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._heartbeat_came,
            ApiKey.OFFSET_COMMIT: self._commit_came,
            ApiKey.OFFSET_FETCH: self._fetch_came,
        }
        self._on_sent: dict[ApiKey, Callable[[Exchange], None]] = {
            ApiKey.JOIN_GROUP: self._joined,
            ApiKey.SYNC_GROUP: self._synced,
            ApiKey.LEAVE_GROUP: self._left_classic_group,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._heartbeat_answered,
            ApiKey.OFFSET_COMMIT: self._committed,
            ApiKey.OFFSET_FETCH: self._fetched,
        }

    def requested(self, exchange: Exchange) -> None:
        if (note := self._on_request.get(exchange.key)) is not None:
            note(exchange)

    def sent(self, exchange: Exchange) -> None:
        if (group := self._served_group(exchange)) is not None:
            self._served(group, exchange)
        if (check := self._on_sent.get(exchange.key)) is not None:
            check(exchange)

    def _served(self, group: str, exchange: Exchange) -> None:
        """Notes the broker that coordinates the group. A new coordinator knows only the content of the log."""
        network = exchange.connection.network
        epoch = network.leader_epoch_of_group(group)
        before, epoch_before = self._homes.get(group, (network, epoch))
        if before is not network and epoch <= epoch_before:
            raise InvariantBroken(f"{group} has two coordinators: {exchange} was served by another broker")
        if before is not network:
            self._lost({group})
            # Times are on the boot clock of a machine, and the clocks of two machines may differ.
            for named in [named for named in self._heard if named[0] == group]:
                self._heard[named] = self._heard[named]._replace(reconciled_ms=LONG_AGO_MS, last_ms=LONG_AGO_MS)
        self._homes[group] = network, max(epoch, epoch_before)

    @staticmethod
    def _served_group(exchange: Exchange) -> str | None:
        """The group of an answer that only the group's coordinator may give."""
        group: str = exchange.values.get("group_id", "")
        if exchange.key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT):
            served = not exchange.answer.error_code
        elif exchange.key is ApiKey.OFFSET_COMMIT:
            served = not exchange.answer.topics[0].partitions[0].error_code
        else:
            return None
        return group if served else None

    def broker_died(self, network: Network) -> None:
        """Forgets facts that a dead broker's log lacks: members that joined without syncing, and members that left.

        `network`: the network of the broker.
        """
        groups = {group for group, (home, _) in self._homes.items() if home is network}
        self._lost(groups)
        for exchanges in (self._settled, self._numbers):
            for exchange in [each for each in exchanges if each.connection.network is network]:
                del exchanges[exchange]

    def _lost(self, groups: set[str]) -> None:
        """Forgets facts that the coordinator of these groups knew beside its log."""
        self._announced = {group: epoch for group, epoch in self._announced.items() if group not in groups}
        self._announced |= {group: epoch for group, epoch in self._generations.items() if group in groups}
        self._out = {named for named in self._out if named[0] not in groups}

    # The classic protocol

    def _joined(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        if answer.error_code:
            return
        group = values["group_id"]
        self._announced[group] = max(answer.generation_id, self._announced.get(group, 0))
        if values["group_instance_id"] is not None:
            replaced = self._instances.get((group, values["group_instance_id"]))
            if replaced is not None and replaced != answer.member_id:
                self._out.add((group, replaced))
            self._instances[group, values["group_instance_id"]] = answer.member_id

    def _synced(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        if answer.error_code:
            return
        group, generation = values["group_id"], values["generation_id"]
        member = values["group_instance_id"] or values["member_id"]
        self._generations[group] = max(generation, self._generations.get(group, 0))
        self.rounds.add((group, generation))
        for partition in share_in(answer.assignment):
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise InvariantBroken(
                    f"{group}: in generation {generation} partition {partition} is {owner}'s and {member}'s"
                )

    def _left_classic_group(self, exchange: Exchange) -> None:
        answer, values = exchange.answer, exchange.values
        errors = [each.error_code for each in answer.members] if exchange.version >= 3 else []
        if not any([answer.error_code, *errors]):
            self._out.add((values["group_id"], values["member_id"]))

    # The consumer protocol

    def _heartbeat_came(self, exchange: Exchange) -> None:
        """Notes partitions that a heartbeat no longer lists: they are given back, whatever the broker answers."""
        values = exchange.values
        group, member_id, epoch = values["group_id"], values["member_id"], values["member_epoch"]
        self._requests += 1
        self._numbers[exchange] = self._requests
        if epoch == JOINING:
            self._rebalance_ms[group, member_id] = values["rebalance_timeout_ms"]
        if values["topic_partitions"] is None:
            return
        self._give_back(
            group, member_id, [partition for topic in values["topic_partitions"] for partition in topic["partitions"]]
        )

    def _give_back(self, group: str, member_id: str, owned: list[int]) -> None:
        """Notes that the member has given back all partitions but `owned`."""
        for key, holder in list(self._holders.items()):
            if key[0] == group and holder == member_id and key[1] not in owned:
                del self._holders[key]

    def _heartbeat_answered(self, exchange: Exchange) -> None:
        values, answer = exchange.values, exchange.answer
        number = self._numbers.pop(exchange)
        if answer.error_code:
            return
        named = group, member_id = values["group_id"], values["member_id"]
        if values["member_epoch"] == JOINING:
            self._dispossessed.pop(named, None)
        elif number > self._dispossessed.get(named, number):
            raise InvariantBroken(f"{named}: what it had was given to others, and it is still a member")
        if answer.member_epoch == LEAVING:
            self._left.add(named)
        if answer.member_epoch <= 0:
            return
        self._hear_of(named, answer.member_epoch, exchange.handled_ms)
        if answer.assignment is None:
            return
        assigned = [(group, each) for topic in answer.assignment.topic_partitions for each in topic.partitions]
        self._gets(assigned, member_id, exchange, number)

    def _gets(self, assigned: list[Key], member_id: str, exchange: Exchange, number: int) -> None:
        for key in assigned:
            if self._holders.get(key, member_id) != member_id:
                self._take(key, exchange, number)
        self._holders.update(dict.fromkeys(assigned, member_id))

    def _hear_of(self, named: Named, epoch: int, handled_ms: int) -> None:
        before = self._heard.get(named)
        if before is None or epoch != before.epoch:
            self._heard[named] = Heard(epoch, handled_ms, handled_ms)
        else:
            self._heard[named] = before._replace(last_ms=max(handled_ms, before.last_ms))

    def _take(self, key: Key, exchange: Exchange, number: int) -> None:
        """Checks that a member that lost a partition without giving it back was out."""
        self.taken += 1
        named = key[0], self._holders[key]
        heard = self._heard[named]
        # A heartbeat may wait for the matches of its group's expressions: other members may time out meanwhile.
        at_the_latest_ms = exchange.replied_ms
        silent_ms, in_epoch_ms = at_the_latest_ms - heard.last_ms, at_the_latest_ms - heard.reconciled_ms
        in_time = silent_ms < self._session_ms(named) and in_epoch_ms < self._rebalance_ms[named]
        if in_time and not self._may_be_out(named):
            raise InvariantBroken(
                f"{key} was given to {exchange.values['member_id']}, and {named[1]} has it, which was heard of "
                f"{silent_ms} ms ago and came to its epoch {in_epoch_ms} ms ago"
            )
        self._dispossessed[named] = number

    def _session_ms(self, named: Named) -> int:
        return SESSION_MS

    def _may_be_out(self, named: Named) -> bool:
        return named in self._left

    # Positions

    def _commit_came(self, exchange: Exchange) -> None:
        values = exchange.values
        author = (values["member_id"], values["generation_id_or_member_epoch"])
        for key, entry in self._commits_in(exchange):
            commit = Commit(
                entry["committed_metadata"], entry["committed_offset"], author, self._is_fenced(key, author)
            )
            self.positions.committing(key, commit)

    def _is_fenced(self, key: Key, author: tuple[str, int]) -> bool:
        group, (member_id, epoch) = key[0], author
        if group in self._announced:
            return epoch < self._announced[group] or (group, member_id) in self._out
        holder = self._holders.get(key)
        return (group, member_id) in self._left or (holder is not None and holder != member_id)

    def _committed(self, exchange: Exchange) -> None:
        entries = exchange.answer.topics[0].partitions
        for (key, asked), entry in zip(self._commits_in(exchange), entries, strict=True):
            self.positions.answered(key, asked["committed_metadata"], ErrorCode(entry.error_code))

    @staticmethod
    def _commits_in(exchange: Exchange) -> list[tuple[Key, dict[str, Any]]]:
        (topic,) = exchange.values["topics"]
        return [((exchange.values["group_id"], each["partition_index"]), each) for each in topic["partitions"]]

    def _fetch_came(self, exchange: Exchange) -> None:
        group = self._group_of(exchange)
        self._settled[exchange] = {key: self.positions.settled(key) for key in self._partitions_in(group, exchange)}

    def _fetched(self, exchange: Exchange) -> None:
        settled = self._settled.pop(exchange)
        group = self._group_of(exchange)
        answer = exchange.answer if exchange.version < 8 else exchange.answer.groups[0]
        if answer.error_code:
            return
        for entry in answer.topics[0].partitions:
            if not entry.error_code:
                key = (group, entry.partition_index)
                self.positions.fetched(key, entry.metadata, entry.committed_offset, settled[key])

    @staticmethod
    def _group_of(exchange: Exchange) -> str:
        values = exchange.values if exchange.version < 8 else exchange.values["groups"][0]
        group: str = values["group_id"]
        return group

    @staticmethod
    def _partitions_in(group: str, exchange: Exchange) -> list[Key]:
        values = exchange.values if exchange.version < 8 else exchange.values["groups"][0]
        return [(group, partition) for partition in values["topics"][0]["partition_indexes"]]
