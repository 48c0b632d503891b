"""The raw Kafka client: batches in and out, for Spark and for followers. Blocking, one thread, no record objects."""
