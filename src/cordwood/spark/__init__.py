"""Cordwood as a Spark data source and sink."""
