"""The words of the domain: identifiers, error codes, limits, configuration. Imports nothing of ours."""
