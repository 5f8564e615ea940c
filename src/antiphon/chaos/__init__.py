"""`antiphon chaos`: real servers and programs, real signals, faulty links, and a judge.

A plan drawn from a seed says what breaks when (`plan.py`). Servers reach each other, and programs
reach servers, through links that can stall, cut and delay (`links.py`). Programs (`program.py`)
write traces of what they sent and received, which outlive `kill -9`. `run.py` breaks things, then
mends everything; `judge.py` compares the traces with what was promised. Some of the programs are
members of a group (`member.py`), whose traces must keep to its specification; some move coins
between accounts, in transactions (`teller.py`).
"""
