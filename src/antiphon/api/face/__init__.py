"""The public face of both fronts: every call with its promise, written down once.

`api/sync.py` and `api/aio.py` inherit these classes and say only how they wait.
"""
