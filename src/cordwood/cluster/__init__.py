"""The metadata of a cluster (leaders, topics, settings): the image, the planner, the controller, the stores."""
