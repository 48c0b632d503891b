"""The name of a streaming query, out of what Spark tells its tasks. Light: every task of a write imports this."""


def query_name(description: str, query_id: str) -> str | None:
    """The name in the description that Spark gives to the jobs of a stream; None if the query has none."""
    name, found, _ = description.partition(f"id = {query_id}")
    name = name.replace("<br/>", "\n").strip()
    return name if found and name else None
