"""`cordwood cluster up`."""

import sys
from typing import Annotated

import typer

from cordwood.cli.terminal.options import AsJson
from cordwood.model.failure import ExitCode, Failure

MAX_NODES = 100
MAX_BASE_PORT = 60_000
_CHOICES = ("auto", "etcd", "supervisor")


def cluster_up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", min=1, max=MAX_NODES, help="How many brokers.")] = 3,
    data_dir: Annotated[
        str, typer.Option("--data-dir", "-d", metavar="DIR", help="The directory of all data: node-1, node-2, ...")
    ] = "cordwood-cluster",
    base_port: Annotated[
        int,
        typer.Option(
            "--base-port",
            min=0,
            max=MAX_BASE_PORT,
            help="The port of the first broker; the others follow. 0 picks free ports.",
        ),
    ] = 9092,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the cluster.")] = "local",
    metadata: Annotated[
        str,
        typer.Option(
            "--metadata",
            metavar="WHERE",
            help="Where the metadata is kept: `etcd`, `supervisor`, or `auto`: etcd if the PATH has one.",
        ),
    ] = "auto",
    racks: Annotated[str, typer.Option("--racks", metavar="RACK,RACK", help="The racks of the brokers, in turn.")] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of all brokers; may be given several times."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Serve TLS, and ask clients for passwords and rights. The first start makes all that it takes, in "
            "DIR/secure.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a cluster on this machine in the foreground until SIGTERM, Ctrl-C or the end of its terminal.

    With etcd on the PATH three members of etcd are started, and keep the metadata. Without etcd this process keeps the
    metadata, which is then not replicated: the cluster does not survive its loss. A broker that ends is reported, not
    started again. When this process ends, all others end with it.

    With `--secure` clients come by SASL_SSL, and brokers reach each other by TLS. The directory `secure` has an
    authority of the cluster, and files with which the user `admin`, who may do everything, logs in:
    `librdkafka.properties` and `java.properties`. Later starts take what is there (docs/security.md). Members of etcd
    speak plain text, on this machine alone: whoever can reach them is an administrator.

    When all brokers serve, `--json` prints one line: `{"bootstrap_servers": "...", "nodes": [{"id": 1, "pid": 4711}]}`.
    """
    import asyncio
    import os

    from cordwood.broker.supervision.etcd_members import etcd_on_path
    from cordwood.broker.supervision.local_brokers import bootstrap_servers, describe, run
    from cordwood.broker.supervision.local_cluster import LocalCluster, Plan, chosen_metadata
    from cordwood.cli.terminal.output import print_json_line, remark, say

    if metadata not in _CHOICES:
        raise Failure("USAGE", f"--metadata {metadata!r} is none of {', '.join(_CHOICES)}", "", ExitCode.USAGE)
    data_dir = os.path.abspath(data_dir)
    found = None if metadata == "supervisor" else etcd_on_path()
    etcd = chosen_metadata(data_dir, metadata, found)
    names = tuple(rack.strip() for rack in racks.split(",") if rack.strip())
    directory = None
    if secure:
        from cordwood.broker.secure.client_files import SecureDirectory
        from cordwood.broker.secure.preparing import refuse_own

        refuse_own(each.partition("=")[0].strip() for each in assignments or ())
        directory = SecureDirectory(data_dir)
    else:
        from cordwood.cli.serving.start import refuse_plain_text

        refuse_plain_text(data_dir, [each.partition("=")[0].strip() for each in assignments or ()])
    plan = Plan(name, nodes, data_dir, base_port, etcd, tuple(assignments or ()), names, directory)
    if plan.etcd is not None:
        remark(f"the metadata is in three members of etcd {plan.etcd.version} ({plan.etcd.path})")
    else:
        refused = f"{found.path} cannot be used: {found.refusal}. " if found is not None else ""
        remark(
            f"{refused}the metadata is NOT replicated: this process keeps it alone, in {data_dir}/metadata.sqlite. "
            "For a replicated one install etcd 3.5.28, 3.6.9 or later"
        )

    def ready(supervisor: LocalCluster) -> None:
        if as_json:
            print_json_line(describe(supervisor.brokers, directory))
        else:
            servers = bootstrap_servers(supervisor.brokers)
            files = "" if directory is None else directory.in_words()
            say(f"cluster {name} is ready: {nodes} brokers on {servers} (data in {data_dir}{files})")
        sys.stdout.flush()

    asyncio.run(run(lambda: LocalCluster(plan, remark), ready, remark))
