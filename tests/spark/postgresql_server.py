"""A PostgreSQL of a test, from Debian: an unprivileged user's, on a port and in a directory of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import psycopg
from tests.broker_process import free_port
from tests.deadline import eventually
from tests.debian import NotHere, release, unpacked

USER, PASSWORD = "shop", "a-secret-for-tests"
_PACKAGED = {"bookworm": 15, "trixie": 17}
"""PostgreSQL's version in Debian's releases."""


def binaries() -> Path:
    """The directory of PostgreSQL's programs: this machine's, else Debian's. Raises NotHere."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if installed and int(installed[-1].parts[-3]) >= 15:
        return installed[-1].parent
    codename = release()["VERSION_CODENAME"]
    if codename not in _PACKAGED:
        raise NotHere("needs PostgreSQL 15 or later: apt-get install postgresql")
    version = _PACKAGED[codename]
    inside = f"usr/lib/postgresql/{version}/bin"
    directory = unpacked(f"postgresql-{version}", "libpq5", holds=f"{inside}/initdb", place=f"postgresql-{version}")
    return directory / inside


class PostgresServer:
    """Use as a context manager. Promises that its processes and files are gone when the test is over."""

    def __init__(self) -> None:
        self._binaries = binaries()
        self._home = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self.port = free_port()
        self._as_user: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _make(self) -> None:
        password = self._home / "password"
        password.write_text(PASSWORD)
        if os.getuid() == 0:
            # PostgreSQL refuses to run as root.
            user = pwd.getpwnam("nobody")
            for path in (self._home, password):
                os.chown(path, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", f"{self._home}/data", "-U", USER, "-A", "scram-sha-256", "--pwfile", str(password))

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._as_user, f"{self._binaries}/{program}", *words], cwd=self._home, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Starts the server, and returns when it answers: after a crash that is when it has recovered."""
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "32MB"}
        words = ["-D", f"{self._home}/data", "-p", str(self.port)]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with open(self._home / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, f"{self._binaries}/postgres", *words],
                cwd=self._home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers, what="PostgreSQL")

    def kill(self) -> None:
        """kill -9 of the postmaster and of all its processes, each of which is a group of its own."""
        process, self._process = self._process, None
        if process is None:
            return
        children = _children_of(process.pid)
        for pid in (process.pid, *children):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()
        eventually(lambda: [pid for pid in children if Path(f"/proc/{pid}").exists()], to_be=[], what="their end")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._home / "log").read_text()[-3000:]
        try:
            self.rows("select 1")
        except psycopg.OperationalError:
            return False
        return True

    @property
    def url(self) -> str:
        """The address, without the password."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, password=PASSWORD, connect_timeout=30, autocommit=True) as connection:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return found

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, password=PASSWORD, connect_timeout=30, autocommit=True) as connection:
            connection.execute(statement)

    def tables(self) -> list[str]:
        found = self.rows("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'")
        return sorted(name for (name,) in found)


def _children_of(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found
