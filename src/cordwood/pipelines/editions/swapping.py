"""Swap and rollback: decides which edition may replace the live one, and replaces it in one moment.

Both editions are stopped and locked, so that their positions do not change. Then one file is replaced. Readers get the
old edition before that moment and the new one after it, also if the program crashes there.

The live edition writes the outputs that are not replayable, once for each record: the new edition goes on with them at
the record where the old one stopped. If the new edition has read further already, the records between would have no
effect at all, so such a swap is refused.

Pipelines that read the outputs are like such outputs. They go over from topic to topic at the record where the old
edition stopped (`switches.py`), so the new edition must not be beyond it. Editions that belong together become live
together (`set_swapping.py`).
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.pipelines.definition.errors import AlreadyRunning, WrongState, shown_path
from cordwood.pipelines.editions.checkpoint import (
    committed_position,
    effects_position,
    planned_position,
    unfinished_batch,
)
from cordwood.pipelines.editions.control import Command, Serving, is_kept_running
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.following import Reader, readers_of, stranded, with_left
from cordwood.pipelines.editions.live import Live
from cordwood.pipelines.editions.planned import read_kept
from cordwood.pipelines.editions.positions import Positions, ahead, furthest, in_words, lacking
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.requeue_plan import read_plan
from cordwood.pipelines.editions.run_lock import Holder, RunLock, holder
from cordwood.pipelines.editions.switches import pending
from cordwood.pipelines.formats.places import TablePlace
from cordwood.pipelines.postgresql.relations import names_leading

_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Swapped:
    """The outputs that readers get from now on, or would get."""

    pipeline: str
    before: Edition
    now: Edition
    tables: Mapping[str, TablePlace]
    """Tables that changed, by name."""
    topics: Mapping[str, tuple[str, str]]
    """Topics that changed: the topic of the records so far, and the topic of the records from now on."""
    behind: int
    """Records that the previous edition has read and this one has not yet."""
    stopped: Mapping[str, int | None]
    """Editions that were stopped, or would be, with the process that ran each."""
    readers: Sequence[Reader]
    """Other pipelines' editions that read topics which change."""


def running(state: PipelineState) -> dict[str, Holder]:
    """The editions that run, and the process that runs each."""
    found = {}
    for edition in state.editions():
        by = holder(lock_path(state, edition))
        if by is not None:
            found[edition] = by
    return found


