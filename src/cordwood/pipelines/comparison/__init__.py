"""Compares two editions of an output: on Spark, or in this process where they are small."""
