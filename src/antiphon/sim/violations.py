"""The error that ends a simulation with a finding."""


class ViolationError(Exception):
    """A promise was broken: by the simulated servers, their clients, or a user's service. Judges
    raise it, and the runner of a seed catches it."""
