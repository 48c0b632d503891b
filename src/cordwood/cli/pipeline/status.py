"""`cordwood pipeline status`."""

from cordwood.cli.pipeline.options import Directory, PipelineName, refusals
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import facts, print_json, print_table, say


def pipeline_status(name: PipelineName, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show a pipeline: its editions, the live one, running processes, their progress, and the places of its outputs."""
    with refusals():
        from cordwood.cli.pipeline.view import COLUMNS, editions_of
        from cordwood.model.timestamps import time_in_words
        from cordwood.pipelines.editions.events import spent_in_words
        from cordwood.pipelines.editions.project import Project

        state = Project(directory).known(name)
        name = state.name
        views = editions_of(state)
    if as_json:
        print_json({"pipeline": name, "editions": [view.as_json() for view in views]})
        return
    say(name)
    print_table(COLUMNS, [view.cells() for view in views])
    for view in views:
        if view.failure is not None:
            say(f"{view.edition.name} failed at {time_in_words(view.failure['at_ms'])}: {view.failure['message']}")
            if view.failure["hint"]:
                say(f"  hint: {view.failure['hint']}")
    live = next((view for view in views if view.role == "live"), None)
    if live is not None:
        rows = [(f"table {table}", str(state.table_directory(live.edition, table))) for table in live.edition.tables]
        rows += [(f"topic {declared}", topic) for declared, topic in live.edition.topics.items()]
        spent = spent_in_words(live.progress.get("last_batch") or {})
        if spent:
            rows.append(("last batch took", spent))
        facts([*rows, ("definition", str(state.definition(live.edition))), ("file", live.edition.source_file)])
