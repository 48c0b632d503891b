"""Transactions on a whole node: errors by version, positions, timeouts, expiry, restarts, and who is told what."""

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from simulation.checkers.committed_reads import committed_values, read_committed
from simulation.transaction_game import SETTINGS
from simulation.workloads.transactional_writers import TOPIC
from simulation.world.disk import ProcessDied
from simulation.world.world import World
from tests.simulation.one_producer import NAME, Producer, described, position
from tests.unit.node.speaking import create_topic, delete_topic

from cordwood.log.log import Appended
from cordwood.model.coordination import transaction_partition
from cordwood.model.errors import ErrorCode, StorageFailure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.moment import Moment
from cordwood.node.coordinators.transaction_completion import LONGEST_RETRY_MS
from cordwood.node.partitions.appends import Appends
from cordwood.node.partitions.partition import Partition
from cordwood.records.build import build_batch
from cordwood.records.control import TransactionMarker
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender

TRANSACTION_STATE = "__transaction_state"


@pytest.fixture
def world() -> World:
    world = World(1, {**SETTINGS, "transactional.id.expiration.ms": "500000"})
    world.start()
    create_topic(world, TOPIC, partitions=3)
    return world


def latest(world: World, isolation_level: int) -> int:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": TOPIC, "partitions": [asked]}]
    answer = world.ask(ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=isolation_level, topics=topics)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.NONE),
    ],
)
def test_a_partition_must_be_added_before_it_is_written_unless_writing_adds_it(
    world: World, version: int, error: ErrorCode
) -> None:
    producer = Producer(world)
    assert producer.write(version, b"value") is error
    assert latest(world, 0) == (1 if error is ErrorCode.NONE else 0)


def test_what_is_written_is_read_when_it_is_committed(world: World) -> None:
    producer = Producer(world)
    assert producer.add(0) is ErrorCode.NONE
    assert producer.write(9, b"one", b"two") is ErrorCode.NONE
    assert committed_values(world, 0) == []
    assert (latest(world, 0), latest(world, 1)) == (2, 0)
    assert producer.end(commit=True, version=3) is ErrorCode.NONE
    assert committed_values(world, 0) == [b"one", b"two"]
    assert (latest(world, 0), latest(world, 1)) == (3, 3)
    assert producer.write(9, b"outside") is ErrorCode.INVALID_TXN_STATE


