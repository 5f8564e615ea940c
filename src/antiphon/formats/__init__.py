"""Bytes to values and back: packs, log entries, journal records, wire frames, traces. Pure."""
