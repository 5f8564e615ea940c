"""Simulated servers, disks and networks, one event at a time."""
