"""The code that a command runs: FILE is that file as it is now, NAME the live edition's definition as it was kept.

The rule is the same for `run`, `requeue` and `replay`. If a NAME's file has changed since its definition was kept, the
command says so: a user who edits a file and then gives the name would wonder why nothing has changed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cordwood.cli.terminal.output import remark
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import shown_path
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.editions import Edition, PipelineState
from cordwood.pipelines.editions.following import bound
from cordwood.pipelines.editions.project import Project

if TYPE_CHECKING:
    from cordwood.client.bootstrap import Bootstrap
    from cordwood.pipelines.execution.legs import Route


class Found(NamedTuple):
    pipeline: Pipeline
    project: Project
    state: PipelineState
    source_file: Path
    """The author's file. The definition imports its neighbours from the directory of this file."""
    is_kept: bool
    """The definition is the one that the live edition keeps."""

    def bound(self, edition: Edition | None = None) -> Pipeline:
        """The pipeline with the topics that this edition reads; as of now, if it is not made yet."""
        return bound(self.project, self.pipeline, edition)

    def route(self, edition: Edition, bootstrap: "Bootstrap") -> "Route":
        from cordwood.pipelines.execution.legs import Route

        return Route(self.project, self.state, self.pipeline, bootstrap, edition)


def find(target: str, directory: str | None) -> Found:
    """The pipeline that FILE, FILE:NAME or NAME means."""
    project = Project(directory)
    path, name = _as_file(target)
    if path is not None:
        pipeline = load_pipeline(path, name)
        return Found(pipeline, project, project.state(pipeline.name), path.resolve(), is_kept=False)
    state = project.known(target)
    edition = state.live_edition()
    source_file = Path(edition.source_file)
    pipeline = load_pipeline(state.definition(edition), state.name, beside=source_file.parent)
    return Found(pipeline, project, state, source_file, is_kept=True)


def say_which_code(found: Found, command: str) -> None:
    """Remarks that a kept definition is run although its file has changed."""
    if not found.is_kept:
        return
    edition = found.state.live_edition()
    if found.source_file.is_file() and found.state.is_changed(edition, found.source_file):
        file = shown_path(found.source_file)
        remark(
            f"{found.pipeline.name} is taken as edition {edition.name} keeps it (version {edition.version}). {file} "
            f"has changed since: `cordwood pipeline {command} {file}` takes the file."
        )


def _as_file(target: str) -> tuple[Path | None, str | None]:
    """The path in `orders.py` or `orders.py:returns`; no path for a name."""
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return Path(path), name
    if target.endswith(".py") or "/" in target or Path(target).is_file():
        return Path(target), None
    return None, None
