"""A query's checkpoint on this machine: what it says, made durable, compared with what was decided, and repaired.

Spark writes it and never syncs it: after a power cut files of it may be gone, empty or older than what the query's
outputs hold. What is here knows the layout of a checkpoint, and nothing of sinks:

    metadata            {"id": "…"}: the query's id
    offsets/<batch>     the plan of a batch: a version line, Spark's settings, then a line for each source
    commits/<batch>     there once the batch is done
    sources/, state/    what sources and stateful operators keep
"""
