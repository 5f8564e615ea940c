"""Layers that add something to what programs see of a view; the rule of this room is that of
`peers.layers`."""
