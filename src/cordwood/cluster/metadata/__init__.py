"""The cluster's metadata as values: rows of the store, the image that a broker has of them, and their versions."""
