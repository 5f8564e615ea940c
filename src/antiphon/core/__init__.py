"""The replicated log and its parts: pure state machines that take inputs and return effects."""
