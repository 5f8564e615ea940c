"""Toolkits: the interfaces of group communication systems that programmers may know, one a module,
as thin faces over channels of peers and building blocks.

Rule of this room: a toolkit uses what programs may use (`antiphon`, `antiphon.peers`,
`antiphon.blocks`) and keeps no promise by itself that these do not keep. Its docstring tells what
the original promised, what maps to what, and what is left out; names of the original that a toolkit
does not have are in its `LEFT_OUT`, with the reason. `docs/coming-from.md` compares the words.
"""
