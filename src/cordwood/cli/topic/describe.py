"""`cordwood topic describe`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    Quiet,
    TimeoutSeconds,
    checked_names,
)
from cordwood.cli.terminal.output import facts, print_json, print_names, print_table, say
from cordwood.model.identifiers import INTERNAL_TOPICS
from cordwood.model.quantities import count_in_words, size_in_words

if TYPE_CHECKING:
    from cordwood.administration.topic.view import TopicView

PARTITIONS_SHOWN = 100
"""The most partitions that people are shown; a pipe gets all of them."""


def describe_topics(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", callback=checked_names, help="Topics; all if none is named.", show_default=False
        ),
    ] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="List only partitions that lack replicas in sync.")
    ] = False,
    without_leader: Annotated[
        bool, typer.Option("--without-leader", help="List only partitions that nobody leads.")
    ] = False,
    led_by: Annotated[
        int | None,
        typer.Option("--led-by", metavar="NODE", min=0, help="List only partitions that this broker leads."),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="The broker's internal topics, too.")] = False,
    quiet: Quiet = False,
    all_settings: Annotated[
        bool, typer.Option("--all-settings", help="Show every setting, also those with their defaults.")
    ] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show topics: partitions, offsets, sizes, settings, damage, the scope of order, and the meaning of an ack.

    With `--under-replicated`, `--without-leader` or `--led-by` the command lists the partitions of all topics, also of
    internal ones, in one of these states. `--quiet` prints names alone.
    """
    from cordwood.administration.topic.by_state import Wanted
    from cordwood.administration.topic.view import describe
    from cordwood.cli.topic.by_state import show_by_state

    connection = connect(bootstrap_servers, timeout_s, client_config)
    wanted = Wanted(under_replicated, without_leader, led_by)
    if wanted.any:
        show_by_state(connection, topics or [], wanted, quiet=quiet, as_json=as_json)
        return
    names = topics or [name for name in connection.topic_names() if internal or name not in INTERNAL_TOPICS]
    if quiet:
        print_names(names)
        return
    views = [describe(connection, topic) for topic in names]
    if as_json:
        print_json([topic_as_json(view) for view in views])
        return
    for view in views:
        _show(view, all_settings=all_settings)


def topic_as_json(view: "TopicView") -> dict[str, Any]:
    return {
        "name": view.name,
        "topic_id": view.topic_id,
        "internal": view.internal,
        "order": view.order._asdict(),
        "ack": view.ack._asdict(),
        "settings": {name: setting.value for name, setting in view.changed_settings.items()},
        "partitions": [
            {
                "partition": part.partition,
                "leader": part.leader,
                "replicas": list(part.replicas),
                "isr": list(part.isr),
                "elr": None if part.elr is None else list(part.elr),
                "start_offset": part.start_offset,
                "end_offset": part.end_offset,
                "size_bytes": part.size_bytes,
            }
            for part in view.partitions
        ],
        "damage": [damage._asdict() for damage in view.damage],
        "repairs": [repair._asdict() for repair in view.repairs],
    }


def _show(view: "TopicView", *, all_settings: bool) -> None:
    say(f"{view.name}  {count_in_words(len(view.partitions), 'partition')}, id {view.topic_id}", "bold")
    facts([(f"order ({view.order.name})", view.order.meaning), (f"ack ({view.ack.name})", view.ack.meaning)])
    policy = view.settings.get("cleanup.policy")
    shown_partitions = PARTITIONS_SHOWN if sys.stdout.isatty() else len(view.partitions)
    gaps = policy is not None and "compact" in (policy.value or "")
    print_table(
        [
            "partition",
            "leader",
            "replicas",
            "in sync",
            "eligible",
            "start",
            "end",
            "offsets" if gaps else "records",
            "size",
        ],
        [
            (
                part.partition,
                part.leader,
                _ids(part.replicas),
                _ids(part.isr),
                _ids(part.elr or ()) or None,
                part.start_offset,
                part.end_offset,
                part.span,
                None if part.size_bytes is None else size_in_words(part.size_bytes),
            )
            for part in view.partitions[:shown_partitions]
        ],
    )
    if (hidden := len(view.partitions) - shown_partitions) > 0:
        say(f"{count_in_words(hidden, 'partition')} more: --json has them all.", "dim")
    for words in view.unknown_ends():
        say(words, "yellow")
    for damage in view.damage:
        say(damage.in_words, "bold red")
    for repair in view.repairs:
        say(repair.in_words, "yellow")
    shown = dict(sorted(view.settings.items())) if all_settings else view.changed_settings
    if shown:
        print_table(
            ["setting" if all_settings else "setting that differs", "value", "set on"],
            [(setting.name, setting.value, setting.source) for setting in shown.values()],
        )
    else:
        say("All settings have their defaults.", "dim")


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(str(broker) for broker in ids)
