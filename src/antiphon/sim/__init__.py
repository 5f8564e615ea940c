"""Whole clusters in one thread, from one seed: the same core and journal over simulated faults."""
