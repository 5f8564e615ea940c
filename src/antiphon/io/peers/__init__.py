"""Connections between the processes of a channel."""
