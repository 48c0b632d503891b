"""The follower machine against leaders of several epochs: histories converge, and no shared record changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.checkers.content import read_batches
from tests.moments import at

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import NO_OFFSET, BrokerEpoch, BrokerId, Offset, TopicPartition
from cordwood.model.settings.topic_settings import resolve
from cordwood.records.build import build_batch
from cordwood.replication.follower import (
    Append,
    Cut,
    FetchFrom,
    FollowerReplica,
    Late,
    LeaderAnswer,
    Refill,
    Refused,
    Restart,
    RestartWith,
    StartConfirmed,
    Step,
    Withhold,
)
from cordwood.replication.leader import LeaderReplica

NOW_MS = 1_700_000_000_000
ME, OTHER, THIRD = 1, 2, 3


def new_log(**overrides: str) -> Log:
    filesystem = CrashingFilesystem()
    filesystem.make_directory("/data")
    return Log.open(
        filesystem,
        "/data/orders-0",
        TopicPartition("orders", 0),
        resolve({name.replace("_", "."): value for name, value in overrides.items()}),
        recovery_point=0,
        clean=False,
        now=at(NOW_MS),
    )


def fetched(leader: LeaderReplica, follower: int, offset: int, boot_ms: int, connection_id: int = -1) -> None:
    leader.follower_fetched(BrokerId(follower), BrokerEpoch(1), Offset(offset), NO_OFFSET, connection_id, boot_ms)


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.sync()
        ticket.finish()


def append(log: Log, epoch: int, *values: bytes) -> None:
    batch = build_batch([(NOW_MS, None, value, ()) for value in values])
    log.append(batch, leader_epoch=epoch, now=at(NOW_MS))
    flush(log)


def content(log: Log) -> list[tuple[int, int, bytes]]:
    return [(header.base_offset, header.partition_leader_epoch, bytes(batch)) for header, batch in read_batches(log)]


def answer_of(leader: LeaderReplica, asked: FetchFrom) -> LeaderAnswer:
    """The leader's answer, as the handler of fetches makes it: at most one batch."""
    log = leader.log
    diverging = None
    if asked.last_fetched_epoch >= 0:
        diverging = leader.divergence(asked.last_fetched_epoch, asked.offset)
    if diverging is not None:
        return LeaderAnswer(0, leader.high_watermark, log.offsets.start, None, *diverging)
    if not log.offsets.start <= asked.offset <= log.offsets.end:
        return LeaderAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, leader.high_watermark, log.offsets.start)
    records = next((bytes(batch) for _, batch in read_batches(log, asked.offset)), b"")
    fetched(leader, OTHER, asked.offset, 0)
    return LeaderAnswer(0, leader.high_watermark, log.offsets.start, records)


def one_round(follower: FollowerReplica, leader: LeaderReplica) -> str:
    """One fetch and what follows from it."""
    asked = follower.ask()
    assert asked is not None
    answer = answer_of(leader, asked)
    log = follower.log
    match follower.answered(asked, answer):
        case Append(records):
            if records:
                log.append_replicated(bytearray(records), leader_epoch=follower.leader_epoch, now=at(NOW_MS))
                flush(log)
            follower.took(answer.high_watermark, 0)
            return "append" if records else "nothing"
        case Cut(offset):
            log.truncate_to(offset)
            follower.was_cut()
            return "cut"
        case Restart(offset):
            log.restart_at(offset)
            follower.was_cut()
            return "restart"
        case RestartWith(offset, records):
            log.restart_at(offset)
            follower.was_cut()
            log.append_replicated(bytearray(records), leader_epoch=follower.leader_epoch, now=at(NOW_MS))
            flush(log)
            log.delete_records_before(answer.log_start)
            return "restart with a batch"
        case step:
            raise AssertionError(step)


def catch_up(follower: FollowerReplica, leader: LeaderReplica) -> list[str]:
    steps: list[str] = []
    while not steps or steps[-1] != "nothing":
        steps.append(one_round(follower, leader))
        assert len(steps) < 200, steps
    return steps


def test_a_follower_takes_records_and_the_smaller_of_both_ends_as_its_high_watermark() -> None:
    leader = LeaderReplica(new_log(), ME, 0, [ME], 1)
    append(leader.log, 0, b"a", b"b")
    append(leader.log, 0, b"c")
    leader.advance()
    follower = FollowerReplica(new_log(), ME, 0, 0)
    assert one_round(follower, leader) == "append"
    assert (leader.high_watermark, follower.high_watermark) == (3, 2)
    assert catch_up(follower, leader) == ["append", "nothing"]
    assert (follower.high_watermark, content(follower.log)) == (3, content(leader.log))


def test_a_follower_under_disk_asks_again_only_when_its_records_are_synced() -> None:
    follower = FollowerReplica(new_log(), ME, 0, 0)
    follower.log.append(build_batch([(NOW_MS, None, b"a", ())]), leader_epoch=0, now=at(NOW_MS))
    assert follower.ask() is None
    flush(follower.log)
    assert follower.ask() == FetchFrom(1, 0, 0)


