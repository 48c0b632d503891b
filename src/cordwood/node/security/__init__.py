"""Who asks: the authentications of connections, and the checks of passwords."""
