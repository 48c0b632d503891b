"""Stories that are told on several versions of Spark: `make test-spark-versions`."""
