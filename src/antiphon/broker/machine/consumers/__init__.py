"""Consumers in the state machine: how they are opened, acknowledge and close. Pure."""