def test_a_producer_that_is_new_to_a_partition_starts_with_sequence_0(world: World) -> None:
    producer = Producer(world)
    assert producer.write(12, b"second", sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.write(12, b"first", sequence=0) is ErrorCode.NONE


def test_batches_that_come_while_the_first_is_verified_keep_their_order(world: World) -> None:
    producer = Producer(world)
    connection = world.connect()
    exchanges = []
    for sequence in range(5):
        batch = build_batch(
            [(world.clock.wall_ms, None, str(sequence).encode(), ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        part = {"index": 0, "records": bytes(batch)}
        values = {"transactional_id": NAME, "acks": -1, "timeout_ms": 1000}
        topics = [{"name": TOPIC, "partition_data": [part]}]
        exchanges.append(connection.request(ApiKey.PRODUCE, 12, {**values, "topic_data": topics}))
        world.network.deliver_request(connection, world.clock.now())
    world.settle()
    assert [each.answer.responses[0].partition_responses[0].base_offset for each in exchanges] == [0, 1, 2, 3, 4]
    producer.end(commit=True)
    assert committed_values(world, 0) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_needs_acks_from_all(world: World) -> None:
    assert Producer(world).write(12, b"value", acks=1) is ErrorCode.INVALID_REQUIRED_ACKS


def test_positions_are_pending_until_the_transaction_ends(world: World) -> None:
    producer = Producer(world)
    assert position(world, require_stable=True) == (-1, ErrorCode.NONE)
    assert producer.move(5) is ErrorCode.NONE
    assert position(world, require_stable=False) == (-1, ErrorCode.NONE)
    assert position(world, require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    producer.end(commit=True)
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)
    assert producer.move(9) is ErrorCode.NONE
    producer.end(commit=False)
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)


def test_an_answer_to_the_end_leaves_behind_the_markers_of_partitions_led_here(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5) is ErrorCode.NONE
    shards = world.node.groups.shards.log.loaded_shards()
    assert [bool(shard.pending) for shard in shards] == [True]
    exchange = world.connect().request(ApiKey.END_TXN, 5, {**producer.who, "committed": True})
    while not exchange.replies:
        world.do(world.steps()[0][1])
    assert [bool(shard.pending) for shard in shards] == [False]


def test_pending_positions_survive_a_restart_and_still_depend_on_the_end(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5) is ErrorCode.NONE
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert producer.end(commit=True) is ErrorCode.NONE
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)


def test_a_position_outside_of_transactions_that_came_later_stays(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5) is ErrorCode.NONE
    later = {"partition_index": 0, "committed_offset": 8, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [later]}]
    answer = world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=topics)
    assert answer.topics[0].partitions[0].error_code == 0
    producer.end(commit=True)
    assert position(world, require_stable=True) == (8, ErrorCode.NONE)
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (8, ErrorCode.NONE)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_position_that_a_transaction_is_about_to_move_does_not_expire_under_it(commit: bool) -> None:
    world = World(1, {**SETTINGS, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
    world.start()
    create_topic(world, TOPIC)
    first = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=[{"name": TOPIC, "partitions": [first]}])
    world.advance(58_000)
    producer = Producer(world)
    assert producer.move(9) is ErrorCode.NONE
    world.advance(5_000)
    assert producer.end(commit=commit) is ErrorCode.NONE
    world.advance(2_000)
    left = 9 if commit else -1
    assert position(world, require_stable=True) == (left, ErrorCode.NONE)
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (left, ErrorCode.NONE)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_position_in_a_new_topic_is_not_forgotten_with_that_in_the_deleted_one(world: World, commit: bool) -> None:
    """The old position is looked for some time after the deletion, when a transaction may be about to replace it."""
    producer = Producer(world)
    assert producer.move(3) is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    for _ in range(10_000):
        world.node.groups.positions._in_turns.add(lambda now: None)
    delete_topic(world, TOPIC)
    create_topic(world, TOPIC, partitions=3)
    assert producer.move(5) is ErrorCode.NONE
    world.advance(20_000)
    assert producer.end(commit=commit) is ErrorCode.NONE
    left = 5 if commit else -1
    assert position(world, require_stable=True) == (left, ErrorCode.NONE)
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (left, ErrorCode.NONE)


def test_a_group_that_is_deleted_does_not_come_back_with_a_transaction(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5) is ErrorCode.NONE
    other = {"partition_index": 1, "committed_offset": 3, "committed_metadata": ""}
    world.ask(ApiKey.OFFSET_COMMIT, 8, group_id="group", topics=[{"name": TOPIC, "partitions": [other]}])
    (deleted,) = world.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["group"]).results
    assert deleted.error_code == 0
    assert producer.end(commit=True) is ErrorCode.NONE
    assert not world.ask(ApiKey.LIST_GROUPS, 4, states_filter=[]).groups
    assert producer.move(7) is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    assert position(world, require_stable=True) == (7, ErrorCode.NONE), "what comes after the deletion is another group"


def delete_position(world: World) -> list[ErrorCode]:
    """The errors of the group and, if it has none, of the partition."""
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = world.ask(ApiKey.OFFSET_DELETE, 0, group_id="group", topics=topics)
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    return [ErrorCode(code) for code in (answer.error_code, *codes)]


@pytest.mark.parametrize("had_one", [True, False], ids=["one before", "none before"])
def test_a_position_that_is_deleted_does_not_come_back_with_a_transaction(world: World, had_one: bool) -> None:
    producer = Producer(world)
    if had_one:
        assert producer.move(3) is ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE
    assert producer.move(5) is ErrorCode.NONE
    assert delete_position(world) == [ErrorCode.NONE, ErrorCode.NONE]
    assert position(world, require_stable=True) == (-1, ErrorCode.NONE)
    assert producer.end(commit=True) is ErrorCode.NONE
    assert position(world, require_stable=True) == (-1, ErrorCode.NONE)
    world.kill()
    world.start()
    assert position(world, require_stable=True) == (-1, ErrorCode.NONE)
    assert delete_position(world) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_group_that_is_only_about_to_be_can_be_deleted(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5) is ErrorCode.NONE
    (deleted,) = world.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["group"]).results
    assert deleted.error_code == 0
    assert producer.end(commit=True) is ErrorCode.NONE
    assert position(world, require_stable=True) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize(("version", "told"), [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (3, ErrorCode.PRODUCER_FENCED)])
