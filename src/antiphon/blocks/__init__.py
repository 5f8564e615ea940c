"""Building blocks for replicated services, on the public API alone."""
