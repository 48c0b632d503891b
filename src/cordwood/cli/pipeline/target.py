"""What FILE|NAME on a command line means: a definition, and the state of the pipeline that it defines."""

from pathlib import Path
from typing import NamedTuple

from cordwood.pipelines.definition import Pipeline
from cordwood.pipelines.editions import PipelineState
from cordwood.pipelines.loading import load_pipeline
from cordwood.pipelines.project import Project


class Found(NamedTuple):
    pipeline: Pipeline
    project: Project
    state: PipelineState
    beside: Path
    """The directory from which the definition imports its neighbours."""


def find_to_run(target: str, directory: str | None) -> Found:
    """A file as it is now, or the live edition's definition as it was kept."""
    project = Project(directory)
    path, name = _as_file(target)
    if path is not None:
        pipeline = load_pipeline(path, name)
        return Found(pipeline, project, project.state(pipeline.name), path.resolve().parent)
    state = project.known(target)
    edition = state.live_edition()
    beside = Path(edition.source_file).parent
    return Found(load_pipeline(state.definition(edition), target, beside=beside), project, state, beside)


def find_to_replay(target: str, directory: str | None) -> Found:
    """A file as it is now; of a name, the file that its newest edition came from."""
    project = Project(directory)
    path, name = _as_file(target)
    if path is None:
        newest = list(project.known(target).editions().values())[-1]
        path, name = Path(newest.source_file), target
    pipeline = load_pipeline(path, name)
    return Found(pipeline, project, project.state(pipeline.name), path.resolve().parent)


def _as_file(target: str) -> tuple[Path | None, str | None]:
    """`orders.py`, `orders.py:returns`; no path if it is a name."""
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    if target.endswith(".py") or "/" in target or Path(target).is_file():
        return Path(target), None
    return None, None