def stop(state: PipelineState, edition: str, timeout_s: float) -> Holder | None:
    """Ends the process that runs an edition, after the batch under way. Returns that process, or None if none ran."""
    path = lock_path(state, edition)
    found = holder(path)
    if found is None:
        return None
    what = f"edition {edition} of {state.name}"
    serving = Serving(state.directory.parent, state.files)
    if serving.pipelines().get(state.name, {}).get("edition") == edition:
        # The process that holds the lock runs other pipelines, too.
        serving.ask(Command.STOP, state.name)
    elif found.pid is not None:
        os.kill(found.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    # A child of a killed supervisor notices that it is alone, and ends by itself.
    while holder(path) is not None:
        if time.monotonic() > deadline:
            hint = "a longer --timeout waits on"
            if found.pid is not None:
                hint += f"; kill {found.pid} ends it at once, and nothing is lost"
            raise AlreadyRunning(f"{what} has not ended within {timeout_s:g} s: a batch is under way", hint)
        time.sleep(_LOOK_S)
    return found


def swap(state: PipelineState, to: str | None, *, force: bool, skip_effects: bool, timeout_s: float) -> Swapped:
    """Makes the fresh edition the live one."""
    with state.changing():
        live, fresh = _to_swap(state, to, force=force)
        with standing_still(state, [live.edition, fresh.name], timeout_s) as stopped:
            leaving = position_left(state, live, fresh, skip_effects=skip_effects)
            switch_at = _switch_at(state, live, fresh, skip=skip_effects)
            with names_leading(state.databases(fresh)):
                state.swap(fresh.name, position=leaving, now_ms=_now_ms(), switch_at=switch_at)
        return swapped(state, live.edition, fresh.name, stopped)


def would_swap(state: PipelineState, to: str | None, *, force: bool, skip_effects: bool) -> Swapped:
    """The result of `swap`, or its refusal; changes and stops nothing. `stopped` has the editions that run now: while
    one runs, positions move, and only the swap itself can judge them."""
    live, fresh = _to_swap(state, to, force=force)
    run = running_of(state, [live.edition, fresh.name])
    if not run:
        position_left(state, live, fresh, skip_effects=skip_effects)
        _switch_at(state, live, fresh, skip=skip_effects)
    return swapped(state, live.edition, fresh.name, run)


def rollback(state: PipelineState, *, skip_effects: bool = False, timeout_s: float) -> Swapped:
    """Makes the edition live that was live before the last swap."""
    with state.changing():
        live = _to_roll_back(state)
        with standing_still(state, [live.edition, live.before[-1]], timeout_s) as stopped:
            leaving = effects_left(state, live.edition, skip=skip_effects)
            switch_at = _switch_at(state, live, state.edition(live.before[-1]), skip=skip_effects)
            with names_leading(state.databases(state.edition(live.before[-1]))):
                state.rollback(position=leaving, now_ms=_now_ms(), switch_at=switch_at)
        return swapped(state, live.edition, live.before[-1], stopped)


def would_roll_back(state: PipelineState, *, skip_effects: bool) -> Swapped:
    """The result of `rollback`, or its refusal; changes and stops nothing. `stopped` is as for `would_swap`."""
    live = _to_roll_back(state)
    run = running_of(state, [live.edition, live.before[-1]])
    if not run:
        effects_left(state, live.edition, skip=skip_effects)
        _switch_at(state, live, state.edition(live.before[-1]), skip=skip_effects)
    return swapped(state, live.edition, live.before[-1], run)


def lock_path(state: PipelineState, edition: str) -> Path:
    return state.edition_directory(edition) / "running"


@contextmanager
def standing_still(state: PipelineState, editions: list[str], timeout_s: float) -> Iterator[Mapping[str, int | None]]:
    """Stops these editions and keeps them locked. Yields the stopped ones, with the process that ran each. A pipeline
    that a process serves is started again afterwards."""
    stopped: dict[str, int | None] = {}
    serving = Serving(state.directory.parent, state.files)
    with ExitStack() as locks:
        if is_kept_running(serving.pipelines().get(state.name)):
            locks.callback(serving.ask, Command.START, state.name)
        for edition in editions:
            by = stop(state, edition, timeout_s)
            if by is not None:
                stopped[edition] = by.pid
            lock = RunLock(lock_path(state, edition))
            lock.take(f"edition {edition} of {state.name}", _now_ms())
            locks.callback(lock.release)
        yield stopped


def running_of(state: PipelineState, editions: list[str]) -> dict[str, int | None]:
    return {edition: by.pid for edition, by in running(state).items() if edition in editions}


def _to_swap(state: PipelineState, to: str | None, *, force: bool) -> tuple[Live, Edition]:
    """The live edition, and the edition that replaces it. Raises WrongState."""
    live = _live(state)
    fresh = state.fresh_edition() if to is None else state.edition(to)
    if fresh is None:
        raise WrongState(
            f"{state.name} has no edition beside the live one",
            f"`cordwood pipeline replay {shown_path(state.edition(live.edition).source_file)}` builds one",
        )
    if fresh.name == live.edition:
        raise WrongState(f"edition {fresh.name} of {state.name} is live already")
    if fresh.name in live.before[-1:] and not force:
        raise WrongState(
            f"edition {fresh.name} of {state.name} was live before {live.edition}",
            f"`cordwood pipeline rollback {state.name}` makes it live again",
        )
    if fresh.caught_up_at_ms is None and not force:
        file = shown_path(fresh.source_file)
        raise WrongState(
            f"edition {fresh.name} of {state.name} has not caught up yet",
            f"`cordwood pipeline replay {file}` goes on with it; --force swaps it as it is",
        )
    _check_can_go_on(state, fresh, f"`cordwood pipeline replay {state.name} --fresh` builds one from what is live")
    return live, fresh


def position_left(state: PipelineState, live: Live, fresh: Edition, *, skip_effects: bool) -> Positions:
    """How far the live edition has read when the fresh one replaces it. Raises WrongState where records would never
    reach outputs that are not replayable. Neither edition may run."""
    leaving = effects_left(state, live.edition, skip=skip_effects)
    done = state.effects_before(live, fresh, leaving)
    gap = ahead(_passed(state, fresh, committed_position(state.checkpoint(fresh.name))), done)
    if fresh.effects and gap and not skip_effects:
        again = sorted(furthest(live.effects_from, leaving).keys() - done.keys())
        there = f"`cordwood pipeline run {state.name} --once` takes {live.edition} there first"
        made_again = f"{', '.join(again)} was deleted and made again, and {live.edition} cannot read it"
        raise WrongState(
            f"edition {fresh.name} of {state.name} has read further than {live.edition}, and the records "
            f"between would never reach {', '.join(fresh.effects)}: {in_words(gap)}",
            f"{made_again if again else there}; --skip-effects swaps",
        )
    return leaving


def _switch_at(state: PipelineState, live: Live, entering: Edition, *, skip: bool) -> Positions | None:
    """The point at which readers of the topics leave the live edition; None if no other pipeline reads a topic that
    changes. Raises WrongState where the two editions have no such point. Neither edition may run."""
    leaving = state.edition(live.edition)
    readers, waiting = _readers(state, leaving, entering), pending(live.switches)
    if not readers and waiting is None:
        return None
    checkpoint = state.checkpoint(leaving.name)
    at = _passed(state, leaving, committed_position(checkpoint)) if waiting is None else waiting.at
    if skip:
        return at
    who = ", ".join(sorted({reader.pipeline for reader in readers}))
    once = f"`cordwood pipeline run {state.name} --once`"
    if waiting is None and read_plan(state, leaving.name).pending is not None:
        raise WrongState(
            f"a requeue of edition {leaving.name} of {state.name} was interrupted: readers of its topics ({who}) may "
            "have some of it, and another edition would write it again",
            f"`cordwood pipeline requeue {state.name}` finishes it first; --skip-effects swaps",
        )
    kept = read_kept(state.edition_directory(leaving.name), state.files)
    unfinished = unfinished_batch(checkpoint)
    if waiting is None and kept is not None and kept.batch_id == unfinished:
        raise WrongState(
            f"edition {leaving.name} of {state.name} was interrupted within batch {unfinished}: readers of its topics "
            f"({who}) may have some of that batch, and another edition would write it again",
            f"{once} finishes it first; --skip-effects swaps",
        )
    gap = ahead(_passed(state, entering, planned_position(state.checkpoint(entering.name))), at)
    if gap and not (waiting is not None and entering.name == waiting.before):
        raise WrongState(
            f"edition {entering.name} of {state.name} has read further than {leaving.name}, and the output of the "
            f"records between would never reach the pipelines that read it ({who}): {in_words(gap)}",
            f"{once} takes {leaving.name} there first; --skip-effects swaps",
        )
    return at


def effects_left(state: PipelineState, edition: str, *, skip: bool) -> Positions:
    return _passed(state, state.edition(edition), effects_position(state, edition, skip=skip))


def _passed(state: PipelineState, edition: Edition, position: Positions) -> Positions:
    return with_left(Project(state.directory.parent, state.files), edition, position)


def _readers(state: PipelineState, leaving: Edition, entering: Edition) -> list[Reader]:
    """The editions of other pipelines that read topics which differ between these two editions."""
    there = readers_of(Project(state.directory.parent, state.files), state)
    return [reader for reader in there if leaving.topics.get(reader.output) != entering.topics.get(reader.output)]


def _to_roll_back(state: PipelineState) -> Live:
    live = _live(state)
    if not live.before:
        raise WrongState(f"{state.name} has no swap to undo")
    _check_can_go_on(state, state.edition(live.before[-1]), _way_back(state, live))
    return live


def _check_can_go_on(state: PipelineState, entering: Edition, hint: str) -> None:
    """Raises WrongState if the edition reads what another pipeline has left behind: it could not run."""
    project = Project(state.directory.parent, state.files)
    place = stranded(project, state, entering)
    if place is not None:
        live = project.state(place.pipeline).live()
        now = "none" if live is None else live.edition
        raise WrongState(
            f"edition {entering.name} of {state.name} reads {place.topic}, which edition {place.edition} of "
            f"{place.pipeline} wrote, and the live edition of {place.pipeline} is {now}: it would get nothing more",
            hint,
        )


def _way_back(state: PipelineState, live: Live) -> str:
    """The command that goes back, or on, where the edition that was live before cannot run alone."""
    project = Project(state.directory.parent, state.files)
    together = project.sets.of(state.name, live.edition)
    for member in () if together is None else together.members:
        other = project.state(member.pipeline).live()
        if other is not None and other.edition != member.edition and member.edition in other.before:
            return (
                f"they became live together ({together}): `cordwood pipeline rollback {member.pipeline}` brings "
                f"{member.pipeline} back to {member.edition}, and then all of them can be rolled back"
            )
    return f"`cordwood pipeline replay {state.name} --fresh` builds an edition from what is live"


def _live(state: PipelineState) -> Live:
    live = state.live()
    if live is None:
        raise WrongState(f"{state.name} has no live edition yet", "`cordwood pipeline run` makes the first one")
    return live


def swapped(state: PipelineState, before: str, now: str, stopped: Mapping[str, int | None]) -> Swapped:
    first, second = state.edition(before), state.edition(now)
    return Swapped(
        state.name,
        first,
        second,
        tables={name: state.table_directory(second, name) for name, facts in second.tables.items() if not facts.shared},
        topics={
            name: (first.topics[name], topic)
            for name, topic in second.topics.items()
            if name in first.topics and first.topics[name] != topic
        },
        behind=lacking(committed_position(state.checkpoint(before)), committed_position(state.checkpoint(now))),
        stopped=stopped,
        readers=_readers(state, first, second),
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
