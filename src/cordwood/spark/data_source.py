"""Format "cordwood" as Spark sees it: its name, its columns, its readers and writers."""

import logging
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from cordwood.spark.releases.capabilities import running
from cordwood.spark.source.options import SourceOptions, check_options, read_options
from cordwood.spark.source.schema import check_schema, source_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

_log = logging.getLogger(__name__)


class CordwoodDataSource(DataSource):
    """Imports readers and writers on first use: Spark starts many short processes with this class."""

    _is_for_tasks = False
    """True once a reader is made of the source: from then on it is pickled for tasks alone, which ask for its name."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "options": {}} if self._is_for_tasks else self.__dict__

    @classmethod
    def name(cls) -> str:
        return "cordwood"

    def schema(self) -> StructType:
        return source_schema(check_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from cordwood.spark.source.batch_reader import BatchReader, FilteringBatchReader

        options = self._read_options(schema, streaming=False)
        for warning in options.warnings:
            _log.warning("%s", warning)
        return FilteringBatchReader(options, schema) if _is_asked_to_filter() else BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        running().require_streams("A stream from format cordwood")
        from cordwood.spark.source.stream_reader import StreamReader

        return StreamReader(self._read_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from cordwood.spark.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        running().require_streams("A stream to format cordwood")
        from cordwood.spark.sink.stream_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _read_options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = read_options(self.options, streaming=streaming)
        self._is_for_tasks = True
        check_schema(schema, options.extra_columns)
        return options


def _is_asked_to_filter() -> bool:
    """True if the caller is Spark's worker that pushes filters down.

    A reader must not have `pushFilters` unless pushdown is on, and Spark does not say whether it is; but only this
    worker calls `pushFilters`, and Spark starts it only with pushdown.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
    return False
