"""Settings that every test shares."""

import signal

from hypothesis import settings

# No deadline: on a busy machine a slow example says nothing about the code. Derandomized: a test
# that failed fails again.
settings.register_profile("antiphon", deadline=None, derandomize=True)
settings.load_profile("antiphon")

# Who runs the tests in the background ignores interrupts, and so would every program that the
# tests start, and that is to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
