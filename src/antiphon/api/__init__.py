"""What programs use: contexts, producers and consumers, blocking and with asyncio.

`antiphon/__init__.py` lists the public names.
"""
