"""Groups that change from one protocol to the other while their members work on (KIP-848)."""

import struct
from collections.abc import Sequence

import pytest
from tests.moments import at
from tests.unit.groups import consumer_stage
from tests.unit.groups.consumer_stage import GROUP, ORDERS, SESSION_MS, Member
from tests.unit.groups.stage import LIMITS, REBALANCE_MS

from cordwood.groups.classic.group import Limits, State
from cordwood.groups.classic.join import JoinRequest
from cordwood.groups.classic.outbox import JoinAnswer, Outbox, SyncAnswer
from cordwood.groups.classic.subscription import read_assignment, read_subscription, write_assignment
from cordwood.groups.classic.sync import SyncRequest
from cordwood.groups.consumer import migration
from cordwood.groups.consumer.partition_sets import NOTHING, by_topic_id, partitions_in
from cordwood.groups.consumer.topics import TopicShape
from cordwood.model.errors import ErrorCode

ALL = list(range(6))
DYNAMIC = None


def subscription(topics: Sequence[str], owned: Sequence[int], version: int) -> bytes:
    def text(name: str) -> bytes:
        return struct.pack(">h", len(name)) + name.encode()

    parts = [struct.pack(">hi", version, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(struct.pack(">i", bool(owned)))
        if owned:
            parts.append(text("orders") + struct.pack(f">i{len(owned)}i", len(owned), *owned))
    if version >= 2:
        parts.append(struct.pack(">i", 1))
    if version >= 3:
        parts.append(text("rack"))
    return b"".join(parts)


class Stage(consumer_stage.Stage):
    limits: Limits = LIMITS
    full = False
    _ids = 0

    def settle(self, out: Outbox) -> None:
        if self.full and out.records:
            out.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            again = Outbox()
            self.shard.not_written(GROUP, again, at(self.now_ms), self.limits)
            again.settle(ErrorCode.NONE)
            self.shard.after_writing(GROUP, at(self.now_ms), lambda _: self.group_limits)
            return
        super().settle(out)
        self.shard.after_writing(GROUP, at(self.now_ms), lambda _: self.group_limits)
        out.settle(ErrorCode.NONE)

    def next_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    @property
    def is_classic(self) -> bool:
        assert (GROUP in self.shard.groups) is not (GROUP in self.shard.consumer_groups)
        return GROUP in self.shard.groups


class Client:
    """A consumer that speaks the classic protocol, and obeys the answers, a request at a time."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *topics: str,
        cooperative: bool = False,
        instance_id: str | None = DYNAMIC,
        protocols: Sequence[str] = ("range",),
        version: int = 9,
        subscription_version: int = 3,
    ) -> None:
        self.stage = stage
        self.name = name
        self.topics = topics or ("orders",)
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.protocols = protocols
        self.version = version
        self.subscription_version = subscription_version
        self.session_ms = SESSION_MS
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.joins: list[JoinAnswer] = []
        self.syncs: list[SyncAnswer] = []

    def join(self) -> JoinAnswer | None:
        """Joins. Returns None if the answer has to wait."""
        if not self.cooperative:
            self.owned = []
        stage, out, count = self.stage, Outbox(), len(self.joins)
        metadata = subscription(self.topics, self.owned, self.subscription_version)
        request = JoinRequest(
            self.member_id,
            self.instance_id,
            self.name,
            "/127.0.0.1",
            self.session_ms,
            REBALANCE_MS,
            "consumer",
            tuple((name, metadata) for name in self.protocols),
            "" if self.member_id else stage.next_id(self.name),
            asks_for_id_first=self.version >= 4,
            can_skip_assignment=self.version >= 9,
        )
        stage.shard.join(GROUP, request, self._joined, out, at(stage.now_ms), stage.limits)
        stage.settle(out)
        return self.joins[-1] if len(self.joins) > count else None

    def _joined(self, answer: JoinAnswer) -> None:
        self.joins.append(answer)
        if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation
        elif answer.error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.owned = "", []

    def sync(self, parts: Sequence[Sequence[int]] | None = None) -> SyncAnswer | None:
        """Syncs. `parts` are the leader's shares for the members, in the order of its list of members."""
        stage, out, count = self.stage, Outbox(), len(self.syncs)
        members = [member_id for member_id, _, _ in self.joins[-1].members]
        parts = parts or [ALL[place :: len(members)] for place in range(len(members))]
        shares = {each: write_assignment([("orders", part)]) for each, part in zip(members, parts, strict=True)}
        request = SyncRequest(
            self.member_id, self.instance_id, self.generation, "consumer", self.joins[-1].protocol, shares
        )
        stage.shard.sync(GROUP, request, self._synced, out, at(stage.now_ms), stage.limits)
        stage.settle(out)
        return self.syncs[-1] if len(self.syncs) > count else None

    def _synced(self, answer: SyncAnswer) -> None:
        self.syncs.append(answer)
        if answer.error is ErrorCode.NONE:
            partitions = dict(read_assignment(answer.assignment).partitions)
            self.owned = sorted(partitions.get("orders", ()))

    def heartbeat(self) -> ErrorCode:
        stage = self.stage
        return stage.shard.heartbeat(GROUP, self.member_id, self.instance_id, self.generation, at(stage.now_ms))

    def commit(self, *partitions: int) -> ErrorCode:
        stage, share = self.stage, partitions_in(ORDERS, partitions)
        return stage.shard.check_commit(
            GROUP, self.member_id, self.instance_id, self.generation, at(stage.now_ms), partitions=lambda: share
        )

    def come(self) -> None:
        """Joins a group that assigns, if needed with an id that the group gives it, and syncs."""
        while (answer := self.join()) is not None and answer.error is not ErrorCode.NONE:
            assert answer.error in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID)
        self.sync()

    def go_on(self) -> None:
        """Sends a heartbeat, and obeys the answer."""
        error = self.heartbeat()
        if error is ErrorCode.NONE:
            return
        assert error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
        had = self.owned
        self.come()
        if self.cooperative and set(had) - set(self.owned):
            self.come()


def classic_group(*clients: Client) -> None:
    """Has the clients join at the same time; the leader shares out the six partitions."""
    for client in clients:
        if (answer := client.join()) is not None and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.join()
    clients[0].stage.pass_time(0)
    for client in clients[1:]:
        if client.joins[-1].error is not ErrorCode.NONE or client.generation != clients[0].generation:
            client.join()
    for client in clients:
        if client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            client.join()
    for client in clients:
        client.sync()
    for client in clients:
        client.sync()


def owned_by(member: Member) -> list[int]:
    return next((list(numbers) for topic, numbers in by_topic_id(member.owned) if topic == ORDERS), [])


def settle(*members: Client | Member) -> None:
    for _ in range(6):
        for member in members:
            if isinstance(member, Client):
                member.go_on()
            else:
                member.beat()
        owned = [each for member in members for each in shares(member)]
        assert len(owned) == len(set(owned))
    assert sorted(owned) == ALL


def shares(member: Client | Member) -> list[int]:
    return member.owned if isinstance(member, Client) else owned_by(member)


@pytest.fixture(params=["eager", "cooperative"])
def is_cooperative(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "cooperative")


def test_a_group_moves_member_by_member_and_back(is_cooperative: bool) -> None:
    stage = Stage()
    old = [Client(stage, name, cooperative=is_cooperative) for name in "ab"]
    classic_group(*old)
    assert [client.owned for client in old] == [[0, 2, 4], [1, 3, 5]]
    generation = old[0].generation

    new = Member(stage, "n1")
    new.beat()
    assert not stage.is_classic
    assert new.epoch == generation + 1
    assert owned_by(new) == []  # the other members have all partitions, and do not know it yet
    assert [client.commit() for client in old] == [ErrorCode.NONE] * 2
    settle(new, *old)
    assert [len(owned_by(new)), *(len(client.owned) for client in old)] == [2, 2, 2]
    assert {client.joins[-1].leader for client in old} == {""}

    # Each old member is replaced in turn: then the group has new ones only.
    leave(stage, old[0])
    second = Member(stage, "n2")
    second.beat()
    settle(new, second, old[1])
    leave(stage, old[1])
    settle(new, second)
    assert [len(owned_by(each)) for each in (new, second)] == [3, 3]

    # A member with the old protocol comes, and the others leave.
    back = Client(stage, "c", cooperative=is_cooperative)
    back.come()
    settle(new, second, back)
    new.send(-1)
    settle(second, back)
    assert not stage.is_classic
    second.send(-1)
    assert stage.is_classic
    assert stage.shard.groups[GROUP].state is State.PREPARING_REBALANCE
    assert back.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    had = back.generation
    back.come()
    assert back.generation == had + 1
    assert back.owned == ALL
    assert stage.shard.groups[GROUP].state is State.STABLE
    assert back.joins[-1].leader == back.member_id


def leave(stage: Stage, client: Client) -> None:
    out = Outbox()
    errors = stage.shard.leave(GROUP, [(client.member_id, client.instance_id)], out, at(stage.now_ms), stage.limits)
    assert errors == [ErrorCode.NONE]
    stage.settle(out)


def mixed_group(stage: Stage, *, cooperative: bool = False) -> tuple[Client, Member]:
    client, member = Client(stage, "old", cooperative=cooperative), Member(stage, "new")
    classic_group(client)
    member.beat()
    settle(member, client)
    return client, member


def test_what_a_member_has_goes_to_another_only_when_it_has_given_it_back() -> None:
    stage = Stage()
    client, member = Client(stage, "old", cooperative=True), Member(stage, "new")
    classic_group(client)
    assert client.owned == ALL
    member.beat()
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    before = client.generation
    client.join()
    assert client.generation == before  # it is told what to give back, and stays in its epoch until it has
    assert client.commit() is ErrorCode.NONE
    client.sync()
    assert client.owned == [0, 1, 2]
    member.beat()
    assert owned_by(member) == []
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.join()
    assert client.generation == before + 1
    member.beat()
    assert owned_by(member) == [3, 4, 5]


def test_a_member_that_has_not_heard_of_its_last_assignment_keeps_what_it_had() -> None:
    """The group changes its protocol in between. The partitions that the member was to give back go to the first member
    of the new protocol."""
    member, client = group_that_goes_over_before_a_client_hears_of_its_assignment()
    assert shares(client) == ALL
    assert owned_by(member) == []
    client.owned = [0, 1, 2]  # now it has heard
    client.come()
    member.beat()
    member.beat()
    assert set(owned_by(member)) <= {3, 4, 5}
    assert owned_by(member)


def group_that_goes_over_before_a_client_hears_of_its_assignment() -> tuple[Member, Client]:
    """A cooperative client has all partitions, and a second one comes: in the first of two rounds the leader takes half
    of them from the first client, and leaves them unassigned. The first client does not know it yet when a member of
    the consumer protocol comes."""
    stage = Stage()
    client, second = Client(stage, "a", cooperative=True), Client(stage, "b", cooperative=True)
    classic_group(client)
    second.join()
    second.join()
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.join()
    leader = client if client.joins[-1].members else second
    order = [each for each, _, _ in leader.joins[-1].members]
    leader.sync([[0, 1, 2] if each == client.member_id else [] for each in order])
    client.owned = ALL
    member = Member(stage, "new")
    for _ in range(3):
        member.beat()
    assert not stage.is_classic
    return member, client


def test_a_coordinator_that_takes_an_assignment_for_what_a_member_has_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = read_subscription
    monkeypatch.setattr(migration, "read_subscription", lambda metadata: real(metadata)._replace(owned=()))
    member, client = group_that_goes_over_before_a_client_hears_of_its_assignment()
    assert set(owned_by(member)) & set(shares(client))


def test_a_member_that_waits_for_partitions_is_told_when_they_are_free() -> None:
    stage = Stage()
    member = Member(stage, "new")
    member.beat()
    client = Client(stage, "old")
    client.come()
    assert client.owned == []
    assert client.heartbeat() is ErrorCode.NONE
    member.beat()  # it is told what to give back
    assert client.heartbeat() is ErrorCode.NONE
    member.beat()
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.come()
    assert client.owned == [3, 4, 5]
    assert client.heartbeat() is ErrorCode.NONE


def test_everything_outlives_the_broker() -> None:
    stage = Stage()
    client, member = mixed_group(stage)
    stage.restart()
    assert not stage.is_classic
    assert client.heartbeat() is ErrorCode.NONE
    assert member.beat().epoch == client.generation
    stage.compact()
    stage.restart()
    assert client.heartbeat() is ErrorCode.NONE

    stage.pass_time(SESSION_MS - 1)
    client.heartbeat()
    stage.pass_time(1)  # no heartbeat came from the other member
    assert stage.is_classic
    stage.restart()
    assert stage.is_classic
    # The round must not count as done: the partitions of the other member would have no owner.
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.come()
    assert client.owned == ALL


def test_a_downgraded_group_does_not_wait_for_members_that_do_not_come() -> None:
    stage = Stage()
    clients = [Client(stage, name) for name in "ab"]
    member = Member(stage, "new")
    classic_group(*clients)
    member.beat()
    settle(member, *clients)
    member.send(-1)
    assert stage.is_classic
    assert clients[0].join() is None
    for _ in range(REBALANCE_MS // 500):
        assert clients[1].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # and does nothing about it
        stage.pass_time(500)
    assert clients[0].joins[-1].error is ErrorCode.NONE
    clients[0].sync()
    assert clients[0].owned == ALL


def test_members_are_taken_out_that_do_not_join_again_or_do_not_sync() -> None:
    stage = Stage()
    client, member = Client(stage, "old"), Member(stage, "new")
    classic_group(client)
    member.beat()
    for _ in range(REBALANCE_MS // 500):
        assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.beat()
        stage.pass_time(500)
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    member.beat()
    assert owned_by(member) == ALL

    client.join()  # with the id that it had: it says that it has nothing
    assert client.joins[-1].error is ErrorCode.NONE
    for _ in range(REBALANCE_MS // 500):
        assert client.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        member.beat()
        stage.pass_time(500)
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_will_not_give_back_is_taken_out() -> None:
    stage = Stage()
    client, member = Client(stage, "old", cooperative=True), Member(stage, "new")
    classic_group(client)
    member.beat()
    for _ in range(REBALANCE_MS // 500):
        client.join()
        client.sync()
        client.owned = ALL
        client.heartbeat()
        member.beat()
        stage.pass_time(500)
    assert client.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.join() == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "old-1")  # it still says that it has something
    member.beat()
    assert owned_by(member) == ALL


def test_sessions_are_those_that_the_members_asked_for() -> None:
    stage = Stage()
    stage.group_limits = stage.group_limits._replace(session_timeout_ms=10 * SESSION_MS)
    client, member = mixed_group(stage)
    stage.pass_time(SESSION_MS - 1)
    assert client.heartbeat() is ErrorCode.NONE
    stage.pass_time(SESSION_MS - 1)
    assert client.member_id in stage.group.members
    stage.pass_time(1)
    assert list(stage.group.members) == [member.name]


def test_the_last_of_the_consumer_protocol_comes_again_after_it_was_missed() -> None:
    stage = Stage()
    client, member = mixed_group(stage)
    for _ in range(4):
        client.go_on()
        stage.pass_time(SESSION_MS // 3)
    assert stage.is_classic
    assert member.refused() is ErrorCode.UNKNOWN_MEMBER_ID  # an answer that tells the member to join
    assert member.refused(stage.shard.groups[GROUP].generation + 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert member.refused(-1) is ErrorCode.GROUP_ID_NOT_FOUND
    member.epoch, member.owned = 0, NOTHING
    member.beat()
    settle(client, member)
    assert not stage.is_classic


def test_who_waits_for_a_round_when_the_group_goes_over_comes_again() -> None:
    stage = Stage()
    settled, waits, newcomer = (Client(stage, name) for name in ("settled", "waits", "newcomer"))
    classic_group(settled, waits)
    newcomer.join()
    assert newcomer.join() is None
    assert waits.join() is None
    member = Member(stage, "new")
    member.beat()
    assert [each.joins[-1].error for each in (waits, newcomer)] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    assert sorted(stage.group.members) == sorted([settled.member_id, waits.member_id, "new"])
    waits.come()
    newcomer.come()
    settle(settled, waits, newcomer, member)


def test_who_waits_for_the_leader_when_the_group_goes_over_comes_again() -> None:
    stage = Stage()
    leader, follower = Client(stage, "leader"), Client(stage, "follower")
    classic_group(leader, follower)
    leader.join()
    follower.join()
    assert follower.sync() is None
    Member(stage, "new").beat()
    assert follower.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    sync = leader.sync()
    assert sync is not None
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_joined_with_another_protocol_than_its_first_comes_again_too() -> None:
    """The round chose the protocol that all know. A client that is refused for its protocol gives up."""
    stage = Stage()
    client, other = Client(stage, "old", protocols=("range", "sticky")), Client(stage, "other", protocols=("sticky",))
    classic_group(client, other)
    client.join()
    other.join()
    assert client.joins[-1].protocol == "sticky"
    member = Member(stage, "new")
    member.beat()
    sync = client.sync()
    assert sync is not None
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    settle(member, client, other)


def test_who_has_not_synced_when_the_group_is_a_classic_one_again_comes_again() -> None:
    """The member got its own first protocol, which the other members may not know."""
    stage = Stage()
    client, other = Client(stage, "old", protocols=("range", "sticky")), Client(stage, "other", protocols=("sticky",))
    classic_group(client, other)
    member = Member(stage, "new")
    member.beat()
    settle(member, client, other)
    client.topics = ("orders", "refunds")
    client.join()
    assert client.joins[-1].protocol == "range"
    member.send(-1)
    assert stage.is_classic
    assert stage.shard.groups[GROUP].protocol == "sticky"
    assert client.generation == stage.shard.groups[GROUP].generation
    for _ in range(2):
        sync = client.sync()
        assert sync is not None
        assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
        Member(stage, "newer").beat()  # and back: only the common protocol was kept


def test_a_full_disk_changes_nothing() -> None:
    stage = Stage()
    client = Client(stage, "old")
    classic_group(client)
    stage.full = True
    member = Member(stage, "new")
    member.send()
    assert stage.is_classic
    assert client.heartbeat() is ErrorCode.NONE
    stage.full = False
    member.beat()
    settle(member, client)
    stage.full = True
    stage.pass_time(SESSION_MS // 2)
    client.heartbeat()
    stage.pass_time(SESSION_MS // 2)
    assert not stage.is_classic
    stage.full = False
    client.heartbeat()
    stage.pass_time(1000)
    assert stage.is_classic


def test_a_static_member_changes_its_protocol_in_place() -> None:
    stage = Stage()
    client, other = Client(stage, "one", instance_id="one"), Client(stage, "two")
    classic_group(client, other)
    had = client.owned
    member = Member(stage, "one-again", instance_id="one")
    member.beat()
    assert client.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert client.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert owned_by(member) == had  # at once: it was its own
    settle(member, other)

    again = Client(stage, "one", instance_id="one")
    # The only member of the consumer protocol has left by that: the group is classic again.
    assert again.join() == JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, "")
    assert stage.is_classic
    assert member.refused() is ErrorCode.FENCED_INSTANCE_ID
    assert again.join() is None
    assert member.refused() is ErrorCode.FENCED_INSTANCE_ID
    assert other.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    other.join()
    for client in (again, other, again, other):
        client.sync()
    assert sorted(again.owned + other.owned) == ALL


def test_a_static_member_takes_its_place_among_members_of_the_other_protocol() -> None:
    stage = Stage()
    first, second = Member(stage, "n1", instance_id="one"), Member(stage, "n2")
    for member in (first, second) * 3:
        member.beat()
    had = owned_by(first)
    client = Client(stage, "c", instance_id="one")
    client.come()
    assert client.owned == had
    assert first.refused() is ErrorCode.FENCED_INSTANCE_ID
    settle(client, second)
    again = Client(stage, "d", instance_id="one")
    again.come()
    assert again.owned == had
    assert client.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    client.member_id = "somebody"
    client.instance_id = "nobody"
    assert client.join() == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "somebody")


@pytest.mark.parametrize("subscription_version", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [3, 4])
def test_clients_of_all_ages_can_come(subscription_version: int, version: int) -> None:
    stage = Stage()
    member = Member(stage, "new")
    member.beat()
    client = Client(stage, "old", version=version, subscription_version=subscription_version)
    client.come()
    settle(member, client)


def test_who_does_not_fit_is_told_so() -> None:
    stage = Stage()
    client, member = mixed_group(stage)

    def refused(other: Client) -> ErrorCode:
        answer = other.join()
        assert answer is not None
        return answer.error

    log = list(stage.log)
    other = Client(stage, "sticky", protocols=("sticky",))
    assert refused(other) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert refused(Client(stage, "nothing", protocols=())) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stranger = Client(stage, "stranger", instance_id="nobody")
    stranger.member_id = "stranger-1"
    assert refused(stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    imposter = Client(stage, "new", cooperative=True)
    imposter.member_id = member.name  # a member of the other protocol
    imposter.owned = [0]
    assert refused(imposter) is ErrorCode.UNKNOWN_MEMBER_ID
    long = Client(stage, "long")
    long.member_id = "x" * 40_000
    assert refused(long) is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.generation > 0
    client.generation -= 1
    assert client.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    assert client.commit() is ErrorCode.ILLEGAL_GENERATION
    sync = client.sync()
    assert sync is not None
    assert sync.error is ErrorCode.ILLEGAL_GENERATION
    client.generation += 1
    client.joins[-1] = client.joins[-1]._replace(protocol="sticky")
    sync = client.sync()
    assert sync is not None
    assert sync.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    confused = Member(stage, client.member_id)
    confused.epoch = client.generation
    assert confused.refused() is ErrorCode.FENCED_MEMBER_EPOCH
    stage.limits = LIMITS._replace(max_size=2)
    assert refused(Client(stage, "more", version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.log == log


def test_groups_that_are_not_of_consumers_stay_what_they_are() -> None:
    stage = Stage()
    client = Client(stage, "old")
    classic_group(client)
    group = stage.shard.groups[GROUP]
    member = Member(stage, "new")

    def refuses() -> bool:
        before = list(stage.log)
        refused = member.refused() is ErrorCode.GROUP_ID_NOT_FOUND
        return refused and stage.log == before and client.heartbeat() is ErrorCode.NONE

    group.protocol_type = "connect"
    assert refuses()
    group.protocol_type = "consumer"
    (only,) = group.members.values()
    fine = only.assignment
    only.assignment = write_assignment([("orders", ALL)])[:-4] + struct.pack(">i", 3) + b"why"
    assert refuses()
    only.assignment = b"garbage"
    assert refuses()
    only.assignment = fine
    only.protocols = (("range", b"garbage"),)
    assert refuses()
    only.protocols = (("range", subscription(["orders"], [], 0)),)
    stage.group_limits = stage.group_limits._replace(max_size=0)
    assert refuses()
    stage.group_limits = consumer_stage.LIMITS
    member.beat()
    assert not stage.is_classic


def test_a_group_that_is_not_of_consumers_is_not_taken_over_in_its_first_round() -> None:
    stage = Stage()
    stage.limits = LIMITS._replace(initial_rebalance_delay_ms=1000)
    worker = Client(stage, "worker")
    worker.join()
    assert worker.join() is None
    stage.shard.groups[GROUP].protocol_type = "connect"
    assert Member(stage, "new").refused() is ErrorCode.GROUP_ID_NOT_FOUND
    assert worker.joins[-1].error is ErrorCode.MEMBER_ID_REQUIRED  # and it waits


def test_a_record_that_would_be_too_long_is_not_written() -> None:
    """The group then stays one of the consumer protocol, which serves its members just as well."""
    stage = Stage()
    client, member = mixed_group(stage)
    stage.group_limits = stage.group_limits._replace(max_profile_bytes=10)
    member.send(-1)
    assert not stage.is_classic
    settle(client)
    assert client.owned == ALL


def test_a_group_whose_members_say_more_than_a_record_holds_stays_what_it_is() -> None:
    """Otherwise members would join again, and be refused for the size of their statements, for ever."""
    stage = Stage()
    topics = ("orders", *(f"a topic with a long name, number {place}" for place in range(120)))
    client = Client(stage, "old", *topics, protocols=("range", "sticky"))
    classic_group(client)
    assert client.owned == ALL
    assert Member(stage, "new").refused() is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.is_classic
    assert client.heartbeat() is ErrorCode.NONE


def test_members_among_themselves_hear_of_topics_that_change() -> None:
    """A group that cannot become classic has no leader, and heartbeats of classic members have to notice changed
    topics."""
    stage = Stage()
    client, member = mixed_group(stage)
    stage.group_limits = stage.group_limits._replace(max_profile_bytes=10)
    member.send(-1)
    stage.group_limits = consumer_stage.LIMITS
    settle(client)
    assert not stage.is_classic
    stage.topics["orders"] = TopicShape(ORDERS, 8)
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    client.come()
    assert client.owned == [*ALL, 6, 7]
    assert client.heartbeat() is ErrorCode.NONE


def test_nobody_commits_where_another_reads() -> None:
    """A member that has to give back two partitions, and reports one of them, stays in its epoch for the other."""
    stage = Stage()
    client, member = Client(stage, "old", cooperative=True), Member(stage, "new")
    classic_group(client)
    member.beat()
    client.owned = [0, 1, 2, 3, 4]
    client.join()
    generation = client.generation
    member.beat()
    assert owned_by(member) == [5]
    assert client.generation == generation
    assert client.commit(0, 4) is ErrorCode.NONE
    assert client.commit(5) is ErrorCode.ILLEGAL_GENERATION


def test_who_has_not_heard_of_its_last_assignment_still_has_what_it_had() -> None:
    stage = Stage()
    slow, quick = Client(stage, "slow", cooperative=True), Client(stage, "quick", cooperative=True)
    classic_group(slow)
    assert slow.owned == ALL
    quick.join()
    assert quick.join() is None
    assert slow.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    slow.join()
    assert slow.joins[-1].leader == slow.member_id
    quick.sync()
    out = Outbox()
    shares = {slow.member_id: write_assignment([("orders", [0, 1, 2])]), quick.member_id: write_assignment([])}
    request = SyncRequest(slow.member_id, None, slow.generation, "consumer", "range", shares)
    stage.shard.sync(GROUP, request, lambda _: None, out, at(stage.now_ms), stage.limits)
    stage.settle(out)  # and the answer is on its way
    member = Member(stage, "new")
    for _ in range(3):
        member.beat()
        quick.go_on()
        assert owned_by(member) == quick.owned == []
    settle(member, quick, slow)


def test_who_gave_back_in_time_may_stay() -> None:
    """The member's deadline for giving back was forgotten only at its next heartbeat."""
    stage = Stage()
    client, member = Client(stage, "old", cooperative=True), Member(stage, "new")
    stage.limits = LIMITS._replace(max_session_timeout_ms=10 * REBALANCE_MS)
    client.session_ms = 3 * REBALANCE_MS
    stage.group_limits = stage.group_limits._replace(session_timeout_ms=3 * REBALANCE_MS)
    classic_group(client)
    member.beat()
    client.join()
    client.sync()
    stage.pass_time(REBALANCE_MS - 1)
    client.join()
    stage.pass_time(REBALANCE_MS - 1)
    assert client.member_id in stage.group.members
    stage.pass_time(1)  # the member's deadline for syncing has passed
    assert list(stage.shard.consumer_groups[GROUP].members) == [member.name]


def test_who_speaks_the_other_protocol_under_the_same_id_has_no_deadline_of_the_old_one() -> None:
    stage = Stage()
    client, member = mixed_group(stage)
    Client(stage, "other").come()
    assert client.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # and would have to join again
    new = Member(stage, client.member_id)
    new.beat()
    for _ in range(2 * REBALANCE_MS // 500):
        stage.pass_time(500)
        new.beat()
        member.beat()
    assert {new.name, member.name} <= set(stage.group.members)
