"""The scrub's turns: which segments are read, how fast, and what survives a restart, a deletion and a power cut."""

import logging

import pytest
from simulation.world.life import DATA_DIRECTORY
from simulation.world.world import World
from tests.unit.node.speaking import create_topic, delete_topic, fetch, fill

from cordwood.log.directory.findings import MAX_FINDINGS, Finding, Findings, Place
from cordwood.log.parts.report import Damage
from cordwood.log.upkeep.rolling import MAX_CLOSING
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.node.duties.scrub import FIRST_AFTER_MS
from cordwood.segments.damaged import DamagedCheckpoint
from cordwood.wire.apis import ApiKey

HOUR_MS = 3_600_000


def world_with(**settings: str) -> World:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return World(seed=1, settings={"log.flush.offset.checkpoint.interval.ms": "1000", **named}, scrubbed=True).start()


def fill_segments(world: World, topic: str = "orders", count: int = 6) -> None:
    """A segment for each batch; the last one stays open."""
    create_topic(world, topic, segment_bytes="150")
    for first in range(0, count, MAX_CLOSING):
        fill(world, topic, *[bytes([number % 256]) * 100 for number in range(first, min(first + MAX_CLOSING, count))])
        world.advance(2000)  # a checkpoint: a log rolls so many segments ahead of one


def spoil(world: World, offset: int, topic: str = "orders") -> None:
    world.disk.platter.corrupt(f"{DATA_DIRECTORY}/{topic}-0/{offset:020}.log", 100, b"\xff\xff")


def known(world: World) -> list[tuple[str, int, int]]:
    answer = world.ask(ApiKey.DAMAGE_LIST, 0, topics=None)
    return [(each.topic, each.first_offset, each.end_offset) for each in answer.findings]


def code_at(world: World, offset: int) -> int:
    code: int = fetch(world, ("orders", 0, offset)).responses[0].partitions[0].error_code
    return code


def test_all_closed_segments_are_read_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with()
    fill_segments(world)
    for offset in (0, 3, 5):
        spoil(world, offset)
    caplog.set_level(logging.INFO, "cordwood.scrub")
    world.advance(FIRST_AFTER_MS + 60_000)
    assert known(world) == [("orders", 0, 1), ("orders", 3, 4)], "the open segment is not the scrub's business"
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2
    log = world.node.hosted.leader("orders", 0).replica.log
    assert world.node.scrub.bytes_read >= log.segments.size_bytes // 2
    world.kill()


def test_a_damaged_batch_is_refused_and_its_neighbours_are_served() -> None:
    world = world_with()
    fill_segments(world)
    spoil(world, 2)
    assert code_at(world, 2) == 0, "nobody knows yet: the reader's own check has to find it"
    world.advance(FIRST_AFTER_MS + 60_000)
    assert [code_at(world, offset) for offset in range(6)] == [0, 0, ErrorCode.CORRUPT_MESSAGE, 0, 0, 0]
    world.kill()


