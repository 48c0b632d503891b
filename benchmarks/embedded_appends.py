"""Records a second through `broker.log` of an embedded broker: `append_many` beside single calls of `append`.

Run: python -m benchmarks.embedded_appends [--records 200000] [--bytes 100] [--partitions 1]

The two take turns, each with a part of the records in each round, so that a machine with other work slows both alike.
In memory, and on disk, where both wait for the fsync. Prints the rates and their ratio.
"""

import argparse
import tempfile
import time
from statistics import median

from cordwood.embedded import Broker, InProcessLog

ROUNDS = 5
SINGLE_SHARE = 40
"""One single append for so many records of `append_many`, so that both take about the same time."""


def rates(log: InProcessLog, records: int, size: int) -> tuple[float, float]:
    """Records a second: single calls, and `append_many`."""
    value = bytes(size)
    single_rates, many_rates = [], []
    for number in range(ROUNDS):
        share = records // ROUNDS
        begun = time.perf_counter()
        for index in range(share // SINGLE_SHARE):
            log.append("single", f"key {number} {index}", value)
        between = time.perf_counter()
        log.append_many("many", ((f"key {number} {index}", value) for index in range(share)))
        ended = time.perf_counter()
        single_rates.append(share // SINGLE_SHARE / (between - begun))
        many_rates.append(share / (ended - between))
    return median(single_rates), median(many_rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1)
    arguments = parser.parse_args()
    settings = {"num.partitions": arguments.partitions}
    with tempfile.TemporaryDirectory() as directory:
        for where, data_dir in (("in memory", None), ("on disk", directory)):
            with Broker(data_dir=data_dir, settings=settings) as broker:
                single, many = rates(broker.log, arguments.records, arguments.bytes)
            print(
                f"{where}: append {single:,.0f} records a second, append_many {many:,.0f} records a second: "
                f"{many / single:.1f} times as many"
            )


if __name__ == "__main__":
    main()
