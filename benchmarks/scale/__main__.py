"""`python -m benchmarks.scale --nodes 100 --partitions 100000`: the metadata plane of a cluster of that size.

A real etcd, the real store client, images, planner and controller, and simulated brokers (brokers.py). Without options
the sizes are small. `--page` writes the figures into docs/scale.md.
"""

import argparse
import asyncio
import json
import shlex
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.etcd.finding import find_etcd
from tests.etcd.members import EtcdCluster

from benchmarks.machine import facts
from benchmarks.running import RESULTS
from benchmarks.scale.page import PAGE, write_page
from benchmarks.scale.run import PHASES, Row, Run, Sizes

ETCD_OPTIONS = (
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=10000",
)
"""The defaults of etcd, and the compaction that docs/operations/cluster.md asks for."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.scale", description=__doc__)
    parser.add_argument("phases", nargs="*", metavar="phase", help=f"phases to run (all): {', '.join(PHASES)}")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=600)
    parser.add_argument("--partitions-per-topic", type=int, default=100)
    parser.add_argument("--members", type=int, default=1, help="members of etcd")
    parser.add_argument("--rest-s", type=float, default=10.0, help="how long the cluster is watched at rest")
    parser.add_argument("--churn", type=int, default=500, help="changes of in-sync sets, one by one")
    parser.add_argument("--restarts", type=int, default=5, help="nodes that are restarted one after the other")
    parser.add_argument(
        "--lease-ms",
        type=int,
        default=3000,
        help="broker.lease.ms; longer where the machine has other work, or the simulated brokers lose their leases",
    )
    parser.add_argument("--directory", type=Path, help="where etcd keeps its data")
    parser.add_argument("--page", action="store_true", help=f"write the figures into {PAGE.name}")
    options = parser.parse_args(arguments)
    if unknown := set(options.phases) - set(PHASES):
        parser.error(f"no such phase: {', '.join(sorted(unknown))}")
    if options.nodes < 6:
        parser.error("at least 6 nodes: a controller, another, a node and a rack that die, and others that take over")
    return options


def measure(options: argparse.Namespace) -> dict[str, Any]:
    began, began_s = datetime.now().astimezone(), time.monotonic()
    sizes = Sizes(
        options.nodes,
        options.partitions,
        options.partitions_per_topic,
        max(1, options.nodes // 10),
        options.rest_s,
        options.churn,
        options.restarts,
        options.lease_ms,
        options.phases or PHASES,
    )

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:5.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(dir=options.directory, prefix=".scale-") as name:
        machine = facts(Path(name), None)
        with EtcdCluster(find_etcd(), Path(name), options.members, options=ETCD_OPTIONS) as etcd:
            run = Run(sizes, etcd.endpoints, say)
            asyncio.run(run.run())
    return {
        "began": began.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.scale", *sys.argv[1:]]),
        "seconds": time.monotonic() - began_s,
        "etcd": f"{find_etcd().version}, members: {options.members}",
        "machine": machine,
        "rows": [row._asdict() for row in run.rows],
    }


def main() -> None:
    options = parse()
    told = measure(options)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"scale-{datetime.now():%Y-%m-%d-%H%M%S}.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    print(f"{told['seconds']:.0f} s in all; results in {path}")
    if options.page:
        write_page(told)


__all__ = ["Row", "measure", "parse"]

if __name__ == "__main__":
    main()