def test_who_is_fenced_is_told_so_in_words_it_knows(world: World, version: int, told: ErrorCode) -> None:
    old = Producer(world)
    assert old.add(0) is ErrorCode.NONE
    assert old.write(9, b"old") is ErrorCode.NONE
    Producer(world)
    assert old.add(0, version) is told
    assert old.end(commit=True, version=version) is told
    assert old.write(9, b"older") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.move(4, version=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert committed_values(world, 0) == []


def test_a_transaction_that_is_open_for_too_long_is_aborted(world: World) -> None:
    producer = Producer(world, timeout_ms=2000)
    assert producer.write(12, b"value") is ErrorCode.NONE
    world.advance(1500)
    assert described(world).transaction_state == "Ongoing"
    world.advance(1500)
    assert described(world).transaction_state == "CompleteAbort"
    values, stable, high_watermark = read_committed(world, 0)
    assert (values, stable) == ([], high_watermark)
    assert producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE


def test_the_timeout_of_a_transaction_goes_on_after_a_restart(world: World) -> None:
    assert Producer(world, timeout_ms=2000).write(12, b"value") is ErrorCode.NONE
    world.kill()
    world.clock.advance(5000)
    world.start()
    world.advance(1000)
    assert described(world).transaction_state == "CompleteAbort"


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_what_was_decided_before_a_crash_is_completed_after_it(world: World, commit: bool) -> None:
    """The process dies at every disk operation from the arrival of EndTxn on: the answer stands, whenever it was."""
    decided = 0
    for operations in range(1, 40):
        producer = Producer(world)
        before = committed_values(world, 0)
        text = str(operations).encode()
        assert producer.write(12, text) is ErrorCode.NONE
        exchange = world.connect().request(ApiKey.END_TXN, 5, {**producer.who, "committed": commit})
        world.disk.die_within(operations)
        with suppress(ProcessDied):
            world.settle()
        died = world.disk.died
        world.disk.die_at = None
        answered = exchange.answer is not None and exchange.answer.error_code == 0
        world.lose_power()
        world.start()
        world.advance(1000)
        if answered:
            decided += 1
            wanted = [*before, text] if commit else before
            found, stable, high_watermark = read_committed(world, 0)
            assert ([value for _, value in found], stable) == (wanted, high_watermark)
        if not died:
            break
    assert decided > 0


BROKEN = [TopicPartition(TOPIC, 1), TopicPartition(TRANSACTION_STATE, transaction_partition(NAME, 2))]


def break_log(broken: TopicPartition, patch: pytest.MonkeyPatch) -> list[int]:
    """After the next append, which is the decision, this log takes nothing: the times when it was tried."""
    tried_ms: list[int] = []
    append_internal = Appends.append_internal
    decided = False

    def append(
        appends: Appends, partition: Partition, batch: bytearray, now: Moment, marker: TransactionMarker | None = None
    ) -> Appended:
        nonlocal decided
        if decided and partition.name == broken:
            tried_ms.append(now.boot_ms)
            raise StorageFailure(f"{partition.name} takes nothing")
        decided = True
        return append_internal(appends, partition, batch, now, marker)

    patch.setattr(Appends, "append_internal", append)
    return tried_ms


@pytest.mark.parametrize("broken", BROKEN)
def test_trying_to_complete_again_and_again_writes_no_marker_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: TopicPartition
) -> None:
    """A log that takes nothing for long must not fill those that the transaction has been ended in, nor the loop."""
    producer = Producer(world)
    assert producer.write(12, b"first", partition=0) is ErrorCode.NONE
    assert producer.write(12, b"second", partition=1, sequence=0) is ErrorCode.NONE
    with monkeypatch.context() as patched:
        tried_ms = break_log(broken, patched)
        assert producer.end(commit=True) is ErrorCode.NONE
        end = latest(world, 0)
        world.advance(10_000)
        assert described(world).transaction_state == "PrepareCommit"
        assert latest(world, 0) == end
        assert len(tried_ms) >= 4
    world.advance(LONGEST_RETRY_MS)
    assert described(world).transaction_state == "CompleteCommit"
    assert latest(world, 0) == latest(world, 1) == end
    assert committed_values(world, 1) == [b"second"]


