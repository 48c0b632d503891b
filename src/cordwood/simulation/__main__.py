"""`python -m cordwood.simulation`: plays games, one seed after the other, until one fails or the last has passed."""

import argparse
import logging
import sys
from collections import Counter

from cordwood.simulation.run import SimulationFailed, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cordwood.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to play")
    parser.add_argument("--steps", type=int, default=600, help="steps of the safety phase of each")
    parser.add_argument("--keep-going", action="store_true", help="name every seed that fails instead of the first")
    arguments = parser.parse_args()
    logging.getLogger("cordwood").setLevel(logging.CRITICAL + 1)
    failed = []
    totals: Counter[str] = Counter()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        try:
            outcome = run(seed, arguments.steps)
        except SimulationFailed as failure:
            if not arguments.keep_going:
                print(failure)
                return 1
            failed.append(seed)
            print(f"seed {seed}: {str(failure).splitlines()[0]}")
            continue
        totals += Counter(
            requests=outcome.requests, promises=outcome.promises, records=outcome.records_read, lives=outcome.lives
        )
    print(f"{arguments.seeds - len(failed)} of {arguments.seeds} seeds passed; {dict(totals)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
