"""`cordwood pipeline status`."""

from cordwood.cli.pipeline.options import Directory, PipelineName, refusals
from cordwood.cli.terminal.connecting import ClientConfig, Servers, bootstrap_of
from cordwood.cli.terminal.options import AsJson
from cordwood.cli.terminal.output import facts, print_json, print_table, remark, say


def pipeline_status(
    name: PipelineName,
    directory: Directory = None,
    servers: Servers = None,
    client_config: ClientConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show a pipeline: its editions, the live one, running processes, their progress, and the places of its outputs.

    The lag is that of now, by the ends of the logs. If no broker answers, all the rest is shown.
    """
    with refusals():
        from cordwood.cli.pipeline.view import COLUMNS, RULE_COLUMNS, LagNow, editions_of
        from cordwood.model.timestamps import time_in_words
        from cordwood.pipelines.editions.events import spent_in_words
        from cordwood.pipelines.editions.project import Project

        bootstrap = bootstrap_of(servers, client_config)
        project = Project(directory)
        state = project.known(name)
        name = state.name
        lags = LagNow(project, state, bootstrap)
        views = editions_of(state, lags)
    if as_json:
        print_json({"pipeline": name, "editions": [view.as_json() for view in views]})
        return
    say(name)
    print_table(COLUMNS, [view.cells() for view in views])
    broken = [row for view in views for row in view.rules()]
    if broken:
        print_table(RULE_COLUMNS, broken)
    if lags.silence is not None:
        remark(f"The lag is not known: {lags.silence}.")
    for view in views:
        if (words_of_set := view.set_in_words()) is not None:
            say(words_of_set)
        if (words_of_late := view.late_in_words()) is not None:
            say(words_of_late)
        for words in view.abandoned:
            say(f"{view.edition.name} reads {words}")
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
