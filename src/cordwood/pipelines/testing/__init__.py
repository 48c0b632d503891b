"""Tests of pipelines: a function with rows as lists of dicts, or a whole pipeline, batch by batch.

    from cordwood.pipelines.testing import run_function, tombstone

    def test_prices(cordwood_spark):
        found = run_function(price_orders, cordwood_spark, orders=[{"id": "o1", "amount": 10.0}, tombstone("o2")])
        assert found["priced"] == [{"id": "o1", "total": 11.9}]

The first use of a name imports its module, and Spark with it: pytest imports this package at every start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.pipelines.testing.functions import Results as Results
    from cordwood.pipelines.testing.functions import run_function as run_function
    from cordwood.pipelines.testing.given import Given as Given
    from cordwood.pipelines.testing.given import GivenRow as GivenRow
    from cordwood.pipelines.testing.given import record as record
    from cordwood.pipelines.testing.given import tombstone as tombstone
    from cordwood.pipelines.testing.whole import Batch as Batch
    from cordwood.pipelines.testing.whole import PipelineTest as PipelineTest

__all__ = ["Batch", "Given", "GivenRow", "PipelineTest", "Results", "record", "run_function", "tombstone"]

_MODULES = {
    "Batch": "whole",
    "Given": "given",
    "GivenRow": "given",
    "PipelineTest": "whole",
    "Results": "functions",
    "record": "given",
    "run_function": "functions",
    "tombstone": "given",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
