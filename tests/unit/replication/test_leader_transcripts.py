"""The leader machine, as transcripts: `> command` and what came of it. They are read as much as they are run.

CORDWOOD_WRITE_TRANSCRIPTS=1 writes them anew; the difference is then for a reader to judge.
"""

import os
from pathlib import Path

import pytest
from tests.unit.replication.leader_stage import LeaderStage

FOLDER = Path(__file__).parent / "transcripts"


def played(text: str) -> str:
    stage, lines = LeaderStage(), []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, "  " + stage.play(line[2:])]
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_leader_does_what_the_transcript_says(path: Path) -> None:
    text = path.read_text()
    answer = played(text)
    if os.environ.get("CORDWOOD_WRITE_TRANSCRIPTS"):
        path.write_text(answer)
    assert answer == text


def test_there_are_transcripts() -> None:
    assert len(list(FOLDER.glob("*.txt"))) >= 4
