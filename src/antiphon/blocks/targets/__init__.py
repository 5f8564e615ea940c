"""Servers that replicated services call: what they promise, PostgreSQL, HTTP."""
