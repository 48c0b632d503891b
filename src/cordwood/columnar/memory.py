"""Memory access of kernels: plain loads and stores, memcpy, and the processor's checksum instruction.

A kernel gets arrays and takes the address of their items, `memory(array)`. numba counts references to arrays, even in
loops, which can take ten times as long as the work; an address has no references. No access is checked. Where numba is
told not to compile (NUMBA_DISABLE_JIT), every access is: so kernels are tested for staying within their arrays.
"""

import platform
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic

from cordwood.columnar.compiled import config, int64, part, types, uint32

if TYPE_CHECKING:
    from cordwood.columnar.compiled import Bytes, Longs

    Memory = Any

cgutils: Any = _cgutils
intrinsic: Any = _intrinsic


def _memory(_: Any, array: Any) -> Any:
    """The address of an array's items."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, value=args[0]).data

    return types.CPointer(array.dtype)(array), generate


def _at(_: Any, source: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = builder.load(builder.gep(args[0], [args[1]]))
        return context.cast(builder, item, signature.args[0].dtype, types.int64)

    return types.int64(source, types.int64), generate


def _reader(bits: int) -> Any:
    def big_endian_at(_: Any, source: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            place = builder.bitcast(builder.gep(args[0], [args[1]]), kind.as_pointer())
            return builder.sext(_big_endian(builder, builder.load(place, align=1)), ir.IntType(64))

        return types.int64(source, types.int64), generate

    return big_endian_at


def _writer(bits: int) -> Any:
    def put_big_endian(_: Any, target: Any, position: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            place = builder.bitcast(builder.gep(args[0], [args[1]]), kind.as_pointer())
            number = args[2] if bits == 64 else builder.trunc(args[2], kind)
            builder.store(_big_endian(builder, number), place, align=1)
            return context.get_dummy_value()

        return types.void(target, types.int64, types.int64), generate

    return put_big_endian


def _big_endian(builder: Any, number: Any) -> Any:
    return builder.bswap(number) if sys.byteorder == "little" else number


def _put_byte(_: Any, target: Any, position: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[2], ir.IntType(8)), builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64), generate


def _prefetch(_: Any, source: Any, position: Any) -> Any:
    """Prefetches the bytes at an address. Nothing is read, so the address may be invalid."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        place = builder.gep(args[0], [args[1]])
        ask = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [place.type, i32, i32, i32]), "llvm.prefetch.p0"
        )
        builder.call(ask, [place, i32(0), i32(3), i32(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(source, types.int64), generate


def _copy_bytes(_: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any) -> Any:
    """Copies by memcpy, which is far faster than numba's slices."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.raw_memcpy(
            builder, builder.gep(args[0], [args[1]]), builder.gep(args[2], [args[3]]), args[4], itemsize=1
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _crc32c_step(_: Any, crc: Any, source: Any, position: Any) -> Any:
    """The checksum over eight more bytes, by the processor's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        place = builder.gep(args[1], [args[2]])
        word = builder.load(builder.bitcast(place, i64.as_pointer()), align=1)
        if _MACHINE == "x86_64":
            step = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i64, [i64, i64]), "llvm.x86.sse42.crc32.64.64"
            )
            return builder.trunc(builder.call(step, [builder.zext(args[0], i64), word]), i32)
        step = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i32, [i32, i64]), "llvm.aarch64.crc32cx")
        return builder.call(step, [args[0], word])

    return types.uint32(types.uint32, source, types.int64), generate


def _crc32c_step_byte(_: Any, crc: Any, source: Any, position: Any) -> Any:
    """The checksum over one more byte, by the processor's own instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i8, i32 = ir.IntType(8), ir.IntType(32)
        byte = builder.load(builder.gep(args[1], [args[2]]))
        if _MACHINE == "x86_64":
            step = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(i32, [i32, i8]), "llvm.x86.sse42.crc32.32.8"
            )
            return builder.call(step, [args[0], byte])
        step = cgutils.get_or_insert_function(builder.module, ir.FunctionType(i32, [i32, i32]), "llvm.aarch64.crc32cb")
        return builder.call(step, [args[0], builder.zext(byte, i32)])

    return types.uint32(types.uint32, source, types.int64), generate


_MACHINE = platform.machine()
_INSTRUCTION = {"x86_64": "sse4.2", "aarch64": "crc", "arm64": "crc"}

HAS_CRC32C = bool(
    not config.DISABLE_JIT
    # If numba compiles for another processor, the instruction may be missing.
    and config.CPU_NAME is None
    and config.CPU_FEATURES is None
    and llvmlite.binding.get_host_cpu_features().get(_INSTRUCTION.get(_MACHINE, ""), False)
)
"""Whether kernels can compute checksums."""

if config.DISABLE_JIT:
    # Kernels as plain Python, for tests: every access is checked.
    def memory(array: "Bytes | Longs") -> "Memory":
        return array

    def at(source: "Memory", position: int) -> int:
        assert 0 <= position < len(source)
        return int64(source[position])

    def put_byte(target: "Memory", position: int, byte: int) -> None:
        assert 0 <= position < len(target)
        target[position] = byte & 0xFF

    def _int_at(source: "Memory", position: int, size: int) -> int:
        assert 0 <= position <= position + size <= len(source)
        return int64(int.from_bytes(source[position : position + size].tobytes(), "big", signed=True))

    def _put_int(target: "Memory", position: int, number: int, size: int) -> None:
        for place in range(size):
            put_byte(target, position + place, int(number) >> (8 * (size - 1 - place)))

    int16_at, int32_at, int64_at = (partial(_int_at, size=size) for size in (2, 4, 8))
    put_int16, put_int32, put_int64 = (partial(_put_int, size=size) for size in (2, 4, 8))

    def prefetch(source: "Memory", position: int) -> None:
        pass

    def copy_bytes(target: "Memory", target_at: int, source: "Memory", source_at: int, size: int) -> None:
        assert 0 <= target_at <= target_at + size <= len(target)
        assert 0 <= source_at <= source_at + size <= len(source)
        target[target_at : target_at + size] = source[source_at : source_at + size]
else:
    memory, at, put_byte = intrinsic(_memory), intrinsic(_at), intrinsic(_put_byte)
    int16_at, int32_at, int64_at = (intrinsic(_reader(bits)) for bits in (16, 32, 64))
    put_int16, put_int32, put_int64 = (intrinsic(_writer(bits)) for bits in (16, 32, 64))
    prefetch, copy_bytes = intrinsic(_prefetch), intrinsic(_copy_bytes)

if HAS_CRC32C:
    crc32c_step, crc32c_step_byte = intrinsic(_crc32c_step), intrinsic(_crc32c_step_byte)

    @part
    def crc32c_of(source: "Memory", start: int, end: int) -> int:
        """CRC-32C of the bytes in [start, end), eight at a time."""
        crc = uint32(0xFFFFFFFF)
        position = start
        while position + 8 <= end:
            crc = crc32c_step(crc, source, position)
            position += 8
        while position < end:
            crc = crc32c_step_byte(crc, source, position)
            position += 1
        return int64(crc ^ uint32(0xFFFFFFFF))
else:

    @part
    def crc32c_of(source: "Memory", start: int, end: int) -> int:
        """Never called: the caller computes checksums where kernels cannot."""
        return -1
