"""The broker's log lines: as JSON, and to a file that is rotated while the broker writes."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.broker.log_lines import JsonLines, log_to
from cordwood.model.errors import LogFileFailure

logger = logging.getLogger("cordwood.test_log_lines")


@contextmanager
def bare_root() -> Iterator[None]:
    """The root logger without handlers, as in a process that has just started. Not a fixture: pytest adds its own
    handlers after the fixtures are made."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_in_json_is_one_object_with_the_traceback_inside() -> None:
    try:
        raise OSError("no space\nleft")
    except OSError as error:
        record = logger.makeRecord(
            logger.name, logging.ERROR, __file__, 1, "a flush of %s failed", ("orders-0",), (OSError, error, None)
        )
    text = JsonLines().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", logger.name, "a flush of orders-0 failed")
    assert line["time"].endswith("+00:00")
    assert "no space\nleft" in line["traceback"]


def test_a_rotated_file_loses_no_line(tmp_path: Path) -> None:
    file, rotated = tmp_path / "broker.log", tmp_path / "broker.log.1"
    with bare_root():
        log_to(str(file), "json")
        logger.info("one")
        file.rename(rotated)
        logger.info("two")
        logger.info("three")

    def messages(path: Path) -> list[str]:
        return [json.loads(line)["message"] for line in path.read_text().splitlines()]

    assert messages(rotated) == ["one"]
    assert messages(file) == ["two", "three"]


def test_a_file_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    with bare_root(), pytest.raises(LogFileFailure, match="nowhere"):
        log_to(str(tmp_path / "nowhere" / "broker.log"), "text")
