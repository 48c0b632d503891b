"""Runs a suite of scenarios from the command line: prints the tables, keeps the JSON.

A suite is a list of scenarios with the plans and the kind of `Bench` that they need: one broker of each system, or a
cluster of each.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks import load, report
from benchmarks.bench import Bench, OutOfTime, Plan
from benchmarks.figures import CORDWOOD, KAFKA
from benchmarks.kafka_peer import install_kafka
from benchmarks.machine import facts
from benchmarks.maven import PEERS, PeerUnavailable
from benchmarks.scenario import Scenario

NEIGHBOURS_DISTURB_CORES = 0.1
"""The idle system of the pair and the kernel's own work stay below this."""

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Suite:
    """`program` is the module that runs it; its results are kept in files whose names begin with `prefix`."""

    program: str
    description: str
    scenarios: Sequence[Scenario]
    full: Plan
    quick: Plan
    bench: type[Bench] = Bench
    prefix: str = ""

    @property
    def command(self) -> list[str]:
        return ["python", "-m", self.program]


def run_suite(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    options = _parse(suite, arguments)
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    if options.list:
        for scenario in suite.scenarios:
            console.print(f"{scenario.name:12} {scenario.title}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no broker is left behind
    began = datetime.now().astimezone()
    bench = _prepare(suite, options, console)
    if bench is None:
        return 2
    command = shlex.join([*suite.command, *(sys.argv[1:] if arguments is None else arguments)])
    known = facts(bench.directory, bench.jars.version if bench.jars else None)
    _print_head(console, command, known, bench)
    chosen = [scenario for scenario in suite.scenarios if not options.names or scenario.name in options.names]
    finished = True
    try:
        for scenario in chosen:
            finished = _run(suite, bench, scenario, options) and finished
    except KeyboardInterrupt:
        console.print("[yellow]interrupted[/]: what was measured so far is kept")
        finished = False
    finally:
        bench.close()
        shutil.rmtree(bench.directory, ignore_errors=True)
    if bench.neighbour_cores > NEIGHBOURS_DISTURB_CORES:
        bench.scenario = "all"
        bench.note(f"other processes took {bench.neighbour_cores:.2f} cores on average: the figures are disturbed")
    report.print_targets(console, bench.figures)
    path = RESULTS / f"{suite.prefix}{began:%Y-%m-%d-%H%M%S}.json"
    report.write_json(path, began=began, command=command, facts=known, figures=bench.figures, notes=bench.notes)
    console.print(f"{bench.elapsed_s:.0f} s in all; results in {path}")
    return 0 if finished else 1


def _parse(suite: Suite, arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [scenario.name for scenario in suite.scenarios]
    parser = argparse.ArgumentParser(shlex.join(suite.command), description=suite.description)
    parser.add_argument("names", nargs="*", metavar="name", help=f"scenarios to run (all): {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help=f"shorter runs, fewer rounds: {_minutes(suite)} in all")
    parser.add_argument("--only", choices=(CORDWOOD, KAFKA), help="run one system alone")
    parser.add_argument("--rounds", type=int, help="rounds per case")
    parser.add_argument("--seconds", type=float, help="length of a throughput or latency run")
    parser.add_argument("--directory", type=Path, default=PEERS / "work", help="where the brokers keep their data")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def _minutes(suite: Suite) -> str:
    longest_s = suite.quick.total_s
    return "minutes" if longest_s is None else f"about {longest_s / 60:.0f} minutes at most"


def _prepare(suite: Suite, options: argparse.Namespace, console: Console) -> Bench | None:
    """Prepares the client, the peer and an empty directory, before the clock runs."""
    plan = suite.quick if options.quick else suite.full
    if options.rounds:
        plan = dataclasses.replace(plan, rounds=options.rounds)
    if options.seconds:
        plan = dataclasses.replace(plan, seconds=options.seconds)
    names = [options.only] if options.only else [CORDWOOD, KAFKA]
    try:
        load.binary()
    except load.LoadUnavailable as error:
        console.print(f"[red]no client:[/] {escape(str(error))}")
        return None
    jars = None
    try:
        with console.status("fetching Apache Kafka (once)"):
            jars = install_kafka()
    except PeerUnavailable as error:
        if options.only == KAFKA:
            console.print(f"[red]no peer:[/] {escape(str(error))}")
            return None
        console.print(f"[yellow]no peer, no ratios:[/] {escape(str(error))}")
        names = [CORDWOOD]
    directory = options.directory / f"run-{int(time.time())}"
    return suite.bench(console, plan, directory, names, jars)


def _print_head(console: Console, command: str, known: dict[str, object], bench: Bench) -> None:
    console.print(f"[bold]{escape(command)}[/]")
    for name, value in known.items():
        console.print(f"  {name:22} {escape(str(value))}")
    pace = f"{bench.plan.rounds} rounds of {bench.plan.seconds:g} s, medians"
    console.print(f"  {'rounds':22} {pace}; ratio = Cordwood / Kafka")
    console.print(f"  {'limit':22} what held a run back: a client's or broker's thread at 90%, or all cores")
    console.print(f"  {'bytecode':22} Cordwood starts without PYTHONDONTWRITEBYTECODE: cached, as users have it\n")


def _run(suite: Suite, bench: Bench, scenario: Scenario, options: argparse.Namespace) -> bool:
    """Runs one scenario to its end or its failure, and prints its figures in both cases."""
    bench.scenario = scenario.name
    bench.scenario_ends = time.monotonic() + scenario.quick_s if bench.plan.quick else float("inf")
    before = len(bench.figures)
    finished = True
    try:
        bench.check_time()
        if scenario.own_brokers:
            bench.close()
        scenario.run(bench)
    except OutOfTime as error:
        bench.note(f"cut short: {error}; `{shlex.join(suite.command)} --quick {scenario.name}` runs it alone")
    except Exception as error:
        bench.note(f"failed: {type(error).__name__}: {error}")
        finished = False
    flags = (["--quick"] if bench.plan.quick else []) + (["--only", options.only] if options.only else [])
    if options.rounds:
        flags += ["--rounds", str(options.rounds)]
    if options.seconds:
        flags += ["--seconds", f"{options.seconds:g}"]
    reproduce = shlex.join([*suite.command, *flags, scenario.name])
    report.print_scenario(bench.console, scenario.title, bench.figures[before:], bench.labels, reproduce)
    return finished
