"""How many files one burst of batches makes."""

from tests.unit.log.log_making import append, disk, open_log

from cordwood.log.upkeep.rolling import MAX_CLOSING
from cordwood.model.settings.topic_settings import TopicSettings

ONE_BATCH_EACH = TopicSettings(segment_bytes=14)


def test_a_burst_rolls_so_many_segments_and_the_last_grows_until_a_checkpoint() -> None:
    log = open_log(disk(), ONE_BATCH_EACH)
    for number in range(1000):
        append(log, b"%d" % number)
    assert len(log.segments) == MAX_CLOSING + 1
    log.checkpoint()
    for number in range(1000):
        append(log, b"%d" % number)
    assert len(log.segments) == 2 * MAX_CLOSING + 1
    assert log.offsets.end == 2000


def test_the_segment_that_grew_is_read_and_found_again() -> None:
    log = open_log(disk(), ONE_BATCH_EACH)
    for number in range(200):
        append(log, b"%d" % number)
    log.checkpoint()
    for offset in (0, MAX_CLOSING, 150, 199):
        found = log.read(offset, 1, end_offset=200, minimum_one_batch=True)
        assert found is not None
        assert found.base_offset == offset


def test_a_full_index_does_not_roll_either() -> None:
    log = open_log(disk(), TopicSettings(segment_index_bytes=4, index_interval_bytes=0))
    for number in range(200):
        append(log, b"%d" % number)
    assert len(log.segments) <= MAX_CLOSING + 1
