"""Simulated channels: peer stacks, their network and their programs, from one seed."""