@pytest.mark.parametrize("broken", BROKEN)
def test_completing_is_tried_less_and_less_often_until_it_succeeds(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: TopicPartition
) -> None:
    producer = Producer(world)
    for _ in range(2):
        assert producer.write(12, b"value", partition=1) is ErrorCode.NONE
        with monkeypatch.context() as patched:
            tried_ms = break_log(broken, patched)
            assert producer.end(commit=True) is ErrorCode.NONE
            world.advance(40_000)
        pauses_ms = [later - earlier for earlier, later in pairwise(tried_ms)]
        assert pauses_ms == [500, 1_000, 2_000, 4_000, 8_000, LONGEST_RETRY_MS, LONGEST_RETRY_MS]
        world.advance(LONGEST_RETRY_MS)
        assert described(world).transaction_state == "CompleteCommit"


def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    producer = Producer(world)
    assert described(world).transaction_state == "Empty"
    world.advance(3_700_000)
    assert described(world).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert producer.add(0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transactions_are_listed_by_state_producer_and_duration(world: World) -> None:
    def listed(**filters: Any) -> list[str]:
        values: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
        answer = world.ask(ApiKey.LIST_TRANSACTIONS, 1, **values)
        return [each.transactional_id for each in answer.transaction_states]

    assert listed() == []
    producer = Producer(world)
    assert listed(state_filters=["Empty"]) == [NAME]
    assert producer.write(12, b"value") is ErrorCode.NONE
    assert listed(state_filters=["Ongoing"]) == [NAME]
    assert listed(state_filters=["Empty"]) == []
    assert listed(producer_id_filters=[producer.producer_id]) == [NAME]
    assert listed(producer_id_filters=[producer.producer_id + 1]) == []
    world.advance(1000)
    assert listed(duration_filter=500) == [NAME]
    assert listed(duration_filter=5000) == []
    answer = world.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Nonsense"], producer_id_filters=[])
    assert answer.unknown_state_filters == ["Nonsense"]


def test_transactions_are_listed_by_a_regular_expression_for_the_whole_id(world: World) -> None:
    Producer(world)

    def listed(pattern: str | None) -> tuple[ErrorCode, list[str]]:
        values: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
        answer = world.ask(ApiKey.LIST_TRANSACTIONS, 2, **values, transactional_id_pattern=pattern)
        return ErrorCode(answer.error_code), [each.transactional_id for each in answer.transaction_states]

    for pattern in (None, "", ".*", NAME, f"^{NAME[:2]}.*$"):
        assert listed(pattern) == (ErrorCode.NONE, [NAME]), pattern
    assert listed(NAME[:2]) == (ErrorCode.NONE, [])
    assert listed("(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


def test_positions_are_moved_by_topic_id_too(world: World) -> None:
    producer = Producer(world)
    assert producer.move(5, version=6) is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)
    delete = world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[TOPIC], timeout_ms=1000)
    assert delete.responses[0].error_code == 0
    assert producer.move(6, version=6) is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("version", "refusal"), [(5, "ILLEGAL_GENERATION"), (6, "GROUP_ID_NOT_FOUND")])
def test_a_generation_of_a_group_that_is_not_there_is_refused(world: World, version: int, refusal: str) -> None:
    producer = Producer(world)
    author = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert producer.move(5, version, **author).name == refusal


@pytest.mark.parametrize(("version", "refusal"), [(5, "ILLEGAL_GENERATION"), (6, "STALE_MEMBER_EPOCH")])
def test_a_member_moves_positions_in_its_own_epoch(world: World, version: int, refusal: str) -> None:
    joining = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
    joined = world.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="group", member_id="m", member_epoch=0, **joining)
    assert joined.member_epoch == 1
    producer = Producer(world)
    assert producer.move(5, version, member_id="m", generation_id_or_member_epoch=0).name == refusal
    assert producer.move(5, version, member_id="n", generation_id_or_member_epoch=1).name == "UNKNOWN_MEMBER_ID"
    assert producer.move(5, version, member_id="m", generation_id_or_member_epoch=1) is ErrorCode.NONE
    assert producer.end(commit=True) is ErrorCode.NONE
    assert position(world, require_stable=True) == (5, ErrorCode.NONE)


