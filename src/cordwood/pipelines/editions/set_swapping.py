"""Swap and rollback of whatever belongs together: one edition, or all editions of a set at one moment.

All members' editions, those that are live and those that replace them, are stopped and locked, and everything is
checked. Then one decision makes all of them live (`edition_sets.py`). Readers get the old editions of all members
before that moment and the new ones of all after it, also if the program crashes there.

A set is rolled back as one, as long as all its editions are live and no reader has gone over from one of them since. An
edition that reads what another member has left could not run alone, so such a rollback of one pipeline is refused.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from cordwood.pipelines.definition.errors import NotFound, WrongState
from cordwood.pipelines.editions.downstream import check_no_reader_outside
from cordwood.pipelines.editions.edition_sets import EditionSet, Member, Stage
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.leading_names import lead_names
from cordwood.pipelines.editions.positions import Positions
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.editions.run_lock import RunLock
from cordwood.pipelines.editions.swapping import (
    Swapped,
    effects_left,
    lock_path,
    position_left,
    rollback,
    running_of,
    standing_still,
    swap,
    swapped,
    would_roll_back,
    would_swap,
)
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.postgresql.relations import names_leading


def swap_together(
    project: Project, state: PipelineState, to: str | None, *, force: bool, skip_effects: bool, timeout_s: float
) -> list[Swapped]:
    """Makes the fresh edition the live one, and with it all editions of its set."""
    lead_names(project, state)
    found = _set_beside(project, state, to)
    if found is None:
        return [swap(state, to, force=force, skip_effects=skip_effects, timeout_s=timeout_s)]
    with _nothing_changes(project, found):
        _check_swap(project, found, force=force)
        with _all_standing_still(project, found, timeout_s) as stopped:
            decided = {}
            for member, each in _states(project, found):
                leaving = _position_left(found, member, each, skip_effects=skip_effects)
                decided[each.name] = each.live_after_swap(member.edition, position=leaving, now_ms=_now_ms())
            entering = [each.edition(member.edition) for member, each in _states(project, found)]
            with names_leading(_databases(project, found, entering)):
                project.sets.decide(found, Stage.LIVE, decided)
        return [
            _swapped(each, member.replaces, member.edition, stopped[each.name])
            for member, each in _states(project, found)
        ]


def would_swap_together(
    project: Project, state: PipelineState, to: str | None, *, force: bool, skip_effects: bool
) -> list[Swapped]:
    """The result of `swap_together`, or its refusal; changes and stops nothing."""
    found = _set_beside(project, state, to)
    if found is None:
        return [would_swap(state, to, force=force, skip_effects=skip_effects)]
    _check_swap(project, found, force=force)
    planned = []
    for member, each in _states(project, found):
        run = running_of(each, [member.replaces, member.edition])
        if not run:
            _position_left(found, member, each, skip_effects=skip_effects)
        planned.append(_swapped(each, member.replaces, member.edition, run))
    return planned


def roll_back_together(
    project: Project, state: PipelineState, *, skip_effects: bool, timeout_s: float
) -> list[Swapped]:
    """Undoes the last swap of the pipeline, and that of all that became live with it."""
    lead_names(project, state)
    found = _set_to_roll_back(project, state)
    if found is None:
        return [rollback(state, skip_effects=skip_effects, timeout_s=timeout_s)]
    with _nothing_changes(project, found):
        _check_rollback(project, found)
        with _all_standing_still(project, found, timeout_s) as stopped:
            decided = {}
            for member, each in _states(project, found):
                leaving = effects_left(each, member.edition, skip=skip_effects)
                decided[each.name] = each.live_after_rollback(position=leaving, now_ms=_now_ms())
            entering = [each.edition(member.replaces) for member, each in _states(project, found)]
            with names_leading(_databases(project, found, entering)):
                project.sets.decide(found, Stage.BESIDE, decided)
        return [
            _swapped(each, member.edition, member.replaces, stopped[each.name])
            for member, each in _states(project, found)
        ]


def would_roll_back_together(project: Project, state: PipelineState, *, skip_effects: bool) -> list[Swapped]:
    """The result of `roll_back_together`, or its refusal; changes and stops nothing."""
    found = _set_to_roll_back(project, state)
    if found is None:
        return [would_roll_back(state, skip_effects=skip_effects)]
    _check_rollback(project, found)
    planned = []
    for member, each in _states(project, found):
        run = running_of(each, [member.replaces, member.edition])
        if not run:
            effects_left(each, member.edition, skip=skip_effects)
        planned.append(_swapped(each, member.edition, member.replaces, run))
    return planned


def forget_together(project: Project, found: EditionSet) -> None:
    """Removes all editions of a set that is not live. The set itself goes last: until then the command can be given
    again. Editions at the end of the chain go first, so that none is left without what it reads."""
    with _nothing_changes(project, found), ExitStack() as locks:
        there = [(member, state) for member, state in _states(project, found) if member.edition in state.editions()]
        for member, state in there:
            lock = RunLock(lock_path(state, member.edition))
            lock.take(f"edition {member.edition} of {state.name}", _now_ms())
            locks.callback(lock.release)
        for member, state in reversed(there):
            state.forget(member.edition)
        project.sets.remove(found)


def _set_beside(project: Project, state: PipelineState, to: str | None) -> EditionSet | None:
    """The set of the edition that a swap would make live."""
    fresh = state.fresh_edition() if to is None else state.edition(to)
    return None if fresh is None else project.sets.beside(state.name, fresh.name)


def _set_to_roll_back(project: Project, state: PipelineState) -> EditionSet | None:
    """The set with which the live edition became live, if all of it can be rolled back."""
    live = state.live()
    found = None if live is None else project.sets.of(state.name, live.edition)
    if found is None or found.stage is not Stage.LIVE:
        return None
    return found if all(_can_go_back(*each) for each in _states(project, found)) else None


def _can_go_back(member: Member, state: PipelineState) -> bool:
    live = state.live()
    return live is not None and (live.edition, live.before[-1:], len(live.switches)) == (
        member.edition,
        (member.replaces,),
        member.switches,
    )


def _check_swap(project: Project, found: EditionSet, *, force: bool) -> None:
    again = f"`cordwood pipeline replay {found.root} --downstream`"
    for member, state in _states(project, found):
        live = state.live()
        assert live is not None
        if (live.edition, len(live.switches)) != (member.replaces, member.switches):
            what = f"edition {live.edition} is live" if live.edition != member.replaces else "readers have gone over"
            raise WrongState(
                f"the set ({found}) replaces {member.replaces} of {state.name}, where {what} since the set was made",
                f"{again} builds a set from what is live now",
            )
        fresh = _fresh(found, member, state)
        if fresh.caught_up_at_ms is None and not force:
            raise WrongState(
                f"edition {fresh.name} of {state.name} has not caught up yet, and becomes live with all of its set "
                f"({found})",
                f"{again} with the files that it began with goes on; --force swaps the set as it is",
            )
    _check_readers(project, found)


def _check_rollback(project: Project, found: EditionSet) -> None:
    for member, state in _states(project, found):
        if not _can_go_back(member, state):
            raise WrongState(
                f"{state.name} was changed by another command meanwhile", "the same command again judges anew"
            )
        if member.replaces not in state.editions():
            raise WrongState(f"edition {member.replaces} of {state.name} is gone, and the set ({found}) replaced it")
    _check_readers(project, found)


def _check_readers(project: Project, found: EditionSet) -> None:
    names = {member.pipeline for member in found.members}
    for member, state in _states(project, found):
        before, now = state.edition(member.replaces).topics, state.edition(member.edition).topics
        changed = [declared for declared, topic in before.items() if now.get(declared) != topic]
        check_no_reader_outside(project, state, names, changed)


def _fresh(found: EditionSet, member: Member, state: PipelineState) -> Edition:
    try:
        return state.edition(member.edition)
    except NotFound:
        raise WrongState(
            f"edition {member.edition} of {state.name} is not there, and belongs to the set ({found})",
            f"`cordwood pipeline replay {found.root} --downstream` makes what is missing, or another set",
        ) from None


def _position_left(found: EditionSet, member: Member, state: PipelineState, *, skip_effects: bool) -> Positions:
    live = state.live()
    assert live is not None
    return position_left(state, live, _fresh(found, member, state), skip_effects=skip_effects)


def _swapped(state: PipelineState, before: str, now: str, stopped: Mapping[str, int | None]) -> Swapped:
    """What has become of a member. All readers of what changes are members, too."""
    return replace(swapped(state, before, now, stopped), readers=())


def _databases(project: Project, found: EditionSet, entering: Sequence[Edition]) -> list[Database]:
    """The tables in databases of the editions that become live, in the order of the members."""
    states = (each for _, each in _states(project, found))
    return [place for each, edition in zip(states, entering, strict=True) for place in each.databases(edition)]


def _states(project: Project, found: EditionSet) -> Iterator[tuple[Member, PipelineState]]:
    return ((member, project.state(member.pipeline)) for member in found.members)


@contextmanager
def _nothing_changes(project: Project, found: EditionSet) -> Iterator[None]:
    """Locks all members, by name: two commands cannot wait for each other. Raises WrongState if the set has changed
    before."""
    with ExitStack() as locks:
        for name in sorted(member.pipeline for member in found.members):
            locks.enter_context(project.state(name).changing())
        if found not in project.sets.all():
            raise WrongState(f"the set ({found}) was changed by another command", "the same command again judges anew")
        yield


@contextmanager
def _all_standing_still(
    project: Project, found: EditionSet, timeout_s: float
) -> Iterator[Mapping[str, Mapping[str, int | None]]]:
    """Stops and locks the editions of all members; yields those that were stopped, by pipeline."""
    with ExitStack() as locks:
        yield {
            state.name: locks.enter_context(standing_still(state, [member.replaces, member.edition], timeout_s))
            for member, state in _states(project, found)
        }


def _now_ms() -> int:
    return int(time.time() * 1000)
