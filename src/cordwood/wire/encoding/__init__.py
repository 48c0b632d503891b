"""The language of messages: primitives, schemas, and functions compiled from a schema that read and write it."""
