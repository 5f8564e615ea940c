"""Channels: processes that run the protocols of a group themselves, without a server."""
