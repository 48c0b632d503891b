"""Many pipelines in one Spark: a state machine that decides, a supervisor and a worker process that carry it out."""
