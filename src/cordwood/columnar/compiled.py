"""How this folder compiles: the decorator of its kernels, where compiled code is kept, and what LLVM does better.

A kernel is compiled for one signature when its module is imported, and kept on disk: seconds the first time on a
machine, tenths of a second from then on. It runs without the GIL and knows nothing but numbers and arrays. numba checks
no bounds: every kernel checks its own.

numba notices a change in a kernel's own file only, and replaces an index before the code that it points to. So compiled
code lives in a directory named after all that it depends on, which is never written to by another version: a kernel may
call what stands in its own file or here, and Spark's many workers may compile it at the same time.
"""

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types as _types
from numba.extending import intrinsic as _intrinsic

if TYPE_CHECKING:
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Ints = np.ndarray[Any, np.dtype[np.int32]]
    Longs = np.ndarray[Any, np.dtype[np.int64]]

    # To a reader, numbers of a certain width are numbers.
    def int16(number: int) -> int: ...
    def int64(number: int) -> int: ...
    def uint8(number: int) -> int: ...
    def uint32(number: int) -> int: ...
else:
    int16, int64, uint8, uint32 = np.int16, np.int64, np.uint8, np.uint32

# numba is typed here and there, which is worse than not at all.
types: Any = _types
cgutils: Any = _cgutils
intrinsic: Any = _intrinsic
config: Any = numba.config
njit: Any = numba.njit

_Function = TypeVar("_Function", bound=Callable[..., object])

BYTES_IN, INTS_IN, LONGS_IN = (
    types.Array(kind, 1, "C", readonly=True) for kind in (types.uint8, types.int32, types.int64)
)
"""What a kernel only reads. An array that may be written to is another type to numba: see `readable` and `numbers`."""


def numbers(values: "Ints | Longs | int", kind: "type[np.int32 | np.int64]" = np.int64) -> Any:
    """Whole numbers as LONGS_IN or INTS_IN, without a copy where that is possible. One number is an array of one."""
    array = np.require(np.atleast_1d(values), kind, ["C", "A"]).view()
    array.flags.writeable = False
    return array


def readable(buffer: "bytes | bytearray | memoryview | Bytes") -> "Bytes":
    """The buffer's bytes as BYTES_IN, without a copy."""
    return np.frombuffer(memoryview(cast("bytes", buffer)).toreadonly(), dtype=np.uint8)


def _compiled_from() -> str:
    """What the machine code depends on, as a name: our sources, the compiler, and the processor it is made for."""
    digest = hashlib.sha256()
    here = Path(__file__)
    for source in sorted((here, *here.parent.glob("*_kernels.py"))):
        digest.update(source.read_bytes())
    processor = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    digest.update(repr((numba.__version__, *processor)).encode())
    return digest.hexdigest()[:16]


def _cache_homes() -> Iterator[Path]:
    """Where compiled code may be kept, best first: beside the sources, else the user's own, else a temporary place."""
    yield Path(__file__).parent / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "cordwood"
    yield Path(tempfile.gettempdir()) / f"cordwood-{os.getuid()}"


def _is_ours(home: Path) -> bool:
    """False where others may have made the directory before us: its owner can make us run anything."""
    if not home.parent.stat().st_mode & 0o002:
        return True
    status = home.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _cache_directory() -> str | None:
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
        return str(directory)
    return None


_directory: str | None = config.CACHE_DIR or _cache_directory()


@contextmanager
def _cache_in(directory: str | None) -> Iterator[None]:
    # numba asks for the directory when a function is decorated, and the setting is the whole process's.
    before = config.CACHE_DIR
    config.CACHE_DIR = directory or ""
    try:
        yield
    finally:
        config.CACHE_DIR = before


def kernel(signature: Any) -> Callable[[_Function], _Function]:
    """Compiles a function for this signature, now, or takes it from the disk."""

    def compile_now(function: _Function) -> _Function:
        with _cache_in(_directory):
            if _directory is not None:
                try:
                    return njit(signature, nogil=True, error_model="numpy", cache=True)(function)  # type: ignore[no-any-return]
                except (OSError, RuntimeError):  # the disk is full, or the directory went away: do without
                    pass
            return njit(signature, nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]

    return compile_now


def part(function: _Function) -> _Function:
    """A piece of a kernel: compiled into each kernel that calls it."""
    return njit(error_model="numpy")(function)  # type: ignore[no-any-return]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.gep(data, [index])


def _copy_bytes(_: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any) -> Any:
    """memcpy, which numba's slices are far from."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target_place = _pointer(context, builder, signature.args[0], args[0], args[1])
        source_place = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, target_place, source_place, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate


def _crc32c_step(_: Any, crc: Any, source: Any, at: Any) -> Any:
    """The checksum over eight more bytes, by the processor's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        place = _pointer(context, builder, signature.args[1], args[1], args[2])
        word = builder.load(builder.bitcast(place, i64.as_pointer()), align=1)
        if _MACHINE == "x86_64":
            step = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
            )
            return builder.trunc(builder.call(step, [builder.zext(args[0], i64), word]), i32)
        step = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i32, [i32, i64]), "llvm.aarch64.crc32cx")
        return builder.call(step, [args[0], word])

    return types.uint32(types.uint32, source, types.intp), generate


def _crc32c_step_byte(_: Any, crc: Any, byte: Any) -> Any:
    """The checksum over one more byte, by the processor's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i8, i32 = ir.IntType(8), ir.IntType(32)
        if _MACHINE == "x86_64":
            step = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i32, [i32, i8]), "llvm.x86.sse42.crc32.32.8"
            )
            return builder.call(step, args)
        step = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i32, [i32, i32]), "llvm.aarch64.crc32cb")
        return builder.call(step, [args[0], builder.zext(args[1], i32)])

    return types.uint32(types.uint32, types.uint8), generate


_MACHINE = platform.machine()
_INSTRUCTION = {"x86_64": "sse4.2", "aarch64": "crc"}

HAS_CRC32C = bool(
    not config.DISABLE_JIT
    # Where numba is told to compile for another processor than this one, the instruction may not be there.
    and config.CPU_NAME is None
    and config.CPU_FEATURES is None
    and llvmlite.binding.get_host_cpu_features().get(_INSTRUCTION.get(_MACHINE, ""), False)
)
"""Whether kernels can compute checksums by themselves."""

if config.DISABLE_JIT:
    # Kernels as plain Python, for tests: every access is checked.
    def copy_bytes(target: "Bytes", target_at: int, source: "Bytes", source_at: int, size: int) -> None:
        assert 0 <= target_at <= target_at + size <= len(target)
        assert 0 <= source_at <= source_at + size <= len(source)
        target[target_at : target_at + size] = source[source_at : source_at + size]
else:
    copy_bytes = intrinsic(_copy_bytes)

if HAS_CRC32C:
    crc32c_step, crc32c_step_byte = intrinsic(_crc32c_step), intrinsic(_crc32c_step_byte)

    @part
    def crc32c_of(source: "Bytes", start: int, end: int) -> int:
        """CRC-32C of the bytes in [start, end), eight at a time."""
        crc = uint32(0xFFFFFFFF)
        position = start
        while position + 8 <= end:
            crc = crc32c_step(crc, source, position)
            position += 8
        while position < end:
            crc = crc32c_step_byte(crc, source[position])
            position += 1
        return int64(crc ^ uint32(0xFFFFFFFF))
else:

    @part
    def crc32c_of(source: "Bytes", start: int, end: int) -> int:
        """Never called: the caller computes checksums where kernels cannot."""
        return -1
