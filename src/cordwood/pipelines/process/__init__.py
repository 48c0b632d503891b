"""The process that carries a pipeline: its supervisor, its work, and how an end of Spark is told."""
