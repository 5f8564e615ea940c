"""Settings that every test shares."""

from hypothesis import settings

# No deadline: on a busy machine a slow example says nothing about the code.
settings.register_profile("antiphon", deadline=None)
settings.load_profile("antiphon")
