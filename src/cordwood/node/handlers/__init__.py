"""One file per family of APIs; each handler's versions are declared beside it."""
