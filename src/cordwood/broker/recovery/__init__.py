"""Repairs the metadata of a stopped broker, and puts back partitions that a start set aside."""
