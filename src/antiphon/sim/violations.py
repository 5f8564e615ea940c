"""The error with which a simulation ends that has found something."""


class ViolationError(Exception):
    """A promise was broken: by the simulated servers, their clients, or a user's service. It is
    raised by judges and caught by whoever runs a seed."""
