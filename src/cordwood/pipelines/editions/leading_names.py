"""Has the names of tables in databases lead to what is live.

A swap or a rollback decides in a file, and moves the names when that file is replaced. A program that is killed between
the two leaves names at what was live before. The next command about one of the pipelines moves them, together with
those of all pipelines that became live with it: readers of a database find one set of editions behind its names.
"""

from contextlib import ExitStack, suppress

from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.editions import PipelineState
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.postgresql.place import Database
from cordwood.pipelines.postgresql.relations import names_leading


def lead_names(project: Project, state: PipelineState, pipeline: Pipeline | None = None) -> None:
    """Moves the names that lead elsewhere. The caller holds no lock of a pipeline's state. `pipeline` is a definition
    that may have credentials for its tables. A database that refuses now meets the same with the next batch or swap."""
    states = [state, *_together(project, state)]
    if not any(_places(each) for each in states):
        return
    with ExitStack() as locks:
        for each in sorted(states, key=lambda each: each.name):
            locks.enter_context(each.changing())
        options = {} if pipeline is None else {table.name: table.storage_options for table in pipeline.tables.values()}
        own = [place.with_options(options.get(place.name, {})) for place in _places(state)]
        others = [place for each in states[1:] for place in _places(each)]
        # The others' credentials may be known to their definitions alone.
        for places in ([*own, *others], own) if others else (own,):
            with suppress(WrongState), names_leading(places):
                return


def _together(project: Project, state: PipelineState) -> list[PipelineState]:
    """The other pipelines of all sets that this one is in."""
    sets = (each for each in project.sets.all() if each.member(state.name) is not None)
    names = {member.pipeline for each in sets for member in each.members} - {state.name}
    return [each for each in project.pipelines() if each.name in names]


def _places(state: PipelineState) -> list[Database]:
    """The tables of the live edition that are in databases."""
    return [] if state.live() is None else state.databases(state.live_edition())
