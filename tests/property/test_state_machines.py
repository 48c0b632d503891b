"""Random requests drive each state machine, and every change of state is a move that its table allows.

The machines check their moves themselves before a record is made. Here the state is looked at around each replayed
record, so that a record which says another state than the one that was checked is found, too.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.moments import at
from tests.seeds import examples
from tests.unit.groups import consumer_stage, stage
from tests.unit.transactions.family_table import NAME, Table

from cordwood.groups.classic.group import CLASSIC_GROUP_MOVES
from cordwood.groups.classic.group import State as GroupState
from cordwood.groups.classic.outbox import Outbox
from cordwood.groups.consumer.group import CONSUMER_GROUP_MOVES, LEFT_FOR_A_WHILE
from cordwood.groups.consumer.heartbeat import LEAVING
from cordwood.groups.consumer.member import MEMBER_MOVES
from cordwood.groups.consumer.partition_sets import NOTHING
from cordwood.groups.consumer.topics import TopicShape
from cordwood.groups.state.committed_positions import Record
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicPartition
from cordwood.transactions.adding import add_partitions
from cordwood.transactions.beginning import Beginning, init_producer
from cordwood.transactions.ending import complete, end_transaction, time_out
from cordwood.transactions.log_records import KEY_TYPE, decode_key, record_of, record_type
from cordwood.transactions.transaction import AT_REST, SLOT_MOVES, TRANSACTION_MOVES, State, Step, Transaction
from cordwood.transactions.transactional_ids import Transactions

STEPS = 60
numbers = st.integers(0, 9)


def schedules(*actions: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """Actions with two numbers each; frequent actions are named several times."""
    return st.lists(st.tuples(st.sampled_from(actions), numbers, numbers), min_size=STEPS // 2, max_size=STEPS)


# Groups of the classic protocol


class ClassicStage(stage.Stage):
    def settle(self, out: Outbox) -> ErrorCode:
        if self.disk_is_full and out.records:
            return super().settle(out)
        for record in out.records:
            before = self.state
            self.log.append(record)
            self.shard.replay(*record)
            # A group that is not there (DEAD) begins anew.
            if self.state is not before and before is not GroupState.DEAD:
                CLASSIC_GROUP_MOVES.moved(stage.GROUP, before, self.state)
        out.settle(ErrorCode.NONE)
        members = [member for group in self.shard.groups.values() for member in group.members.values()]
        assert self.shard.kept.total == sum(member.kept_bytes for member in members)
        return ErrorCode.NONE

    def delete(self) -> None:
        out = Outbox()
        self.shard.delete(stage.GROUP, out)
        self.settle(out)


@settings(max_examples=examples(100))
@given(
    schedules("join", "join", "sync", "sync", "beat", "leave", "commit", "wait", "restart", "disk", "delete"),
    st.sampled_from([0, 50]),
)
def test_a_classic_group_only_moves_as_its_table_allows(schedule: list[tuple[str, int, int]], delay_ms: int) -> None:
    world = ClassicStage(stage.LIMITS._replace(initial_rebalance_delay_ms=delay_ms))
    actors = [stage.Actor(world, f"a{each}", instance_id=f"i{each}" if each % 2 else None) for each in range(4)]
    for action, who, amount in schedule:
        actor = actors[who % len(actors)]
        if action == "join":
            if amount == 0:
                actor.member_id = ""
            actor.join()
        elif action == "sync":
            actor.sync({other.member_id: b"share" for other in actors} if actor.leads else None)
        elif action == "beat":
            actor.heartbeat()
        elif action == "leave":
            world.leave((actor.member_id, actor.instance_id))
        elif action == "commit":
            actor.commit(amount)
        elif action == "wait":
            world.pass_time(amount * stage.SESSION_MS // 3)
        elif action == "restart":
            world.restart()
        elif action == "disk":
            world.disk_is_full = amount < 5
        elif action == "delete":
            world.delete()


# Groups of the consumer protocol


class ConsumerStage(consumer_stage.Stage):
    def settle(self, out: Outbox) -> None:
        group = self.shard.consumer_groups.get(consumer_stage.GROUP)
        state = None if group is None else group.state
        members = {} if group is None else dict(group.currents)
        super().settle(out)
        group = self.shard.consumer_groups.get(consumer_stage.GROUP)
        if group is None:
            return
        if state is not None and group.state is not state:
            CONSUMER_GROUP_MOVES.moved(consumer_stage.GROUP, state, group.state)
        for member_id, current in group.currents.items():
            if member_id in members and current is not members[member_id]:
                MEMBER_MOVES.moved(member_id, members[member_id].state, current.state)


@settings(max_examples=examples(100))
@given(
    schedules("beat", "beat", "beat", "beat", "keep", "anew", "leave", "away", "topics", "wait", "restart", "compact")
)
def test_a_consumer_group_and_its_members_only_move_as_their_tables_allow(schedule: list[tuple[str, int, int]]) -> None:
    world = ConsumerStage()
    members = [
        consumer_stage.Member(world, f"m{each}", instance_id=f"i{each}" if each % 2 else None) for each in range(4)
    ]
    for action, who, amount in schedule:
        member = members[who % len(members)]
        try:
            if action == "beat":
                member.beat()
            elif action == "keep":
                # The member does not give back what it has to.
                member.epoch = member.send().epoch
            elif action == "anew":
                member.epoch, member.owned = 0, NOTHING
                member.beat()
            elif action in ("leave", "away"):
                member.send(LEAVING if action == "leave" else LEFT_FOR_A_WHILE)
                member.epoch, member.owned = 0, NOTHING
            elif action == "topics":
                world.topics["orders"] = TopicShape(consumer_stage.ORDERS, amount)
            elif action == "wait":
                world.pass_time(amount * consumer_stage.SESSION_MS // 3)
            elif action == "restart":
                world.restart()
            elif action == "compact":
                world.compact()
                world.restart()
        except ProtocolError:
            member.epoch, member.owned = 0, NOTHING


# Transactions


class Writer:
    """One transactional id: its log, its state, and a producer that may be behind."""

    name = "writer"

    def __init__(self) -> None:
        self.machine = Transactions()
        self.log: list[Record] = []
        self.now_ms = 1000
        self.ids = 100

    @property
    def found(self) -> Transaction | None:
        return self.machine.get(self.name)

    def append(self, record: Record) -> None:
        before = self.found
        self.log.append(record)
        self.machine.replay(*record)
        after = State.DEAD if self.found is None else self.found.state
        if before is None:
            assert after is State.EMPTY
        else:
            TRANSACTION_MOVES.moved(self.name, before.state, after)

    def step(self, step: Step) -> None:
        if step.changed is not None:
            self.append(record_of(step.changed))

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def restart(self) -> None:
        self.machine = Transactions()
        for record in self.log:
            self.machine.replay(*record)


@settings(max_examples=examples(100))
@given(
    schedules("init", "init", "add", "add", "add", "end", "end", "mark", "mark", "late", "expire", "restart"),
    st.sampled_from([0, 32_762]),
)
def test_a_transaction_only_moves_as_its_table_allows(schedule: list[tuple[str, int, int]], epoch: int) -> None:
    writer = Writer()
    writer.append(record_of(Transaction(writer.name, 7, epoch, 60_000, State.EMPTY, 1000)))
    for action, number, version in schedule:
        writer.now_ms += 1000
        found = writer.found
        # Mostly the producer's own epoch, else an earlier one.
        behind = 1 if number == 0 else 0
        owner = (-1, -1) if found is None else (found.producer_id, found.producer_epoch - behind)
        if action == "init":
            asked = Beginning(writer.name, 60_000, *(owner if number < 4 and owner[1] >= 0 else (-1, -1)))
            writer.step(init_producer(found, asked, writer.new_id, writer.now_ms))
        elif action == "add":
            partitions = [TopicPartition("t", number)]
            step = add_partitions(
                found, *owner, partitions, client_version=version % 3, wall_ms=writer.now_ms, max_partitions=5
            )
            writer.step(step)
        elif action == "end":
            step = end_transaction(
                found,
                *owner,
                commit=number % 2 == 0,
                client_version=version % 3,
                new_producer_id=writer.new_id,
                wall_ms=writer.now_ms,
            )
            writer.step(step)
        elif action == "mark":
            for decided in writer.machine.prepared():
                writer.append(record_of(complete(decided, writer.now_ms)))
        elif action == "late":
            writer.now_ms += 60_000 * (number > 4)
            for late in writer.machine.timed_out(at(writer.now_ms)):
                writer.append(record_of(time_out(late, writer.now_ms)))
        elif action == "expire":
            for record in writer.machine.expired(writer.now_ms, 3000):
                writer.append(record)
        elif action == "restart":
            writer.restart()
    if writer.found is not None and writer.found.state not in AT_REST:
        assert writer.machine.expired(writer.now_ms + 10**9, 3000) == []


# Slots of families


class FamilyTable(Table):
    def append(self, records: list[Record]) -> None:  # type: ignore[override]
        for record in records:
            slot_id = decode_key(record[0]) if record_type(record[0]) == KEY_TYPE else None
            before = None if slot_id is None else self.machine.get(slot_id)
            super().append([record])
            if slot_id is None:
                continue
            found = self.machine.get(slot_id)
            after = State.DEAD if found is None else found.state
            if before is None:
                assert after is State.EMPTY
            else:
                SLOT_MOVES.moved(slot_id, before.state, after)


@settings(max_examples=examples(100))
@given(
    schedules(
        *("join", "join", "join", "write", "write", "write", "commit", "abort", "mark", "mark"),
        *("time", "look", "forget", "restart", "compact"),
    )
)
def test_a_slot_only_moves_as_its_table_allows(schedule: list[tuple[str, int, int]]) -> None:
    table = FamilyTable()
    joined: list[Transaction] = []
    for action, number, other in schedule:
        slot = joined[-1 - number % min(len(joined), 4)] if joined else None
        if action == "join":
            found = table.asks_to_join(table.family.last_batch_id + 1 + other % 2).slot
            joined += [] if found is None else [found]
        elif action == "write" and slot is not None:
            table.writes(slot, other)
        elif action == "commit" and slot is not None:
            table.commits(slot.batch_id, *([slot] if other < 7 else []), forget=other == 0)
        elif action == "abort" and slot is not None:
            table.aborts(slot.batch_id, *([slot] if other < 5 else []), forget=other == 0)
        elif action == "mark":
            table.marks()
        elif action == "time":
            table.now_ms += other * 100_000
        elif action == "look":
            table.looks()
        elif action == "forget":
            table.forgets()
        elif action == "restart":
            table.restart()
        elif action == "compact":
            table.compact()
            table.restart()
    assert table.family.name == NAME
