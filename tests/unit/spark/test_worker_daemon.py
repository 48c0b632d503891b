"""The imports of the daemon of Python workers, before it forks them."""

import subprocess
import sys

LOOK = """
import sys
from cordwood.spark.workers import daemon as worker_daemon
worker_daemon.preload()
print(worker_daemon.thread_count(), "numba" in sys.modules, "pyarrow" in sys.modules)
"""


def test_it_imports_what_takes_long_and_starts_no_thread() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "False"]
