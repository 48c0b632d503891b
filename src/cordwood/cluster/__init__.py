"""The metadata of a cluster (leaders, topics, settings): the image and its follower, the planner, the metadata writer,
the stores."""
