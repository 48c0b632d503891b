"""Members of a group of the consumer protocol (KIP-848): members send only heartbeats, partitions come and go one by
one.

A member that has to give a partition back takes its time, may commit a last time, and leaves the partition out of its
next heartbeat. A member that lost an answer sends a full heartbeat.
"""

from typing import Any

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.wire.apis import ApiKey
from simulation.workloads.group_members import NO_EPOCH, TOPIC, GroupMember
from simulation.world.stage import Stage

SESSION_MS = 2500
"""The broker's session timeout."""

EXPRESSION, EXPRESSIONS_FROM = "gro.*", 1
"""The expression that half of the members subscribe to, and the first version of the heartbeat with expressions."""

JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class ConsumerMember(GroupMember):
    commit_versions = range(9, 10)
    fetch_version = 9

    def __init__(self, stage: Stage, name: str, group_id: str, instance_id: str | None) -> None:
        super().__init__(stage, name, group_id, instance_id)
        self.member_id = name
        self._version = stage.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        self._assignor = self.chance.choice((None, "uniform", "range"))
        self._expression = self.chance.choice((None, EXPRESSION)) if self._version >= EXPRESSIONS_FROM else None
        self._revoking: set[int] = set()
        """Partitions that the member was told to give back and still reads."""
        self._news = True
        """True if the owned partitions changed since the member last reported them."""
        self._unsure = False
        """True if the last heartbeat may have been lost."""

    @property
    def settled(self) -> bool:
        return self.epoch > 0 and not self._busy and not (self._revoking or self._news or self._unsure)

    def _next(self, *, leaves: bool) -> str | None:
        dice = self.chance.random()
        if self._revoking and (dice < 0.3 or not leaves):
            return self._give_up()
        if self._busy:
            return self._read() if dice < 0.3 else None
        if self.epoch <= JOINING:
            return self._heartbeat(JOINING)
        if not leaves:
            self._read()
            return self._heartbeat(self.epoch)
        if dice < 0.03:
            return self._leave()
        return self._heartbeat(self.epoch) if dice < 0.6 else self._read()

    def _give_up(self) -> str:
        given_up = sorted(self._revoking)
        for partition in given_up:
            del self.positions[partition]
        self._revoking.clear()
        self._news = True
        return f"gives up {given_up}"

    # Heartbeats

    def _heartbeat(self, epoch: int) -> str:
        joins = epoch == JOINING
        if joins:
            self._lose_everything()
        full = joins or self._unsure or self.chance.random() < 0.1
        owned = None
        if full or self._news or self.chance.random() < 0.2:
            owned = [{"topic_id": self._topic_id, "partitions": sorted(self.positions)}] if self.positions else []
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": self.rebalance_ms if full else -1,
            "subscribed_topic_names": [TOPIC] if full and self._expression is None else None,
            "subscribed_topic_regex": self._expression if full else None,
            "server_assignor": self._assignor if full else None,
            "topic_partitions": owned,
        }
        self._news = self._news and owned is None
        self._unsure = False
        self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._version, values, self._answered, self._lost)
        return f"sends a heartbeat with epoch {epoch}" + ("" if owned is None else f", owns {sorted(self.positions)}")

    @property
    def _topic_id(self) -> TopicId:
        return self.stage.image.topics[TOPIC].topic_id

    def _lost(self) -> None:
        self._unsure = True

    def _answered(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error in _FENCED:
            self._lose_everything()
            self.epoch = NO_EPOCH
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._lose_everything()
            self.over = True
        if error is not ErrorCode.NONE:
            self._unsure = True
            return
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        assigned = {partition for topic in answer.assignment.topic_partitions for partition in topic.partitions}
        self._revoking = self.positions.keys() - assigned
        for partition in sorted(assigned - self.positions.keys()):
            self._gain(partition)
            self._news = True

    def _committed(self, error: ErrorCode) -> None:
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose_everything()
            self.epoch = NO_EPOCH

    def _leave(self) -> str:
        """Leaves for good, or for a while: then the next process comes with the same instance id."""
        for_a_while = self.instance_id is not None and self.chance.random() < 0.7
        epoch = LEAVING_FOR_A_WHILE if for_a_while else LEAVING
        values = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": epoch}
        values |= {"instance_id": self.instance_id, "topic_partitions": []}
        self._lose_everything()
        # The member does not wait for the answer.
        self.connection.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._version, values)
        self.over = True
        return f"leaves with epoch {epoch}"

    def _lose_everything(self) -> None:
        super()._lose_everything()
        self._revoking.clear()
        self._news = True
