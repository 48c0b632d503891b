"""A checkpoint as Spark writes it, file by file, for stories that lose some of its files."""

import json
from pathlib import Path


class CheckpointFiles:
    def __init__(self, directory: Path, query_id: str) -> None:
        self.directory = directory
        self.query_id = query_id
        directory.mkdir(parents=True, exist_ok=True)
        self.give_id(query_id)

    def give_id(self, query_id: str) -> None:
        self._write("metadata", json.dumps({"id": query_id}))

    def plan(self, batch_id: int, *ends: int, timestamp_ms: int = 1, settings: str = "2") -> str:
        """Plans a batch that ends at these offsets of topic `orders`, one for each source."""
        seconds = {"batchTimestampMs": timestamp_ms, "conf": {"spark.sql.shuffle.partitions": settings}}
        lines = ["v1", json.dumps(seconds), *(json.dumps({"orders": {"0": end}}) for end in ends)]
        self._write(f"offsets/{batch_id}", "\n".join(lines))
        return "\n".join(lines)

    def commit(self, batch_id: int) -> None:
        self._write(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}')

    def path(self, name: str) -> Path:
        return self.directory / name

    def lose(self, name: str) -> None:
        path = self.directory / name
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()

    def empty(self, name: str) -> None:
        (self.directory / name).write_bytes(b"")

    def names(self) -> set[str]:
        """The names of the files, without Hadoop's checksums."""
        found = (path for path in self.directory.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
        return {str(path.relative_to(self.directory)) for path in found}

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0")
