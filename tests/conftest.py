"""Settings that every test shares."""

from hypothesis import settings

# No deadline: on a busy machine a slow example says nothing about the code. Derandomized: a test
# that failed fails again.
settings.register_profile("antiphon", deadline=None, derandomize=True)
settings.load_profile("antiphon")
