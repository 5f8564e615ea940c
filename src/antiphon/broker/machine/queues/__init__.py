"""Queues in the state machine: which messages wait, how they are assigned to consumers, and when
they come again. Pure."""
