"""The raw Kafka client: batches in and out for Spark, and questions to single brokers. Calls block, in one thread,
without record objects."""
