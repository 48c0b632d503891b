"""The planner of a stream, which connects to Spark before it imports.

Spark's JVM starts `python -m pyspark.sql.streaming.python_streaming_source_runner` for each source of a query, waits
ten seconds for its connection, and else fails the query with "Python worker failed to connect back". PySpark's program
imports all of PySpark, Arrow and NumPy first, a second of CPU, which takes longer than ten on a busy machine. Here the
connection comes first, and `light_imports` spares most of the rest.

Sessions on one machine start this module by a stand-in for Python (`cordwood.spark.python`).
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"

_LENGTH = struct.Struct("!i")


def is_planner() -> bool:
    """True in a process that Spark has started to plan a stream, by this module or by its own."""
    program = getattr(sys.modules.get("__main__"), "__spec__", None)
    return program is not None and program.name.endswith((RUNNER.rpartition(".")[2], "spark.workers.planner"))


@contextmanager
def connection_to_spark() -> Iterator[BinaryIO]:
    """The connection that Spark's JVM waits for, as PySpark makes it (`pyspark.util.local_connect_and_auth`)."""
    environment = os.environ
    path, secret = environment.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), environment.get("PYTHON_WORKER_FACTORY_SECRET")
    patience_s = int(environment.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(patience_s)
        connection.connect(path)
    else:
        host = "::1" if environment.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, int(environment["PYTHON_WORKER_FACTORY_PORT"])), patience_s)
    with connection, connection.makefile("rwb", int(environment.get("SPARK_BUFFER_SIZE", "65536"))) as stream:
        if path is None:
            assert secret is not None, "Spark names no secret for its planner"
            stream.write(_LENGTH.pack(len(secret.encode())) + secret.encode())
            stream.flush()
            (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
            answer = stream.read(length)
            if answer != b"ok":
                raise ConnectionRefusedError(f"Spark does not take its planner's secret: {answer!r}")
        connection.settimeout(None)
        stream.write(_LENGTH.pack(os.getpid()))
        stream.flush()
        yield cast("BinaryIO", stream)


def main() -> None:
    with connection_to_spark() as stream:
        from cordwood.spark.workers.light_imports import import_light

        import_light(sys.argv[1]).main(stream, stream)


if __name__ == "__main__":
    main()
