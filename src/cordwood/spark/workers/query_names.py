"""The name of a streaming query, as its tasks learn it from Spark. Imports little: every task of a write imports
this."""


def query_name(description: str, query_id: str) -> str | None:
    """The name in the description that Spark gives to the jobs of a stream; None if the query has none."""
    name, found, _ = description.partition(f"id = {query_id}")
    name = name.replace("<br/>", "\n").strip()
    return name if found and name else None


def query_name_of_task() -> str | None:
    """The name of the streaming query that this task works for, also in its foreachBatch; None outside of one."""
    from pyspark import TaskContext  # imported here, because names are looked up without Spark, too

    context = TaskContext.get()
    if context is None:
        return None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    description = context.getLocalProperty("spark.job.description")
    return None if query_id is None or description is None else query_name(description, query_id)
