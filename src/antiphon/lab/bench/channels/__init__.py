"""Measurements of channels: their speed beside a bare star of peers, and how soon views change."""
