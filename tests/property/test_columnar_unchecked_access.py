"""The kernels as plain Python, where an array says when it is accessed out of its bounds; compiled code does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.mark.parametrize("tests", ["test_columnar_decoding.py", "test_columnar_encoding.py"])
def test_no_kernel_reaches_beyond_its_arrays(tests: str) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "CORDWOOD_COLUMNAR_EXAMPLES": "20"}
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(HERE / tests)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-8000:]
