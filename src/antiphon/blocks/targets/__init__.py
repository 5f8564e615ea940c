"""Servers that replicated services call: their promises, PostgreSQL, HTTP."""