def test_partitions_are_added_all_or_none(world: World) -> None:
    producer = Producer(world)
    answer = world.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[{"name": TOPIC, "partitions": [0, 9]}],
    )
    errors = [each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition]
    assert errors == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert described(world).transaction_state == "Empty"


def test_brokers_verify_many_transactions_at_once(world: World) -> None:
    producer = Producer(world)
    assert producer.add(0) is ErrorCode.NONE
    asked = {**producer.who, "verify_only": True, "topics": [{"name": TOPIC, "partitions": [0, 1]}]}
    sender = Sender(world.node.image.node_id, world.node.image.brokers[world.node.image.node_id].key)
    exchange = world.connect().request(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [asked]}, sender=sender)
    world.settle()
    (result,) = exchange.answer.results_by_transaction
    errors = [each.partition_error_code for each in result.topic_results[0].results_by_partition]
    assert errors == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]


def test_an_administrator_ends_what_hangs_but_an_old_marker_does_not(world: World) -> None:
    producer = Producer(world)
    assert producer.write(12, b"value") is ErrorCode.NONE

    def mark(epoch: int, version: int) -> ErrorCode:
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
            "transaction_version": version,
        }
        answer = world.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker])
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert mark(producer.epoch, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_committed(world, 0)[1] == 0
    assert mark(producer.epoch + 1, 2) is ErrorCode.NONE
    assert read_committed(world, 0)[1] == 2


def test_a_read_that_needs_the_disk_tells_which_transactions_were_aborted(world: World) -> None:
    """After a restart the indexes are not in memory: a thread finds the records, and what was aborted still counts."""
    producer = Producer(world)
    for text, commit in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
        assert producer.write(12, text) is ErrorCode.NONE
        assert producer.end(commit=commit) is ErrorCode.NONE
    world.stop()
    world.start()
    world.disk.platter.nothing_cached = True
    assert committed_values(world, 0) == [b"kept", b"kept too"]


@pytest.mark.parametrize(("timeout_ms"), [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(world: World, timeout_ms: int) -> None:
    answer = world.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=NAME,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_topic_that_is_deleted_does_not_hold_up_the_end(world: World) -> None:
    producer = Producer(world)
    assert producer.write(12, b"value") is ErrorCode.NONE
    world.ask(ApiKey.DELETE_TOPICS, 4, topic_names=[TOPIC], timeout_ms=1000)
    assert producer.end(commit=True) is ErrorCode.NONE
    assert described(world).transaction_state == "CompleteCommit"


def test_the_coordinator_of_a_transactional_id_is_found(world: World) -> None:
    found = world.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[NAME, ""]).coordinators
    assert [each.error_code for each in found] == [ErrorCode.NONE, ErrorCode.NONE]
    assert found[0].node_id == world.node.image.node_id
    assert len(world.node.hosted.topics[TRANSACTION_STATE]) == 2


def test_the_stable_end_is_never_before_the_start_though_an_open_transaction_is(world: World) -> None:
    """A reader that goes to the end would find itself out of range, and go there again."""
    producer = Producer(world)
    assert producer.write(12, b"one", b"two") is ErrorCode.NONE
    everything = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": -1}]}]
    deleted = world.ask(ApiKey.DELETE_RECORDS, 2, topics=everything, timeout_ms=1000)
    assert deleted.topics[0].partitions[0].low_watermark == 2
    assert producer.write(12, b"three") is ErrorCode.NONE
    assert (latest(world, 0), latest(world, 1)) == (3, 2)
    assert producer.end(commit=True) is ErrorCode.NONE
    assert (latest(world, 0), latest(world, 1)) == (4, 4)


def test_transactions_in_a_topic_that_nobody_reads_leave_nothing_in_memory(world: World) -> None:
    producer = Producer(world)
    for _ in range(20):
        assert producer.write(12, b"value") is ErrorCode.NONE
        assert producer.end(commit=True) is ErrorCode.NONE
    assert world.node.hosted.leader(TOPIC, 0).replica.log.replayed.producers.undecided == 0
