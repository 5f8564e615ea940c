"""Chaos for channels: real processes without a server, between which the network goes wrong."""
