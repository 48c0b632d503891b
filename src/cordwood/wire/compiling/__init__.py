"""Functions that read and write messages, compiled from schemas."""
