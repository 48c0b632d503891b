"""`cordwood serve` for typer: its options, their help, and usage errors. `start.py` does the work.

`cordwood.cli.main` starts the broker without importing this module when the arguments are plain flags.
"""

from typing import Annotated

import typer

from cordwood.cli.serving.start import Flags, start
from cordwood.cli.terminal.options import AsJson


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            envvar="CORDWOOD_DATA_DIR",
            help="The directory of the data. Default: ./cordwood-data.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            envvar="CORDWOOD_LISTEN",
            help="The address for clients; port 0 picks a free port. Default: 127.0.0.1:9092. "
            "Several listeners: as the setting `listeners`.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="FILE", envvar="CORDWOOD_CONFIG", help="A TOML file of settings."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="The name of the broker's cluster."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="The cluster's metadata store: etcd://HOST:PORT,HOST:PORT or unix:///PATH.",
        ),
    ] = None,
    node_id: Annotated[
        str | None, typer.Option("--node-id", metavar="N", help="The broker's number in the cluster.")
    ] = None,
    rack: Annotated[str | None, typer.Option("--rack", metavar="RACK", help="The rack or zone of the broker.")] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", metavar="text|json", help="How the lines of the broker's own log look."),
    ] = None,
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", metavar="FILE", help="Where they go. A renamed file is made anew. Default: stderr."),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            "-w",
            metavar="N|auto",
            help="Run N brokers on this machine and this directory, on ports that follow each other; `auto`: one for "
            "each core.",
        ),
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
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Any setting; may be given several times."),
    ] = None,
) -> None:
    """Run a broker in the foreground until SIGTERM, Ctrl-C or the end of its terminal (SIGHUP).

    The broker then finishes requests under way, flushes, and closes the logs. Under `nohup` it ignores the end of the
    terminal. It prints one line when clients can connect.

    A setting comes from the flags, else from the environment (`CORDWOOD_LOG_RETENTION_MS`), else from the TOML file,
    else it has its default. `cordwood config list --brokers` explains all settings.

    Without `--store` the broker is a cluster of one. With `--store` the metadata is in the store that all brokers of
    the cluster share, and the records are in the broker's own directory.

    With `--workers` a supervisor runs several brokers, each with its part of the partitions, and restarts those that
    end. The number may change at any start.

    With `--secure` the one listener speaks SASL_SSL. The directory `secure` has an authority of the broker's own, and
    files with which the user `admin`, who may do everything, logs in: `librdkafka.properties` and `java.properties`.
    Later starts take what is there (docs/security.md).

    `--json` prints one line when all brokers serve, one or several:
    `{"bootstrap_servers": "...", "nodes": [{"id": 1, "pid": 4711}]}`. The broker's own log stays as it is
    (`--log-format json`).
    """
    flags = Flags(
        data_dir, listen, config, cluster, store, node_id, rack, log_format, log_file, tuple(assignments or ()), secure
    )
    if workers is not None:
        from cordwood.cli.serving.workers import serve_with_workers

        serve_with_workers(flags, workers, as_json=as_json)
    else:
        raise typer.Exit(start(flags, as_json=as_json))
