"""`cordwood cluster upgrade`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cordwood.cli.terminal.asking import DryRun, Yes, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import (
    DEFAULT_TIMEOUT_S,
    AsJson,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from cordwood.administration.cluster.versions import ClusterVersions


def upgrade(
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=1,
            metavar="VERSION",
            help="The metadata version to finalise. Default: the newest that a node supports.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Finalise the metadata version of a cluster whose nodes all run the new release. There is no way back.

    Shows the versions that each node supports. Until a version is finalised every node can go back to the previous
    release. Refused while a node runs an older release, or is away.
    """
    from cordwood.administration.cluster.versions import cluster_versions, finalise
    from cordwood.cli.terminal.output import print_json, say

    connection = connect(bootstrap_servers, timeout_s, client_config)
    found = cluster_versions(connection)
    target = found.newest if to is None else to
    if not as_json:
        _show(found)
    if target == found.finalised:
        if as_json:
            print_json(_as_json(found, target, finalised=False))
        else:
            say(f"Version {target} is final already: there is nothing to do.")
        return
    # The upgrade is refused, with the reason, before the confirmation.
    finalise(found, target, timeout_s, validate_only=True)
    if not as_json:
        say(
            f"Version {target} can be finalised. From then on the cluster writes it, and nodes that do not support it "
            "are refused: none can go back to the release before."
        )
    if not dry_run:
        confirm("finalising", f"Finalise version {target}?", yes=yes)
        finalise(found, target, timeout_s)
    if as_json:
        print_json(_as_json(found, target, finalised=not dry_run))
    elif not dry_run:
        say(f"Version {target} is final.")


def _as_json(found: "ClusterVersions", target: int, *, finalised: bool) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "id": node.node_id,
                "supports": None if node.supports is None else {"min": node.supports[0], "max": node.supports[1]},
            }
            for node in found.nodes
        ],
        "before": found.finalised,
        "version": target,
        "finalised": finalised,
    }


def _show(found: "ClusterVersions") -> None:
    from cordwood.cli.terminal.output import print_table, say

    release = f" (Cordwood: {found.release})" if found.release else ""
    say(f"metadata version {found.finalised}{release} is final")
    print_table(
        ["node", "address", "supports"],
        [
            (
                node.node_id,
                f"{node.address[0]}:{node.address[1]}",
                "does not answer" if node.supports is None else str(node.supports),
            )
            for node in found.nodes
        ],
    )
