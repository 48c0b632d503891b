"""Clients that write their own history: `confluent` has those of confluent-kafka, `aiokafka` those of aiokafka."""
