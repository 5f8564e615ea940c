"""Experiments, each a command `antiphon experiment NAME`: what the literature measured, measured
here, with the published values beside ours."""