def test_a_follower_under_os_asks_from_its_logs_end() -> None:
    follower = FollowerReplica(new_log(ack_durability="os"), ME, 0, 0)
    follower.log.append(build_batch([(NOW_MS, None, b"a", ())]), leader_epoch=0, now=at(NOW_MS))
    assert follower.ask() == FetchFrom(1, 0, 0)


def test_a_late_answer_is_dropped() -> None:
    follower = FollowerReplica(new_log(), ME, 0, 0)
    first = follower.ask()
    second = follower.ask()
    assert first is not None
    assert second is not None
    assert follower.answered(first, LeaderAnswer(0, records=b"x")) == Late()
    assert follower.answered(second, LeaderAnswer(0, records=b"x")) == Append(b"x")
    assert follower.answered(second, LeaderAnswer(0, records=b"x")) == Late()


def test_a_refusal_changes_nothing() -> None:
    follower = FollowerReplica(new_log(), ME, 0, 0)
    asked = follower.ask()
    assert asked is not None
    refused = follower.answered(asked, LeaderAnswer(ErrorCode.FENCED_LEADER_EPOCH))
    assert refused == Refused(ErrorCode.FENCED_LEADER_EPOCH)


def test_a_follower_behind_the_leaders_log_start_begins_anew_there() -> None:
    leader = LeaderReplica(new_log(segment_bytes="100"), ME, 0, [ME], 1)
    for value in b"abcdef":
        append(leader.log, 0, bytes([value]))
    leader.log.delete_records_before(4)
    follower = FollowerReplica(new_log(), ME, 0, 0)
    assert catch_up(follower, leader)[0] == "restart"
    assert (follower.log.offsets.start, follower.log.offsets.end) == (4, 6)


@pytest.mark.parametrize("own", [0, 1, 2])
def test_a_follower_takes_the_batch_in_which_the_leaders_log_starts(own: int) -> None:
    """Whether its own log is empty, or has records that the leader deleted, also others than the leader had there."""
    leader = LeaderReplica(new_log(), ME, 1, [ME], 1)
    append(leader.log, 0, b"a")
    append(leader.log, 1, b"b", b"c", b"d")
    leader.log.delete_records_before(2)
    follower = FollowerReplica(new_log(), ME, 1, 0)
    for value in (b"a", b"x")[:own]:
        append(follower.log, 0, value)
    catch_up(follower, leader)
    assert (follower.log.offsets.start, follower.log.offsets.end) == (2, 4)
    assert content(follower.log)[-1] == content(leader.log)[-1]


def test_a_batch_of_a_later_epoch_than_its_leader_is_not_taken() -> None:
    log = new_log()
    append(log, 3, b"a")
    (_, batch) = next(iter(read_batches(log)))
    with pytest.raises(ProtocolError):
        new_log().append_replicated(bytearray(batch), leader_epoch=2, now=at(NOW_MS))


def test_a_log_is_never_cut_at_the_high_watermark() -> None:
    """The follower knows of an older high watermark only; what it has beyond is the leader's, too."""
    leader = LeaderReplica(new_log(), ME, 0, [ME], 1)
    append(leader.log, 0, b"a")
    append(leader.log, 0, b"b")
    follower = FollowerReplica(new_log(), ME, 0, 0)
    catch_up(follower, leader)
    next_leader = LeaderReplica(leader.log, ME, 1, [ME, OTHER], 1)
    again = FollowerReplica(follower.log, ME, 1, high_watermark=0)
    assert catch_up(again, next_leader) == ["nothing"]
    assert again.log.offsets.end == 2


@pytest.mark.parametrize(
    ("watermark_epoch", "lossy_epoch", "step"),
    [
        pytest.param(2, 0, Withhold(0), id="no loss is recorded"),
        pytest.param(2, 2, Withhold(0), id="the loss is no later than the high watermark"),
        pytest.param(2, 3, Cut(0), id="the loss is later"),
        pytest.param(-1, 0, Cut(0), id="nobody remembers when the high watermark was known"),
    ],
)
def test_a_log_is_cut_below_its_high_watermark_only_after_a_recorded_loss(
    watermark_epoch: int, lossy_epoch: int, step: object
) -> None:
    log = new_log(ack_durability="os")
    append(log, 2, b"committed")
    follower = FollowerReplica(log, ME, 5, 1, watermark_epoch=watermark_epoch, lossy_epoch=lossy_epoch)
    asked = follower.ask()
    assert asked is not None
    diverging = LeaderAnswer(ErrorCode.NONE, 0, 0, None, diverging_epoch=1, diverging_end=0)
    assert follower.answered(asked, diverging) == step


def test_a_high_watermark_is_known_in_the_epoch_of_the_last_leader_that_confirmed_it() -> None:
    log = new_log()
    append(log, 1, b"a", b"b")
    follower = FollowerReplica(log, OTHER, 4, 2, watermark_epoch=1)
    follower.took(1, 0)
    assert follower.watermark_epoch == 1, "a new leader may not know yet what is committed"
    follower.took(2, 0)
    assert follower.watermark_epoch == 4
    went_back = FollowerReplica(log, OTHER, 2, 2, watermark_epoch=4)
    went_back.took(2, 0)
    assert went_back.watermark_epoch == 4


