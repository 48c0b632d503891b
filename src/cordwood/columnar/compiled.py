"""Compiles kernels: the decorator, and the directory of compiled code.

A kernel is compiled for one signature when its module is imported, and kept on disk: seconds the first time on a
machine, tenths of a second from then on. A kernel runs without the GIL and knows only numbers and arrays. numba checks
no bounds: every kernel checks its own.

numba notices a change in a kernel's own file only, and replaces an index before the code that it points to. So compiled
code lives in a directory named after all that it depends on, to which no other version writes: a kernel may call what
stands in its own file or in memory.py, and Spark's many workers may compile it at the same time.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import llvmlite.binding
import numba
import numpy as np
from numba.core import types as _types

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Ints = np.ndarray[Any, np.dtype[np.int32]]
    Longs = np.ndarray[Any, np.dtype[np.int64]]

    # To a type checker, numbers of a certain width are numbers.
    def int64(number: int) -> int: ...
    def uint32(number: int) -> int: ...
else:
    int64, uint32 = np.int64, np.uint32

# numba is typed here and there, which is worse than not at all.
types: Any = _types
config: Any = numba.config
njit: Any = numba.njit

_Function = TypeVar("_Function", bound=Callable[..., object])

BYTES_IN, INTS_IN, LONGS_IN = (
    types.Array(kind, 1, "C", readonly=True) for kind in (types.uint8, types.int32, types.int64)
)
"""The type of an array that a kernel only reads. To numba a writable array is another type (`readable`, `numbers`)."""


def numbers(values: "Ints | Longs | int", kind: "type[np.int32 | np.int64]" = np.int64) -> Any:
    """Whole numbers as LONGS_IN or INTS_IN, without a copy where that is possible. One number is an array of one."""
    array = np.require(np.atleast_1d(values), kind, ["C", "A"]).view()
    array.flags.writeable = False
    return array


def readable(buffer: "bytes | bytearray | memoryview | Bytes") -> "Bytes":
    """The buffer's bytes as BYTES_IN, without a copy."""
    return np.frombuffer(memoryview(cast("bytes", buffer)).toreadonly(), dtype=np.uint8)


def _compiled_from() -> str:
    """A name for everything that the machine code depends on: our sources, the compiler, and the processor."""
    digest = hashlib.sha256()
    here = Path(__file__)
    for source in (here, here.with_name("memory.py"), *sorted(here.parent.glob("*_kernels.py"))):
        digest.update(source.read_bytes())
    processor = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    told = (config.CPU_NAME, config.CPU_FEATURES, config.BOUNDSCHECK, config.OPT)
    digest.update(repr((numba.__version__, *processor, *told)).encode())
    return digest.hexdigest()[:16]


def _cache_homes() -> Iterator[Path]:
    """Directories for compiled code, best first: numba's own setting, beside the sources, the user's cache, or a
    temporary directory."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield Path(__file__).parent / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "cordwood"
    yield Path(tempfile.gettempdir()) / f"cordwood-{os.getuid()}"


def _is_ours(home: Path) -> bool:
    """False if another user may have made the directory: its owner could make us run any code."""
    if not home.parent.stat().st_mode & 0o002:
        return True
    status = home.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _cache_directory() -> Path | None:
    """A directory that can be written to, for this version's code alone; None where there is none."""
    try:
        name = f"numba-{_compiled_from()}"
    except OSError:  # imported from an archive
        return None
    for home in _cache_homes():
        directory = home / name
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(home):
                continue
            directory.mkdir(exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
        except OSError:
            continue
        return directory
    return None


_directory = None if config.DISABLE_JIT else _cache_directory()


@contextmanager
def _cache_in(directory: Path) -> Iterator[None]:
    # numba asks for the directory when a function is decorated, and the setting is the whole process's.
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def kernel(signature: Any) -> Callable[[_Function], _Function]:
    """Compiles a function for this signature, now, or takes it from the disk."""

    def compile_now(function: _Function) -> _Function:
        if _directory is not None:
            with _cache_in(_directory):
                for _ in range(2):
                    try:
                        return _compiled(function, signature, cache=True)
                    except Exception:
                        # A file that a power cut left empty, a disk that is full: there is much that can be wrong with
                        # files, and none of it is worth more than compiling again.
                        shutil.rmtree(_directory, ignore_errors=True)
        return _compiled(function, signature, cache=False)

    return compile_now


def _compiled(function: _Function, signature: Any, *, cache: bool) -> _Function:
    return njit(signature, nogil=True, error_model="numpy", cache=cache)(function)  # type: ignore[no-any-return]


def part(function: _Function) -> _Function:
    """A piece of a kernel: compiled into each kernel that calls it."""
    return njit(error_model="numpy")(function)  # type: ignore[no-any-return]
