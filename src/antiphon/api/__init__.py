"""The API that programs import: contexts, producers and consumers, blocking and with asyncio.

`face` says what each public call promises, `operations` has what both fronts do but for waiting,
`waiting` has how each of them waits; `sync.py` and `aio.py` are the fronts. `protocol` is the
client's side of the protocol, `messages` has messages and destinations as values, `classic` is the
API of JMS 1.1. `src/antiphon/__init__.py` lists the public names.
"""
