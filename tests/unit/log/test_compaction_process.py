"""Compaction in a process of its own: it works for the broker that started it, and for nobody after that."""

import os
import subprocess
import sys


def test_a_process_whose_broker_is_gone_already_touches_nothing() -> None:
    asked = [sys.executable, "-m", "cordwood.log.rewriting.compaction_process", str(os.getppid())]
    ended = subprocess.run(asked, input="not even a job", capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "the broker is gone" in ended.stderr
