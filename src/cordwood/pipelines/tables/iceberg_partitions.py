"""Partitions of Iceberg tables: the transforms of Iceberg's specification, computed where rows are written.

`pyiceberg` would read the values of a partition from the statistics of a file, which tell them for columns and times
and not for buckets. The tasks know them: they part the rows by them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cordwood.pipelines.definition.errors import InvalidRows
from cordwood.pipelines.definition.partitions import Partition, Transform
from cordwood.pipelines.definition.table_output import Table
from cordwood.pipelines.tables.data_files import arrow_schema
from cordwood.pipelines.tables.parted_files import check_partition_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_TIMES: Final = (Transform.YEARS, Transform.MONTHS, Transform.DAYS, Transform.HOURS)
_SUFFIXES: Final = {
    Transform.IDENTITY: "",
    Transform.YEARS: "_year",
    Transform.MONTHS: "_month",
    Transform.DAYS: "_day",
    Transform.HOURS: "_hour",
    Transform.BUCKET: "_bucket",
    Transform.TRUNCATE: "_trunc",
}
"""The ends of names of partitions, as Iceberg's own libraries choose them."""


@dataclass(frozen=True)
class IcebergParting:
    parts: tuple[Partition, ...]

    def values(self, rows: "pa.Table") -> "list[pa.ChunkedArray]":
        return [_transformed(rows.column(each.column), each) for each in self.parts]

    def kept(self, schema: "pa.Schema") -> "pa.Schema":
        return schema


def name_of(part: Partition) -> str:
    """The name of a partition in the table's metadata."""
    return part.column + _SUFFIXES[part.transform]


def transform_of(part: Partition) -> Any:
    """Iceberg's own transform."""
    from pyiceberg import transforms

    match part.transform:
        case Transform.IDENTITY:
            return transforms.IdentityTransform()
        case Transform.YEARS:
            return transforms.YearTransform()
        case Transform.MONTHS:
            return transforms.MonthTransform()
        case Transform.DAYS:
            return transforms.DayTransform()
        case Transform.HOURS:
            return transforms.HourTransform()
        case Transform.BUCKET:
            return transforms.BucketTransform(part.width)
        case Transform.TRUNCATE:
            return transforms.TruncateTransform(part.width)


def check_transforms(schema: "StructType", table: Table) -> None:
    """Refuses rows that cannot be parted as the table declares."""
    check_partition_columns(schema, table)
    kinds = arrow_schema(schema)
    for each in table.partition_by:
        source = _iceberg_type(kinds.field(each.column).type)
        if source is None or not transform_of(each).can_transform(source):
            kind = schema[each.column].dataType.simpleString()
            hint = "days, months, years and hours are of times; buckets of text, whole numbers, decimals and times"
            raise InvalidRows(
                f"table {table.name}: rows cannot be partitioned by {each}: {each.column} is {kind}", hint
            )


def _transformed(column: "pa.ChunkedArray", part: Partition) -> "pa.ChunkedArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks()
    if part.transform is Transform.IDENTITY:
        return pa.chunked_array([_as_kept(whole)])
    if part.transform in _TIMES and pa.types.is_timestamp(whole.type):
        # The transform is called for every distinct value: hours are few.
        whole = pc.floor_temporal(whole, unit="hour")
    function: Callable[[Any], Any] = transform_of(part).transform(_iceberg_type(whole.type))
    encoded = whole.dictionary_encode()
    made = [function(value) for value in _as_kept(encoded.dictionary).to_pylist()]
    kind = whole.type if part.transform is Transform.TRUNCATE else pa.int32()
    return pa.chunked_array([pa.array(made, kind).take(encoded.indices)])


def _as_kept(values: "pa.Array") -> "pa.Array":
    """Values as Iceberg keeps them: times are numbers since 1970."""
    import pyarrow as pa

    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _iceberg_type(kind: "pa.DataType") -> Any:
    """Iceberg's type; None for those that rows are not parted by."""
    import pyarrow as pa
    from pyiceberg import types

    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return types.TimestampType() if kind.tz is None else types.TimestamptzType()
    plain: Sequence[tuple[Callable[[Any], bool], Any]] = (
        (pa.types.is_boolean, types.BooleanType),
        (pa.types.is_int64, types.LongType),
        (pa.types.is_integer, types.IntegerType),
        (pa.types.is_string, types.StringType),
        (pa.types.is_binary, types.BinaryType),
        (pa.types.is_date32, types.DateType),
    )
    return next((made() for is_it, made in plain if is_it(kind)), None)


def data_file(metadata: Any, io: Any, location: str, values: Sequence[Any]) -> Any:
    """The entry of a new Parquet file for a manifest, with the statistics of its footer."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    file, schema = io.new_input(location), metadata.schema()
    with file.open() as opened:
        footer = pq.read_metadata(opened)
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=len(file),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
