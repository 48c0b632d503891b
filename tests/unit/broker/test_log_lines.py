"""The broker's log lines: as JSON, and to a file that is rotated while the broker writes."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.broker.machine.log_lines import MOST_LINES_WAITING, DetachedLines, JsonLines, TextLines, log_to
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


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_name_from_a_peer_forges_no_line_and_steers_no_terminal(lines: logging.Formatter) -> None:
    name = "a\n2026-01-01 CRITICAL forged\x1b[2J\x9b2J\u2028\u202e\x7f\té"
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 1, "about %s", (name,), None)
    text = lines.format(record)
    assert len(text.splitlines()) == 1
    assert not any(letter in text for letter in "\x1b\x9b\u202e\x7f")
    if isinstance(lines, TextLines):
        assert text.endswith(r"about a\n2026-01-01 CRITICAL forged\x1b[2J\x9b2J\u2028\u202e\x7f" + "\té")
    else:
        assert json.loads(text)["message"] == f"about {name}"


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


def test_a_pipe_that_nobody_reads_stops_nobody_and_gets_the_number_of_lines_left_out() -> None:
    lines = MOST_LINES_WAITING * 2
    reader, writer = os.pipe()
    handler = DetachedLines(writer)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for number in range(lines):
        handler.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 1, "%0100d", (number,), None))
    written: list[int] = []
    left_out = 0
    with os.fdopen(reader) as pipe:
        while len(written) + left_out < lines:
            line = pipe.readline()
            if "are left out" in line:
                left_out += int(line.split()[0])
            else:
                written.append(int(line))
    assert len(written) >= MOST_LINES_WAITING
    assert left_out > 0
    assert written == sorted(set(written))
    os.close(writer)


def test_a_process_ends_with_its_last_lines_or_without_them_if_nobody_reads() -> None:
    program = (
        "import logging, sys; from cordwood.broker.machine.log_lines import log_to\n"
        "log_to('', 'text')\n"
        "for number in range(int(sys.argv[1])): logging.getLogger('x').info('line %d', number)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, "500"], stderr=subprocess.PIPE, text=True) as read:
        _, said = read.communicate(timeout=60)
    assert said.splitlines()[-1].endswith("line 499")
    with subprocess.Popen([sys.executable, "-c", program, "20000"], stderr=subprocess.PIPE) as unread:
        assert unread.wait(60) == 0
