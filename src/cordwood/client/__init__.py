"""The raw Kafka client: batches in and out, for Spark and for followers. Calls block, in one thread, without record
objects."""