def test_an_end_that_is_missing_after_a_clean_stop_is_said_at_the_first_use(caplog: pytest.LogCaptureFixture) -> None:
    world = world_with()
    create_topic(world)
    fill(world, "orders", *[bytes(100)] * 4)
    world.stop()
    path = f"{DATA_DIRECTORY}/orders-0/{0:020}.log"
    world.disk.platter.cut(path, len(world.disk.platter.read_bytes(path)) // 4 * 3)
    world.start()
    fill(world, "orders", b"the first use")
    assert [record.getMessage().partition(" (")[0] for record in caplog.records if record.levelno >= logging.ERROR] == [
        "orders-0: offsets 3 to 3 are damaged"
    ]
    assert known(world) == [("orders", 3, 4)]
    assert code_at(world, 4) == 0
    world.kill()


def test_reading_keeps_to_its_rate() -> None:
    world = world_with(log_scrub_bytes_per_second="1000")
    create_topic(world, segment_bytes="10000")
    fill(world, "orders", *[bytes(1000)] * 100)
    world.advance(2000)
    world.advance(FIRST_AFTER_MS)
    before = world.node.scrub.bytes_read
    world.advance(20_000)
    read = world.node.scrub.bytes_read - before
    assert 15_000 <= read <= 22_000
    world.kill()


def test_many_small_batches_are_read_slower_than_their_bytes_would_allow() -> None:
    world = world_with()
    create_topic(world, segment_bytes="50000")
    fill(world, "orders", *[b""] * 2500)
    world.advance(2000)
    world.node.scrub.bytes_read = 0
    world.advance(FIRST_AFTER_MS)
    reading_ms = 0
    while world.node.damage.findings.last_pass_ended_ms is None:
        world.advance(10)
        reading_ms += 10
        assert reading_ms < 10_000
    assert world.node.scrub.bytes_read > 100_000
    world.kill()


def test_a_pass_goes_on_where_it_was_and_the_next_begins_when_it_is_due() -> None:
    world = world_with(log_scrub_bytes_per_second="200", log_scrub_interval_ms=str(HOUR_MS))
    fill_segments(world, count=200)
    size = world.node.hosted.leader("orders", 0).replica.log.segments.size_bytes
    world.advance(FIRST_AFTER_MS + 100_000)
    checked = world.node.damage.findings.checked
    assert checked is not None
    assert checked.base_offset > 60
    world.stop()
    world.start()
    restored = world.node.damage.findings.checked
    assert restored is not None
    assert checked.base_offset - 90 < restored.base_offset, "at most a minute of it is done again"
    world.advance(size * 1000 // 200 + 60_000)
    ended_ms = world.node.damage.findings.last_pass_ended_ms
    assert ended_ms is not None
    assert world.node.scrub.bytes_read < size, "the part before the restart was not read again"
    world.node.scrub.bytes_read = 0
    world.advance(HOUR_MS // 2)
    assert world.node.scrub.bytes_read == 0
    world.advance(HOUR_MS)
    assert world.node.scrub.bytes_read > 0
    world.kill()


def test_it_can_be_switched_off() -> None:
    world = world_with(log_scrub_bytes_per_second="0")
    fill_segments(world)
    spoil(world, 2)
    world.advance(300_000)
    assert world.node.scrub.bytes_read == 0
    assert known(world) == []
    world.kill()


@pytest.mark.parametrize("steps", range(12))
def test_a_topic_that_is_deleted_while_it_is_read_is_no_damage(steps: int, caplog: pytest.LogCaptureFixture) -> None:
    world = world_with(log_scrub_bytes_per_second="1000")
    fill_segments(world, "gone", count=30)
    fill_segments(world, "kept", count=30)
    spoil(world, 4, "kept")
    world.advance(FIRST_AFTER_MS - 4000 + steps * 150)
    delete_topic(world, "gone")
    world.advance(120_000)
    assert known(world) == [("kept", 4, 5)]
    assert [record.getMessage() for record in caplog.records if "gone" in record.getMessage()] == []
    world.kill()


@pytest.mark.parametrize("steps", range(6))
def test_segments_that_retention_takes_are_no_damage(steps: int) -> None:
    world = world_with(log_scrub_bytes_per_second="1000", log_retention_check_interval_ms="1000")
    create_topic(world, segment_bytes="150", retention_ms="20000", file_delete_delay_ms="0")
    fill(world, "orders", *[bytes([number]) * 100 for number in range(30)])
    spoil(world, 3)
    world.advance(FIRST_AFTER_MS + steps * 700)
    world.advance(120_000)
    assert known(world) == [], "nobody misses what is gone"
    world.kill()


def test_what_was_found_is_known_after_a_power_cut() -> None:
    world = world_with()
    fill_segments(world)
    spoil(world, 2)
    world.advance(FIRST_AFTER_MS + 60_000)
    world.lose_power()
    world.start()
    assert known(world) == [("orders", 2, 3)]
    assert code_at(world, 2) == ErrorCode.CORRUPT_MESSAGE
    world.kill()


def damage(position: int) -> Damage:
    return Damage(TopicPartition("orders", 0), "/d/orders-0/00000000000000000007.log", position, 8, 9, "it is bad")


def test_a_finding_in_a_file_that_is_gone_is_forgotten_at_the_next_start() -> None:
    world = world_with()
    fill_segments(world)
    spoil(world, 3)
    world.advance(FIRST_AFTER_MS + 60_000)
    assert known(world) == [("orders", 3, 4)]
    world.kill()
    for name in world.disk.platter.list(f"{DATA_DIRECTORY}/orders-0"):
        if name.startswith(f"{3:020}."):
            world.disk.platter.remove(f"{DATA_DIRECTORY}/orders-0/{name}")
    world.start()
    (finding,) = world.node.damage.known()
    assert (finding.file, finding.first_offset, finding.end_offset) == (f"{2:020}.log", 3, 4)
    world.kill()


def test_findings_come_back_as_they_were_written() -> None:
    findings = Findings()
    findings.pass_began_ms, findings.checked = 5, Place(TopicPartition("orders", 1), 368769)
    (finding,) = findings.add([damage(10), damage(10)], wall_ms=77)
    read = Findings.from_bytes(findings.to_bytes())
    assert (read.pass_began_ms, read.checked, read.all()) == (5, findings.checked, [finding])
    assert finding == Finding(TopicPartition("orders", 0), "00000000000000000007.log", 10, 8, 9, "it is bad", 77)
    assert finding.segment_base_offset == 7


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 9}', b'{"version": 1}', b"\xff"])
def test_a_damaged_record_of_findings_is_recognised(content: bytes) -> None:
    with pytest.raises(DamagedCheckpoint):
        Findings.from_bytes(content)


def test_a_bit_flipped_anywhere_in_the_record_of_findings_is_recognised() -> None:
    findings = Findings()
    findings.pass_began_ms, findings.checked = 5, Place(TopicPartition("orders", 1), 368769)
    findings.add([damage(10), damage(70)], wall_ms=77)
    data = findings.to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedCheckpoint):
            Findings.from_bytes(bytes(flipped))


def test_findings_that_an_earlier_version_wrote_without_a_checksum_are_read() -> None:
    content = (
        b'{"version": 1, "pass_began_ms": 5, "last_pass_began_ms": null, "last_pass_ended_ms": null, "checked": null, '
        b'"findings": [["orders", 0, "00000000000000000007.log", 10, 8, 9, "it is bad", 77]]}'
    )
    assert [finding.position for finding in Findings.from_bytes(content).all()] == [10]


def test_the_number_of_findings_is_bounded() -> None:
    findings = Findings()
    assert len(findings.add([damage(position) for position in range(MAX_FINDINGS + 5)], wall_ms=0)) == MAX_FINDINGS
    assert (len(findings), findings.not_kept) == (MAX_FINDINGS, 5)
