"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine's load, not about the code: property tests never fail on it.
settings.register_profile("cordwood", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("cordwood")
