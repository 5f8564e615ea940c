"""A stack as a value, and a running one, which carries out the effects of layers. Pure."""
