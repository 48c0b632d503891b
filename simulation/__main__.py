"""`python -m simulation`: plays games, one seed after the other, until a game fails or all have passed."""

import argparse
import gc
import logging
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

from simulation import (
    group_game,
    log_game,
    micro_batch_game,
    mixed_group_game,
    quota_game,
    replication_game,
    rights_game,
    transaction_game,
)
from simulation.game import SimulationFailed


def _log(seed: int, steps: int, nodes: int, directories: int) -> Counter[str]:
    outcome = log_game.play(seed, steps, nodes=nodes, directories=directories)
    return Counter(
        requests=outcome.requests, promises=outcome.promises, records=outcome.records_read, lives=outcome.lives
    )


def _replication(seed: int, steps: int, nodes: int, directories: int) -> Counter[str]:
    outcome = replication_game.play(seed, steps, nodes, directories=directories)
    counts = asdict(outcome)
    del counts["events"]
    return outcome.events + Counter(counts)


GAMES: dict[str, Callable[[int, int, int, int], Counter[str]]] = {
    "log": _log,
    "transactions": lambda *how: Counter(asdict(transaction_game.play(*how))),
    "groups": lambda *how: Counter(asdict(group_game.play(*how))),
    "mixed-groups": lambda *how: Counter(asdict(mixed_group_game.play(*how))),
    "micro-batches": lambda *how: Counter(asdict(micro_batch_game.play(*how))),
    "replication": _replication,
    "rights": lambda seed, steps, nodes, last: Counter(asdict(rights_game.play(seed, steps))),
    "quotas": lambda seed, steps, nodes, last: Counter(asdict(quota_game.play(seed, steps))),
}
ON_SEVERAL_NODES = ("replication",)
ON_ONE_NODE = ("rights", "quotas")
WITHOUT_REPLICAS = ("log", "replication")
"""Games in which brokers may have several data directories: games of lone replicas, and the one that picks the replicas
of each topic by its seed."""
STEPS = {
    "log": 600,
    "transactions": 1500,
    "groups": 3000,
    "mixed-groups": 3000,
    "micro-batches": 3000,
    "replication": 2500,
    "rights": 1500,
    "quotas": 1500,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to play")
    parser.add_argument("--game", choices=GAMES, default="log", help="what the games are about")
    parser.add_argument("--steps", type=int, help="steps of the safety phase of each")
    parser.add_argument("--nodes", type=int, default=1, help="how many brokers lead the partitions")
    parser.add_argument("--replicas", type=int, default=1, help="how many replicas each partition has")
    parser.add_argument("--directories", type=int, default=1, help="how many data directories each broker has")
    parser.add_argument("--keep-going", action="store_true", help="name every seed that fails instead of the first")
    arguments = parser.parse_args()
    if arguments.nodes == 1 and arguments.game in ON_SEVERAL_NODES:
        parser.error(f"the game {arguments.game!r} is played on several nodes: --nodes 3")
    if arguments.nodes > 1 and arguments.game in ON_ONE_NODE:
        parser.error(f"the game {arguments.game!r} is played on one node")
    if arguments.replicas > 1 and (arguments.game in WITHOUT_REPLICAS or arguments.replicas > arguments.nodes):
        parser.error(
            f"the game {arguments.game!r} on {arguments.nodes} nodes cannot have {arguments.replicas} replicas"
        )
    if arguments.directories > 1 and arguments.game not in WITHOUT_REPLICAS:
        parser.error(f"the game {arguments.game!r} has one data directory for each broker")
    logging.getLogger("cordwood").setLevel(logging.CRITICAL + 1)
    # Imported modules stay; each game leaves one heap of garbage behind.
    gc.freeze()
    gc.disable()
    failed = []
    totals: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        try:
            steps = arguments.steps or STEPS[arguments.game]
            last = arguments.directories if arguments.game in WITHOUT_REPLICAS else arguments.replicas
            totals += GAMES[arguments.game](seed, steps, arguments.nodes, last)
        except SimulationFailed as failure:
            if not arguments.keep_going:
                print(failure)
                return 1
            failed.append(seed)
            print(f"seed {seed}: {str(failure).splitlines()[0]}", flush=True)
        gc.collect()
    print(f"{arguments.seeds - len(failed)} of {arguments.seeds} seeds passed; {dict(totals)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
