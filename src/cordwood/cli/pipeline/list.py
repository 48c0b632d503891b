"""`cordwood pipeline list`."""

from typing import Any

from cordwood.cli.pipeline.options import Directory, refusals
from cordwood.cli.terminal.options import AsJson, Quiet
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark


def list_pipelines(quiet: Quiet = False, directory: Directory = None, as_json: AsJson = False) -> None:
    """List the pipelines that have run: their live editions, running processes and outputs."""
    with refusals():
        from cordwood.cli.pipeline.view import editions_of, served_in_words
        from cordwood.pipelines.editions.control import Serving
        from cordwood.pipelines.editions.project import Project

        project = Project(directory)
        found: list[dict[str, Any]] = []
        for state in project.pipelines():
            views = editions_of(state)
            live = next((view for view in views if view.role == "live"), None)
            found.append(
                {
                    "pipeline": state.name,
                    "live": None if live is None else live.edition.name,
                    "version": None if live is None else live.edition.version,
                    "running": [view.edition.name for view in views if view.is_running],
                    "search": next((view.search for view in views if view.search is not None), None),
                    "served": None if live is None or live.served is None else served_in_words(live.served),
                    "tables": [] if live is None else sorted(live.edition.tables),
                    "topics": [] if live is None else sorted(live.edition.topics.values()),
                }
            )
        there = {each["pipeline"] for each in found}
        for name, served in Serving(project.directory).pipelines().items():
            if name not in there:  # it was refused before it had an edition
                nothing: dict[str, Any] = {"live": None, "version": None, "tables": [], "topics": []}
                now: dict[str, Any] = {"running": [], "search": None, "served": served_in_words(served)}
                found.append({"pipeline": name, **nothing, **now})
    if as_json:
        print_json(found)
    elif quiet:
        print_names(str(each["pipeline"]) for each in found)
    elif found:
        rows = [
            [
                *(each[name] for name in ("pipeline", "live", "version")),
                *(", ".join(each[name]) for name in _LISTS),
                each["served"],
                each["search"],
            ]
            for each in found
        ]
        is_searching = any(each["search"] for each in found)
        columns = ["pipeline", "live", "version", *_LISTS, "served", *(["search"] if is_searching else [])]
        print_table(columns, [row[: len(columns)] for row in rows])
    else:
        remark(f"No pipelines in {project.directory}: `cordwood pipeline run FILE` makes one.")


_LISTS = ["running", "tables", "topics"]
