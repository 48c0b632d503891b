"""The connection of a planner to Spark's JVM."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pathlib import Path

Path("imports").read_text()  # a pipe: waits for a writer

def main(infile, outfile):
    assert infile is outfile
    outfile.write(infile.read(4))
    outfile.flush()
"""
SECRET = "a secret"


@pytest.mark.parametrize("by", ["path", "port"])
def test_a_planner_is_connected_before_its_imports_are_done(tmp_path: Path, by: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "imports")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON_WORKER_FACTORY")}
    with socket.socket(socket.AF_UNIX if by == "path" else socket.AF_INET) as listening:
        if by == "path":
            # The name is relative: paths of sockets are short.
            environment["PYTHON_WORKER_FACTORY_SOCK_PATH"] = "socket"
            directory = os.open(tmp_path, os.O_RDONLY)
            listening.bind(f"/proc/self/fd/{directory}/socket")
        else:
            listening.bind(("127.0.0.1", 0))
            environment["PYTHON_WORKER_FACTORY_PORT"] = str(listening.getsockname()[1])
            environment["PYTHON_WORKER_FACTORY_SECRET"] = SECRET
        listening.listen()
        command = [sys.executable, "-m", "cordwood.spark.workers.planner", "program"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment) as planner:
            connection, _ = listening.accept()
            with connection, connection.makefile("rwb") as stream:
                if by == "port":
                    assert stream.read(4 + len(SECRET)) == struct.pack("!i", len(SECRET)) + SECRET.encode()
                    stream.write(struct.pack("!i", 2) + b"ok")
                    stream.flush()
                assert struct.unpack("!i", stream.read(4)) == (planner.pid,)
                (tmp_path / "imports").write_text("go on")
                stream.write(b"ping")
                stream.flush()
                assert stream.read(4) == b"ping"
            assert planner.wait(60) == 0


def test_a_planner_without_the_right_secret_ends(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise AssertionError('not imported')\n")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        environment = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }
        command = [sys.executable, "-m", "cordwood.spark.workers.planner", "program"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as planner:
            connection, _ = listening.accept()
            with connection, connection.makefile("rwb") as stream:
                stream.read(4 + len(SECRET))
                stream.write(struct.pack("!i", 3) + b"err")
                stream.flush()
                assert planner.wait(60) == 1
            assert planner.stderr is not None
            assert "does not take its planner's secret: b'err'" in planner.stderr.read()
