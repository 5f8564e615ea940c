"""The judges of a simulated run, which check every step."""
