"""The state of a pipeline on disk, and the single step that makes another of its editions the live one.

    <project>/<pipeline>/
      live.json                     which edition is live, and which were before it: the only file that decides
      editions/<edition>/
        edition.json                the version, where it began, its tables and topics
        definition-v<version>.py    the file as it was, so that an edition can be run again after the file went on;
                                    an edit under the same version is definition-v<version>.2.py
        trial.py                    a changed file that runs and has not done a batch yet
        checkpoint/                 Spark's: how far it has read
        plan.json                   the last batch that began to be committed, and which records it was made of
        effects.json                the last batch that began to write to outputs that are not replayable
        tables/<table>/             its own tables
        running                     locked while a process runs it
      changing                      locked while a command changes what is here
      replacing                     locked while `live.json` is read and replaced
      tables/<table>/               tables that are not replayable: all editions share them

An edition is one build of a pipeline's outputs: `v1`, `v2`, and `v2.2` for the second build by version 2. Everything
below an edition belongs to it alone, so nothing that happens to a fresh edition can touch the live one. Swap and
rollback replace `live.json` as a whole, by a rename: after a crash anywhere either the old edition or the new one is
live. Several pipelines become live at one moment by a decision of their project, which counts before `live.json`
(`edition_sets.py`).
"""

import os
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import DamagedState, InvalidDefinition, NotFound, WrongState, shown_path
from cordwood.pipelines.definition.state_files import StateFiles, locked
from cordwood.pipelines.definition.storage_options import written_out
from cordwood.pipelines.editions.edition_sets import EditionSets
from cordwood.pipelines.editions.live import FORMAT, Live, check_format
from cordwood.pipelines.editions.output_facts import TableFacts, effects_of, place_of, table_facts, topic_names
from cordwood.pipelines.editions.positions import Positions, furthest
from cordwood.pipelines.editions.switches import Followed, Step, pending, settled, swapped
from cordwood.pipelines.formats.places import TablePlace, refusing_failures_of
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.postgresql.relations import dropping
from cordwood.pipelines.tables.stores import ObjectStore

_EDITION_NAME = re.compile(r"v(\d+)(?:\.(\d+))?")
TRIAL: Final = "trial.py"


