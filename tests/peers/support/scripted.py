"""A stand-in for Membership."""

from antiphon.peers.layers.layer import Layer


class Scripted(Layer):
    """Claims that views are agreed on: a test has them installed (`Group.install`)."""

    name = "scripted"
    gives = frozenset({"views"})
