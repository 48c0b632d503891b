"""The name of a query, taken from Spark's description of its jobs."""

import pytest

from cordwood.spark.workers.state import query_name

ID = "501171b8-268a-46e4-a126-71daf343ddc1"


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (f"orders\nid = {ID}\nrunId = e59854cc\nbatch = 0", "orders"),
        (f"my query\nid = {ID}\nrunId = e59854cc\nbatch = init", "my query"),
        (f"orders<br/>id = {ID}<br/>runId = e59854cc<br/>batch = 7", "orders"),
        (f"\nid = {ID}\nrunId = e59854cc\nbatch = 0", None),
        ("a description of the user's own", None),
        ("", None),
    ],
)
def test_the_name_of_a_query(description: str, name: str | None) -> None:
    assert query_name(description, ID) == name