elections = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(elections)
def test_replicas_converge_on_the_last_leaders_history(script: list[tuple[int, int, int]]) -> None:
    """Unclean elections of anybody: each leader writes some batches, and one other replica fetches some of them."""
    logs = [new_log() for _ in range(3)]
    leader: LeaderReplica | None = None
    for epoch, (who, batches, rounds) in enumerate(script):
        leader = LeaderReplica(logs[who], who, epoch, [who], 1)
        for number in range(batches):
            append(logs[who], epoch, b"%d-%d" % (epoch, number), b"more")
        leader.advance()
        follower = FollowerReplica(logs[(who + 1) % 3], who, epoch, 0)
        for _ in range(rounds):
            one_round(follower, leader)
    assert leader is not None
    wanted = content(leader.log)
    for log in logs:
        if log is leader.log:
            continue
        shared = [batch for batch, leaders in zip(content(log), wanted, strict=False) if batch == leaders]
        shared_end = 2 * len(shared)
        follower = FollowerReplica(log, leader.broker_id, leader.leader_epoch, 0)
        while one_round(follower, leader) != "nothing":
            assert log.offsets.end >= shared_end, "a record that the leader has was cut"
        assert content(log) == wanted


def test_a_follower_knows_how_many_committed_records_it_lacks() -> None:
    log = new_log()
    append(log, 1, b"a", b"b")
    follower = FollowerReplica(log, OTHER, 1, 2)
    assert follower.lag == 0
    follower.took(7, 0)
    assert (follower.lag, follower.high_watermark) == (5, 2)
    append(log, 1, b"c")
    assert follower.lag == 4
    follower.took(3, 0)
    assert (follower.lag, follower.high_watermark) == (0, 3)


def test_a_fetch_vouches_from_the_answer_before_it_however_long_it_was_on_its_way() -> None:
    leader = LeaderReplica(new_log(), ME, 0, (ME, OTHER), 1)
    fetched(leader, OTHER, 0, 1_000, connection_id=7)
    assert not leader.followers_vouch(1_000, within_ms=2_000)
    leader.follower_answered(BrokerId(OTHER), 7, 1_500)
    fetched(leader, OTHER, 0, 1_600, connection_id=7)
    assert leader.followers_vouch(3_499, within_ms=2_000)
    assert not leader.followers_vouch(3_500, within_ms=2_000)
    leader.follower_answered(BrokerId(OTHER), 7, 1_700)
    fetched(leader, OTHER, 0, 9_000, connection_id=7)
    assert not leader.followers_vouch(9_000, within_ms=2_000)


def test_a_fetch_of_another_connection_does_not_vouch() -> None:
    leader = LeaderReplica(new_log(), ME, 0, (ME, OTHER), 1)
    fetched(leader, OTHER, 0, 1_000, connection_id=7)
    leader.follower_answered(BrokerId(OTHER), 7, 1_000)
    fetched(leader, OTHER, 0, 1_000, connection_id=6)
    assert not leader.followers_vouch(1_000, within_ms=2_000)


def test_an_eligible_leader_replica_has_to_vouch_as_well() -> None:
    """A replica of the ELR may be elected while leader and in-sync followers are cut off from the store."""
    leader = LeaderReplica(new_log(), ME, 0, (ME, OTHER), 3, elr=(THIRD,))
    for number, follower in enumerate((OTHER, THIRD)):
        assert not leader.followers_vouch(1_000, within_ms=2_000)
        fetched(leader, follower, 0, 1_000, connection_id=number)
        leader.follower_answered(BrokerId(follower), number, 1_000)
        fetched(leader, follower, 0, 1_000, connection_id=number)
    assert leader.followers_vouch(1_000, within_ms=2_000)
    assert leader.high_watermark == 0


@pytest.mark.parametrize(
    ("error", "leaders_start", "step"),
    [
        (0, 0, Refill.LACKS_BEGINNING),
        (0, 2, Refill.LACKS_BEGINNING),
        (0, 3, StartConfirmed()),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 3, StartConfirmed()),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 9, StartConfirmed()),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1, Refused(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ],
)
def test_a_leader_tells_whether_a_start_in_doubt_is_right(error: int, leaders_start: int, step: Step) -> None:
    log = new_log()
    append(log, 1, b"a", b"b", b"c", b"d", b"e")
    log.offsets.start, log.offsets.start_in_doubt = 3, True
    follower = FollowerReplica(log, OTHER, 1, high_watermark=5)
    asked = follower.ask()
    # With the log's end it would be taken for a replica that has every record.
    assert asked == FetchFrom(0, -1, 0)
    assert follower.answered(asked, LeaderAnswer(error, 5, leaders_start)) == step
    assert follower.answered(asked, LeaderAnswer(error, 5, leaders_start)) == Late()
    log.start_is_known()
    assert follower.ask() == FetchFrom(5, 1, 0)
