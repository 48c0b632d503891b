"""Jars of peers from Maven Central, fetched once into `benchmarks/.peers/`, which git ignores.

Promises: a directory of jars that exists is complete; parallel test workers do not fetch the same jars at once; what
is missing on the machine is said in a `PeerUnavailable`, which tests turn into a skip.
"""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PEERS = Path(__file__).resolve().parent / ".peers"


class PeerUnavailable(Exception):
    """The peer cannot run on this machine; the message says what to install."""


class FetchFailed(Exception):
    """Maven did not get what was asked for; the message holds the end of its output."""


def fetch_jars(pom: str, lib: Path, proof: str) -> None:
    """The jars that the pom depends on, in `lib`; `proof` matches one without which they would be of no use."""
    PEERS.mkdir(parents=True, exist_ok=True)
    with _one_installer_at_a_time():
        if not lib.is_dir():
            _fetch(pom, lib, proof)


@contextmanager
def _one_installer_at_a_time() -> Iterator[None]:
    with (PEERS / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pom: str, lib: Path, proof: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no Maven found, it fetches the peer's jars: install it (Debian: maven)")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=PEERS) as directory:
        build = Path(directory)
        (build / "pom.xml").write_text(pom)
        fetched = build / "lib"
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}", "-DincludeScope=runtime"]
        done = subprocess.run(
            [maven, "-B", "-ntp", "-q", *goal], cwd=build, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode != 0 or not list(fetched.glob(proof)):
            raise FetchFailed((done.stdout + done.stderr)[-2000:])
        lib.parent.mkdir(parents=True, exist_ok=True)
        fetched.rename(lib)  # the last step: a directory that exists is complete
