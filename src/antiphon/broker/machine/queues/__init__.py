"""Queues in the state machine: what waits, whose turn it is, what comes again. Pure."""
