"""Found by Spark under its name: exposes the data source of `cordwood.spark`.

Spark imports every top-level module called `pyspark_*`, and one that cannot be imported spoils it for all. So where the
Spark extra of Cordwood is not installed, this one imports nothing and offers nothing.
"""

try:
    from cordwood.spark.data_source import CordwoodDataSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
