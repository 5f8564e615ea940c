"""Simulated servers inside processes (`peer:`): their logs, over simulated channels."""