@dataclass(frozen=True)
class Edition:
    """One build of a pipeline's outputs."""

    name: str
    version: int
    source_file: str
    definition_file: str
    starting: str
    made_at_ms: int
    replayed: bool
    """True if a replay made the edition; False for a pipeline's first edition."""
    tables: Mapping[str, TableFacts]
    topics: Mapping[str, str]
    """The topic that the edition writes, by declared topic."""
    effects: tuple[str, ...] = ()
    """Outputs that are not replayable."""
    query_id: str | None = None
    """The id of the checkpoint's query, once there is one."""
    caught_up_at_ms: int | None = None
    input_ids: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic that the edition has begun to read: its positions mean nothing in a topic that was made
    again."""
    followed: tuple[Followed, ...] = ()
    """The inputs that are outputs of other pipelines, from the edition's first run on."""

    @property
    def is_trial(self) -> bool:
        """True for a changed definition before its first batch: `edition.json` still names the previous definition."""
        return self.definition_file == TRIAL

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "edition": self.name,
            "version": self.version,
            "source_file": self.source_file,
            "definition_file": self.definition_file,
            "starting": self.starting,
            "made_at_ms": self.made_at_ms,
            "replayed": self.replayed,
            "tables": {name: facts.to_json() for name, facts in self.tables.items()},
            "topics": dict(self.topics),
            "effects": list(self.effects),
            "query_id": self.query_id,
            "caught_up_at_ms": self.caught_up_at_ms,
            "input_ids": dict(self.input_ids),
            "followed": [each.to_json() for each in self.followed],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: Path) -> Self:
        check_format(value, path)
        try:
            return cls(
                name=value["edition"],
                version=value["version"],
                source_file=value["source_file"],
                definition_file=value["definition_file"],
                starting=value["starting"],
                made_at_ms=value["made_at_ms"],
                replayed=value["replayed"],
                tables={name: TableFacts.from_json(facts) for name, facts in value["tables"].items()},
                topics=dict(value["topics"]),
                effects=tuple(value["effects"]),
                query_id=value["query_id"],
                caught_up_at_ms=value["caught_up_at_ms"],
                input_ids=dict(value.get("input_ids", {})),
                followed=tuple(Followed.from_json(each) for each in value.get("followed", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedState(f"{path}: {type(error).__name__}: {error}") from error


class PipelineState:
    """The state of one pipeline on disk. A change of an edition requires its lock; `live.json` changes in one step."""

    def __init__(self, directory: Path, files: StateFiles | None = None) -> None:
        self.directory = directory
        self.name = directory.name
        self.files = files or StateFiles()
        self._sets = EditionSets(directory.parent, self.files)

    # Reading the state

    def live(self) -> Live | None:
        decided = self._sets.decided(self.name)
        if decided is not None:
            return decided
        path = self.directory / "live.json"
        value = self.files.read(path)
        return None if value is None else Live.from_json(value, path)

    def live_edition(self) -> Edition:
        live = self.live()
        if live is None:
            raise WrongState(f"{self.name} has no live edition yet", "`cordwood pipeline run` makes the first one")
        return self.edition(live.edition)

    def source_file(self) -> str:
        """The author's file of the live edition, or of one that waits for its first run; without both the pipeline's
        name."""
        edition = self.live_edition() if self.live() else self.fresh_edition()
        return self.name if edition is None else edition.source_file

    def edition(self, name: str) -> Edition:
        path = self.edition_directory(name) / "edition.json"
        value = self.files.read(path)
        if value is None:
            raise NotFound(f"{self.name} has no edition {name}", f"it has {', '.join(self.editions()) or 'none'}")
        return Edition.from_json(value, path)

    def editions(self) -> dict[str, Edition]:
        """Editions in the order of their making. A directory without `edition.json` was never finished and does not
        count."""
        found = []
        for directory in self._edition_directories():
            path = directory / "edition.json"
            value = self.files.read(path)
            if value is not None:
                found.append(Edition.from_json(value, path))
        found.sort(key=lambda edition: (edition.made_at_ms, _order(edition.name)))
        return {edition.name: edition for edition in found}

    def fresh_edition(self) -> Edition | None:
        """The newest edition beside the live one: it is not live and never was."""
        live = self.live()
        taken = set() if live is None else {live.edition, *live.before}
        beside = [edition for name, edition in self.editions().items() if name not in taken]
        return beside[-1] if beside else None

    def edition_directory(self, edition: str) -> Path:
        return self.directory / "editions" / edition

    def checkpoint(self, edition: str) -> Path:
        return self.edition_directory(edition) / "checkpoint"

    def definition(self, edition: Edition) -> Path:
        return self.edition_directory(edition.name) / edition.definition_file

    def table_directory(self, edition: Edition, table: str) -> TablePlace:
        facts = edition.tables.get(table)
        if facts is None:
            raise NotFound(f"edition {edition.name} of {self.name} has no table {table}")
        live = self.live()
        is_live = live is not None and live.edition == edition.name
        return place_of(facts, table, self.directory, edition.name, edition.made_at_ms, is_live=is_live)

    def databases(self, edition: Edition) -> list[Database]:
        """The tables of an edition that are in databases, without those that all editions share."""
        places = (self.table_directory(edition, name) for name, facts in edition.tables.items() if not facts.shared)
        return [place for place in places if isinstance(place, Database)]

    # Changing the state

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Locks the state for one change at a time: two first runs at once would both make the first edition. Carries
        out a decision first, so that `live.json` is what is live."""
        self.files.make_directory(self.directory)
        with locked(self.directory / "changing"):
            self._sets.carry_out()
            yield

    @contextmanager
    def _replacing_live(self) -> Iterator[None]:
        """Locks `live.json` for one replacement. A run settles a switch while a swap holds `changing` and waits for the
        run's end, so `changing` cannot be the lock."""
        self._sets.carry_out()
        with locked(self.directory / "replacing"):
            yield

    def make_edition(
        self,
        made: Pipeline,
        *,
        starting: str,
        now_ms: int,
        replayed: bool,
        source_file: str | None = None,
        name: str | None = None,
        followed: tuple[Followed, ...] = (),
    ) -> Edition:
        """Makes a new edition, which exists once its `edition.json` does. A pipeline's first edition writes to the
        topics as declared. `source_file` is the author's file, if `made` was loaded from the definition that another
        edition keeps. `name` is one that `free_name` gave."""
        there = self.editions()
        name = name or self.free_name(made.version)
        # Editions stay in the order of their making, also if the clock was set back between two of them.
        made_at_ms = max([now_ms, *(each.made_at_ms + 1 for each in there.values())])
        directory = self.edition_directory(name)
        if directory.exists():
            # The making of this directory was interrupted: nothing refers to it.
            self.files.remove_tree(directory)
        self.files.make_directory(directory)
        edition = Edition(
            name=name,
            version=made.version,
            source_file=source_file or made.site.file,
            definition_file=self._keep_definition(name, made.version, _content(made)),
            starting=starting,
            made_at_ms=made_at_ms,
            replayed=replayed,
            tables=table_facts(made),
            topics=topic_names(made, name if replayed else None),
            effects=effects_of(made),
            followed=followed,
        )
        self._write(edition)
        return edition

    def free_name(self, version: int) -> str:
        """The name of the next edition by this version."""
        return _free_name(version, {*self.editions(), *self._names_on_the_way(), *self._sets.names_of(self.name)})

    def _names_on_the_way(self) -> set[str]:
        """Editions between which readers of topics go over. Another edition of such a name would have topics of the
        same names, with other offsets."""
        live = self.live()
        return set() if live is None else {name for each in live.switches for name in (each.before, each.now)}

    def begin(self, made: Pipeline, *, starting: str, now_ms: int) -> Edition:
        """Makes the edition of a pipeline's first run, and makes it live."""
        edition = self.first_edition(made, starting=starting, now_ms=now_ms)
        self.begin_with(edition, now_ms=now_ms)
        return edition

    def first_edition(self, made: Pipeline, *, starting: str, now_ms: int) -> Edition:
        """Makes the edition of a pipeline's first run, which is not live yet. Takes up what an interrupted first run
        left."""
        assert self.live() is None, "another edition becomes live by a swap"
        left = self.fresh_edition()
        if left is not None:
            return self.take_over(left, made)
        return self.make_edition(made, starting=starting, now_ms=now_ms, replayed=False)

    def begin_with(self, edition: Edition, *, now_ms: int) -> None:
        """Makes the edition of a first run live, if it is not."""
        if self.live() is None:
            self.files.replace(self.directory / "live.json", Live(edition.name, (), {}, now_ms).to_json())

    def take_over(self, edition: Edition, made: Pipeline) -> Edition:
        """Replaces the definition of an edition that has never run."""
        return self.adopt(self.try_out(edition, made))

    def try_out(self, edition: Edition, made: Pipeline) -> Edition:
        """The edition as it would go on with another definition. `edition.json` and the kept definitions stay as they
        are until `adopt`: a change that is refused leaves nothing behind. The caller holds the edition's lock."""
        tried = self.tried(edition, made, made.site.file)
        self.files.replace_bytes(self.definition(tried), _content(made))
        return tried

    def tried(self, edition: Edition, made: Pipeline, source_file: str) -> Edition:
        """Like `try_out`, for a definition that was loaded from `trial.py`."""
        for name, facts in table_facts(made).items():
            before = edition.tables.get(name, facts)
            if before != facts:
                is_parted_otherwise = replace(before, partition_by=facts.partition_by) == facts
                what = "other partitions" if is_parted_otherwise else "another key, format or location"
                hint = f"give it a new version, and `cordwood pipeline replay {shown_path(source_file)}`"
                if self.live() is None:
                    forget = f"`cordwood pipeline forget {made.name} {edition.name}`"
                    hint = f"{forget} removes what its first run has left when it was interrupted"
                raise WrongState(
                    f"{made.name}: the table {name} has {what} than in edition {edition.name}",
                    hint,
                )
        added = topic_names(made, edition.name if edition.replayed else None)
        return replace(
            edition,
            version=made.version,
            source_file=source_file,
            definition_file=TRIAL,
            tables={**edition.tables, **table_facts(made)},
            topics={**added, **edition.topics},
            effects=effects_of(made),
        )

    def adopt(self, tried: Edition) -> Edition:
        """Makes the tried definition the edition's own. Earlier definitions stay beside it."""
        content = self.definition(tried).read_bytes()
        changed = replace(
            self.edition(tried.name),
            version=tried.version,
            source_file=tried.source_file,
            definition_file=self._keep_definition(tried.name, tried.version, content),
            tables=tried.tables,
            topics=tried.topics,
            effects=tried.effects,
        )
        self._write(changed)
        return changed

    def is_changed(self, edition: Edition, file: str | os.PathLike[str]) -> bool:
        """True if a file differs from the definition that the edition keeps."""
        kept = self.definition(edition)
        return not kept.exists() or kept.read_bytes() != Path(file).read_bytes()

    def note_query(self, edition: Edition, query_id: str) -> Edition:
        return self._note(edition, query_id=query_id)

    def note_inputs(self, edition: Edition, input_ids: Mapping[str, str]) -> Edition:
        return self._note(edition, input_ids={**edition.input_ids, **input_ids})

    def note_followed(self, edition: Edition, followed: Followed) -> Edition:
        """Notes the place of an edition in another pipeline's output, in the place of what was noted about it."""
        output = (followed.pipeline, followed.output)
        others = (each for each in self.edition(edition.name).followed if (each.pipeline, each.output) != output)
        return self._note(edition, followed=(*others, followed))

    def note_caught_up(self, edition: Edition, now_ms: int | None) -> Edition:
        return self._note(edition, caught_up_at_ms=now_ms)

    def swap(self, to: str, *, position: Positions, now_ms: int, switch_at: Positions | None = None) -> Live:
        """Makes another edition the live one. `position` is how far the previous one has read; `switch_at` notes a
        switch there for readers of its topics."""
        return self._replace_live(self.live_after_swap(to, position=position, now_ms=now_ms, switch_at=switch_at))

    def rollback(self, *, position: Positions, now_ms: int, switch_at: Positions | None = None) -> Live:
        """Makes the edition live that was live before the last swap; the arguments are as for `swap`."""
        return self._replace_live(self.live_after_rollback(position=position, now_ms=now_ms, switch_at=switch_at))

    def live_after_swap(self, to: str, *, position: Positions, now_ms: int, switch_at: Positions | None = None) -> Live:
        live = self.live()
        if live is None:
            raise WrongState(f"{self.name} has no live edition to swap", "`cordwood pipeline run` makes the first one")
        if to == live.edition:
            raise WrongState(f"edition {to} of {self.name} is live already")
        before = tuple(name for name in live.before if name != to)
        return self._changed(live, to, (*before, live.edition), position, now_ms, switch_at)

    def live_after_rollback(self, *, position: Positions, now_ms: int, switch_at: Positions | None = None) -> Live:
        live = self.live()
        if live is None or not live.before:
            raise WrongState(f"{self.name} has no swap to undo")
        return self._changed(live, live.before[-1], live.before[:-1], position, now_ms, switch_at)

    def _changed(
        self,
        live: Live,
        edition: str,
        before: tuple[str, ...],
        position: Positions,
        now_ms: int,
        switch_at: Positions | None,
    ) -> Live:
        effects_from = self.effects_before(live, self.edition(edition), position)
        switches = live.switches
        if switch_at is not None:
            switches = swapped(switches, live.edition, edition, switch_at)
        return Live(edition, before, effects_from, now_ms, switches)

    def _replace_live(self, live: Live) -> Live:
        self.files.replace(self.directory / "live.json", live.to_json())
        return live

    def settle(self, steps: Mapping[str, Step]) -> None:
        """Settles the last switch: readers of the topics go over at these offsets."""
        with self._replacing_live():
            live = self.live()
            assert live is not None
            changed = replace(live, switches=settled(live.switches, steps))
            self.files.replace(self.directory / "live.json", changed.to_json())

    def effects_before(self, live: Live, to: Edition, position: Positions) -> Positions:
        """Positions up to which records have had their effects when the edition `to` replaces the live one, which has
        read up to `position`. Topics that were deleted and made again between the two have none."""
        read = self.edition(live.edition).input_ids
        return {
            topic: each
            for topic, each in furthest(live.effects_from, position).items()
            if topic not in read or topic not in to.input_ids or read[topic] == to.input_ids[topic]
        }

    def unmake(self, edition: str) -> None:
        """Removes the files of an edition that has no outputs (any more). A pipeline without any edition is none."""
        directory = self.edition_directory(edition)
        self.files.remove_file(directory / "edition.json")
        self.files.remove_tree(directory)
        if not any(directory.parent.iterdir()):
            self.files.remove_tree(directory.parent)

    def forget(self, edition: str) -> None:
        """Removes an edition with its tables. `edition.json` goes first: after a crash the rest is no edition."""
        facts = self.edition(edition)
        live = self.live()
        if live is not None and edition == live.edition:
            hint = "swap or roll back to another one first"
            if len(self.editions()) == 1:
                hint = f"to give up the pipeline: `rm -r {self.directory}`, and `cordwood topic delete` for its topics"
            raise WrongState(f"edition {edition} of {self.name} is live", hint)
        waiting = None if live is None else pending(live.switches)
        if waiting is not None and edition == waiting.before:
            raise WrongState(
                f"readers of {self.name} are still to go over from edition {edition} to {waiting.now}",
                f"`cordwood pipeline run {self.name} --once` takes {waiting.now} to where {edition} stopped",
            )
        # A store that is unreachable or refuses access fails here, before anything is gone.
        places = [self.table_directory(facts, table) for table in facts.tables]
        objects = [(place, _objects(place)) for place in places if isinstance(place, ObjectStore)]
        with dropping(self.databases(facts)):
            with self._replacing_live():
                live = self.live()
                if live is not None and edition in live.before:
                    remaining = tuple(name for name in live.before if name != edition)
                    self.files.replace(self.directory / "live.json", replace(live, before=remaining).to_json())
            self.unmake(edition)
            for place, names in objects:
                for name in names:
                    place.remove(name)

    def _note(self, edition: Edition, **facts: Any) -> Edition:
        """Writes these facts about an edition; also of a trial nothing else is written."""
        self._write(replace(self.edition(edition.name), **facts))
        return replace(edition, **facts)

    def _write(self, edition: Edition) -> None:
        self.files.replace(self.edition_directory(edition.name) / "edition.json", edition.to_json())

    def _keep_definition(self, edition: str, version: int, content: bytes) -> str:
        """Keeps a definition under a name of its own: definitions that made the edition so far are never
        overwritten."""
        for build in count(1):
            name = f"definition-v{version}.py" if build == 1 else f"definition-v{version}.{build}.py"
            path = self.edition_directory(edition) / name
            if not path.exists():
                self.files.replace_bytes(path, content)
                return name
            if path.read_bytes() == content:
                return name
        raise AssertionError("numbers do not end")

    def _edition_directories(self) -> Iterator[Path]:
        parent = self.directory / "editions"
        if parent.is_dir():
            yield from (path for path in parent.iterdir() if _EDITION_NAME.fullmatch(path.name))


def _content(made: Pipeline) -> bytes:
    if not Path(made.site.file).is_file():
        raise InvalidDefinition(f"{made.name} is not declared in a file", made.site, "save it as one, and load that")
    content = Path(made.site.file).read_bytes()
    for table in made.tables.values():
        credential = written_out(table.storage_options, content)
        if credential is not None:
            raise InvalidDefinition(
                f"table {table.name}: the file has the value of {credential} in it, and every edition keeps the file",
                table.site,
                "leave it out: it is taken from the environment (of a database PGPASSWORD); or pass os.environ[…]",
            )
    return content


def _objects(place: ObjectStore) -> list[str]:
    with refusing_failures_of(place, "listed"):
        return list(place.names())


def _free_name(version: int, taken: Container[str]) -> str:
    name, build = f"v{version}", 1
    while name in taken:
        build += 1
        name = f"v{version}.{build}"
    return name


def _order(name: str) -> tuple[int, int]:
    matched = _EDITION_NAME.fullmatch(name)
    assert matched is not None, name
    return int(matched[1]), int(matched[2] or 1)
