"""`cordwood cluster status`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from cordwood.administration.cluster.view import ClusterView, GoneNode, NodeView, Trouble
    from cordwood.client.settings import Address

CAUSES_SHOWN = 50
"""The most causes that people are shown; scripts get all of them."""


def cluster_status(
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code", help="End with code 5 if a partition lacks a leader or replicas, or a disk is full."
        ),
    ] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the brokers of a cluster, its leaders, and partitions that lack replicas or a leader, with the reason."""
    from cordwood.administration.cluster.view import cluster_view, with_releases
    from cordwood.cli.terminal.output import print_json
    from cordwood.model.failure import ExitCode

    view = with_releases(cluster_view(connect(bootstrap_servers, timeout_s, client_config)), timeout_s)
    if as_json:
        print_json(status_as_json(view))
    else:
        _show(view)
    if exit_code and (view.troubles or view.full_disks):
        raise typer.Exit(ExitCode.PROBLEM_FOUND)


def status_as_json(view: "ClusterView") -> dict[str, Any]:
    return {
        "cluster_id": view.cluster_id,
        "metadata_version": view.metadata_version,
        "nodes": [
            {
                "id": node.node_id,
                "host": node.address[0],
                "port": node.address[1],
                "rack": node.rack,
                "fenced": node.fenced,
                "state": node.state,
                "disk_full": node.disk_full,
                "cordoned": node.cordoned,
                "controller": node.controller,
                "leads": node.leads,
                "replicas": node.replicas,
                "version": None if node.facts is None else node.facts.version,
                "commit": None if node.facts is None else node.facts.commit,
                "unreached": list(node.unreached),
            }
            for node in view.nodes
        ],
        "gone": [_gone_as_json(node) for node in view.gone],
        "topics": view.topics,
        "partitions": view.partitions,
        "offline": len(view.offline),
        "below_min_in_sync": len(view.below_min_in_sync),
        "under_replicated": len(view.under_replicated),
        "passed_over": list(view.passed_over),
        "one_replica": None if view.lone is None else {"topics": list(view.lone.topics), "command": view.lone.command},
        "troubles": [_trouble_as_json(trouble) for trouble in view.troubles],
    }


def _gone_as_json(node: "GoneNode") -> dict[str, Any]:
    host, port = node.address or (None, None)
    return {
        "id": node.node_id,
        "host": host,
        "port": port,
        "rack": node.rack,
        "cordoned": node.cordoned,
        "replicas": node.replicas,
    }


def _trouble_as_json(trouble: "Trouble") -> dict[str, Any]:
    partition = trouble.partition
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": None if trouble.offline else partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "min_in_sync": trouble.min_in_sync,
        "offline": trouble.offline,
        "waits_for": trouble.waits_for or None,
        "below_min_in_sync": trouble.below_min_in_sync,
        "under_replicated": bool(trouble.missing),
        "missing": [{"id": each.node_id, "reason": each.reason, "lag": each.lag} for each in trouble.missing],
    }


def _show(view: "ClusterView") -> None:
    from cordwood.administration.cluster.causes import by_cause
    from cordwood.cli.terminal.output import print_table, remark, say
    from cordwood.model.quantities import count_in_words, ranges

    gone = f" and {len(view.gone)} gone" if view.gone else ""
    say(
        f"cluster {view.cluster_id}: {count_in_words(len(view.nodes), 'broker')}{gone}, "
        f"{count_in_words(view.topics, 'topic')}, {count_in_words(view.partitions, 'partition')}, "
        f"metadata version {view.metadata_version}"
    )
    print_table(
        ["broker", "address", "rack", "state", "leads", "replicas", "release"],
        [
            (
                node.node_id,
                _address(node.address),
                node.rack,
                ", ".join([node.state, *(word for word, holds in _remarks(node) if holds)]),
                node.leads,
                node.replicas,
                None if node.facts is None else node.facts.release,
            )
            for node in view.nodes
        ]
        + [
            (
                node.node_id,
                None if node.address is None else _address(node.address),
                node.rack,
                "gone, cordoned" if node.cordoned else "gone",
                0,
                node.replicas,
                None,
            )
            for node in view.gone
        ],
    )
    for text in view.advice():
        say(text)
    if not view.troubles:
        say("Every partition has a leader and all its replicas in sync.")
        return
    say(
        f"{len(view.offline)} without a leader, {len(view.below_min_in_sync)} below min.insync.replicas, "
        f"{len(view.under_replicated)} under-replicated:"
    )
    causes = by_cause(view.troubles)
    print_table(
        ["topic", "partitions", "trouble", "not in sync"],
        [(each.topic, ranges(each.partitions), each.trouble, each.not_in_sync) for each in causes[:CAUSES_SHOWN]],
    )
    if hidden := sum(len(each.partitions) for each in causes[CAUSES_SHOWN:]):
        say(f"{count_in_words(hidden, 'partition')} more: --json has them all.")
    remark("`cordwood topic describe --under-replicated --without-leader` lists their leaders and replicas.")


def _address(address: "Address") -> str:
    return f"{address[0]}:{address[1]}"


def _remarks(node: "NodeView") -> list[tuple[str, bool]]:
    return [("cordoned", node.cordoned), ("disk full", node.disk_full), ("controller", node.controller)]
