"""Sets: fresh editions of a pipeline and of all that read it, which become live together.

    <project>/.sets/
      sets.json       the sets, and the decision that is not carried out yet, if there is one
      changing        locked while `sets.json` is replaced

A member's fresh edition reads the topics of the fresh editions of members before it, from their beginnings. No switch
(`switches.py`) leads to or from these topics while the set is beside the live editions, and none is needed: all members
become live at one moment, and each goes on where it is.

That moment is one replacement of `sets.json`, with a decision: the content of every member's `live.json` from then on.
`PipelineState.live` answers by the decision while there is one. Carrying it out replaces these files, upstream first,
and drops the decision. Whoever changes the state of any pipeline next does the rest if the program was killed, and
doing a part of it twice changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from cordwood.model.state_tables import Moves
from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.definition.state_files import StateFiles, locked
from cordwood.pipelines.editions.live import FORMAT, Live, check_format
from cordwood.pipelines.editions.switches import Followed

DIRECTORY: Final = ".sets"


class Stage(Enum):
    BESIDE = "beside"
    """The editions are fresh: built or being built beside the live ones, or rolled back."""
    LIVE = "live"


STAGE_MOVES: Final = Moves("set of editions", {Stage.BESIDE: (Stage.LIVE,), Stage.LIVE: (Stage.BESIDE,)})


@dataclass(frozen=True)
class Member:
    """A fresh edition of a set, and the live edition that it is to replace."""

    pipeline: str
    replaces: str
    edition: str
    switches: int
    """How many switches the pipeline had when the set was made. Readers count switches from there."""


@dataclass(frozen=True)
class EditionSet:
    number: int
    root: str
    """The pipeline that was replayed with all its readers."""
    members: tuple[Member, ...]
    """Each after the members that it reads."""
    stage: Stage = Stage.BESIDE

    def member(self, pipeline: str) -> Member | None:
        return next((member for member in self.members if member.pipeline == pipeline), None)

    def has(self, pipeline: str, edition: str) -> bool:
        member = self.member(pipeline)
        return member is not None and member.edition == edition

    def __str__(self) -> str:
        return ", ".join(f"{member.pipeline} {member.edition}" for member in self.members)

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "root": self.root,
            "stage": self.stage.value,
            "members": [asdict(member) for member in self.members],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        members = tuple(Member(**each) for each in value["members"])
        return cls(value["number"], value["root"], members, Stage(value["stage"]))


class _Kept(NamedTuple):
    sets: tuple[EditionSet, ...] = ()
    decided: Mapping[str, Live] | None = None
    """What is live from now on: the content of each member's `live.json`, upstream first."""


class EditionSets:
    """The sets of a project."""

    def __init__(self, project: Path, files: StateFiles | None = None) -> None:
        self._project = project
        self._directory = project / DIRECTORY
        self._path = self._directory / "sets.json"
        self._files = files or StateFiles()

    # Reading

    def all(self) -> tuple[EditionSet, ...]:
        """In the order of their making."""
        return self._read().sets

    def of(self, pipeline: str, edition: str) -> EditionSet | None:
        """The set of which this is a fresh edition, or was one before it became live."""
        return next((each for each in self.all() if each.has(pipeline, edition)), None)

    def beside(self, pipeline: str, edition: str) -> EditionSet | None:
        """The set of which this edition is a member that is not live."""
        found = self.of(pipeline, edition)
        return found if found is not None and found.stage is Stage.BESIDE else None

    def reads_beside(self, reader: str, edition: str, followed: Followed) -> bool:
        """True if the edition and the one that it follows are members of one set that is not live."""
        found = self.beside(reader, edition)
        return found is not None and found.has(followed.pipeline, followed.edition)

    def names_of(self, pipeline: str) -> set[str]:
        """The names of the pipeline's editions in sets, made or still to be made."""
        return {member.edition for each in self.all() for member in each.members if member.pipeline == pipeline}

    def decided(self, pipeline: str) -> Live | None:
        """What is live of this pipeline by a decision that is not carried out yet."""
        return (self._read().decided or {}).get(pipeline)

    # Changing

    def add(self, root: str, members: Sequence[Member]) -> EditionSet:
        with self._changing() as kept:
            number = max((each.number for each in kept.sets), default=0) + 1
            made = EditionSet(number, root, tuple(members))
            self._write(kept._replace(sets=(*kept.sets, made)))
        return made

    def remove(self, gone: EditionSet) -> None:
        with self._changing() as kept:
            self._write(kept._replace(sets=tuple(each for each in kept.sets if each.number != gone.number)))

    def decide(self, changed: EditionSet, stage: Stage, live: Mapping[str, Live]) -> None:
        """Makes all these editions live at once, and carries that out. The caller holds the locks of all members and of
        the editions that were live and that become so."""
        with self._changing() as kept:
            assert kept.decided is None, "a decision is carried out before the next one"
            moved = replace(changed, stage=STAGE_MOVES.moved(str(changed.number), changed.stage, stage))
            sets = tuple(moved if each.number == changed.number else each for each in kept.sets)
            self._write(_Kept(sets, live))
        self.carry_out()

    def carry_out(self) -> None:
        """Carries out the decision, if there is one."""
        if self._read().decided is None:
            return
        with self._changing() as kept:
            if kept.decided is None:
                return
            for pipeline, live in kept.decided.items():
                self._files.replace(self._project / pipeline / "live.json", live.to_json())
            self._write(kept._replace(decided=None))

    @contextmanager
    def _changing(self) -> Iterator[_Kept]:
        self._files.make_directory(self._directory)
        with locked(self._directory / "changing"):
            yield self._read()

    def _read(self) -> _Kept:
        value = self._files.read(self._path)
        if value is None:
            return _Kept()
        check_format(value, self._path)
        try:
            decided = value["decided"]
            live = {each["pipeline"]: Live.from_json(each["live"], self._path) for each in decided or ()}
            sets = tuple(EditionSet.from_json(each) for each in value["sets"])
            return _Kept(sets, None if decided is None else live)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedState(f"{self._path}: {type(error).__name__}: {error}") from error

    def _write(self, kept: _Kept) -> None:
        live = None
        if kept.decided is not None:
            live = [{"pipeline": pipeline, "live": each.to_json()} for pipeline, each in kept.decided.items()]
        sets = [each.to_json() for each in kept.sets]
        self._files.replace(self._path, {"format": FORMAT, "sets": sets, "decided": live})
