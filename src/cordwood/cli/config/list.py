"""`cordwood config list`: needs no broker."""

from typing import Annotated

import typer

from cordwood.administration.config.setting_tables import broker_settings, group_settings, topic_settings
from cordwood.cli.terminal.options import AsJson, Quiet
from cordwood.cli.terminal.output import print_json, print_names, print_table, remark
from cordwood.model.settings.setting import Setting


def list_settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Only settings whose name contains one of these texts.", show_default=False
        ),
    ] = None,
    of_topics: Annotated[bool, typer.Option("--topics", help="Only settings of topics.")] = False,
    of_groups: Annotated[bool, typer.Option("--groups", help="Only settings of single consumer groups.")] = False,
    of_brokers: Annotated[bool, typer.Option("--brokers", help="Only settings of brokers.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """List every setting with its default and its meaning. Needs no broker."""
    chosen = {"topic": of_topics, "group": of_groups, "broker": of_brokers}
    tables = {"topic": topic_settings, "group": group_settings, "broker": broker_settings}
    rows = [
        (kind, setting)
        for kind, table in tables.items()
        if chosen[kind] or not any(chosen.values())
        for setting in table().values()
        if not names or any(name in setting.name for name in names)
    ]
    if as_json:
        print_json([_as_json(kind, setting) for kind, setting in rows])
        return
    if quiet:
        print_names(dict.fromkeys(setting.name for _, setting in rows))
        return
    if not rows:
        remark("No setting's name contains any of these texts.")
    for kind in tables:
        settings = [setting for row_kind, setting in rows if row_kind == kind]
        if settings:
            print_table(
                [f"{kind} setting", "default", "meaning"],
                [(setting.name, setting.format(setting.default), setting.meaning) for setting in settings],
            )


def _as_json(kind: str, setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "of": kind,
        "type": setting.kind.name.lower(),
        "default": setting.format(setting.default),
        "choices": list(setting.choices) if setting.choices is not None else None,
        "min": setting.low,
        "max": setting.high,
        "changeable": setting.changeable,
        "broker_default_from": setting.broker_name,
        "meaning": setting.meaning,
    }
