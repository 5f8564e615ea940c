"""The layers of a peer stack: each keeps one promise, and can be replaced alone. Pure.

`total.py` gives messages their places in one order; `uniform.py` and `safe.py` decide when they may
be handed out; `causal.py` and `fifo.py` keep the orders of senders; `reliable.py` repairs losses.
"""
