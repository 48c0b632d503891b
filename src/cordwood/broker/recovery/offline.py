"""Holds the data directory of a stopped broker, so that no broker starts on it meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.directory_set import Place
from cordwood.log.directory.identity import COPY_FILE, PROPERTIES_FILE
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.failure import ExitCode, Failure


@contextmanager
def taken(directory: str) -> Iterator[DataDirectory]:
    """Takes the only directory of a broker. An EnvironmentFailure becomes a Failure."""
    with taken_of_several(directory) as held:
        owner = Place(held.filesystem, held.path).identity()
        if owner is not None and (owner.directories or owner.home_id):
            paths = ", ".join(sorted(owner.directories.values()))
            raise Failure(
                "SEVERAL_DIRECTORIES",
                f"{directory} is one of several data directories of a broker{f' ({paths})' if paths else ''}, and this "
                "command works on a broker with one directory",
                "`cordwood inspect` and `cordwood recover list` show the content of each of them; "
                "docs/operations/disks.md says how one becomes the only one",
            )
        yield held


@contextmanager
def taken_of_several(directory: str) -> Iterator[DataDirectory]:
    """Takes the directory as a broker does, also a home of several that has only the copy of its properties. An
    EnvironmentFailure becomes a Failure."""
    if not any(os.path.exists(os.path.join(directory, name)) for name in (PROPERTIES_FILE, COPY_FILE)):
        raise Failure(
            "NOT_A_DATA_DIRECTORY",
            f"{directory} is not the data directory of a broker: it has no {PROPERTIES_FILE}",
            "give the --data-dir of a broker",
            ExitCode.NOT_FOUND,
        )
    path = os.path.abspath(directory)
    filesystem = OsFilesystem(path)
    holder = DataDirectory(filesystem, path)
    try:
        holder.take()
        try:
            yield holder
        finally:
            holder.release()
    except EnvironmentFailure as failure:
        raise Failure("STORAGE", str(failure)) from failure
    finally:
        filesystem.close()
