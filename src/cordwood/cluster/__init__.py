"""Who leads, what topics exist and how they are configured: the image, the planner, the controller, the stores."""
