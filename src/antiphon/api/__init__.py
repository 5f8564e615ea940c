"""The API that programs import: contexts, producers and consumers, blocking and with asyncio.

`face` has each public call with its promise, `operations` the work of both fronts but for waiting,
`waiting` the two ways to wait; `sync.py` and `aio.py` are the fronts. `protocol` is the client's
side of the protocol, `messages` has messages and destinations as values, `classic` is the API of
JMS 1.1. `src/antiphon/__init__.py` lists the public names.
"""
