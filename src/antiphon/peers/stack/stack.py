"""A stack as a value: which layers, with which settings, in which order."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from antiphon.errors import ConfigurationError
from antiphon.peers.layers.layer import Layer


class Stack:
    """Layers in their order, the one next to the network first.

    Promise: it can be printed and compared; two processes whose stacks have the same `digest` can
    talk. Raise `ConfigurationError` if a layer needs a promise that none below it gives, or if a
    layer is there twice. The layers given here are settings only: each run has fresh ones
    (`fresh`).
    """

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers
        _check(layers)

    def fresh(self) -> tuple[Layer, ...]:
        """Return layers with these settings that have not run yet."""
        return tuple(layer.fresh() for layer in self.layers)

    @property
    def gives(self) -> frozenset[str]:
        """The promises of all layers, by name, on which a program may rely."""
        return frozenset().union(*(layer.gives for layer in self.layers))

    @property
    def digest(self) -> int:
        """A number that is the same for equal stacks, in every process. Layers that are `local`,
        such as those for debugging, make no difference."""
        return crc32c(" / ".join(_text(each) for each in self.layers if not each.local).encode())

    def __str__(self) -> str:
        return " / ".join(_text(layer) for layer in reversed(self.layers))

    def __repr__(self) -> str:
        return f"<Stack {self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stack) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _text(layer: Layer) -> str:
    options = ", ".join(f"{key}={value!r}" for key, value in sorted(layer.options().items()))
    return f"{layer.name}({options})" if options else layer.name


def _check(layers: Sequence[Layer]) -> None:
    given: set[str] = set()
    names: set[str] = set()
    tags: dict[str, str] = {}
    for layer in layers:
        if not isinstance(layer, Layer):
            raise TypeError(f"a stack is made of layers, and {layer!r} is none")
        if layer.name in names:
            raise ConfigurationError(f"the layer {layer.name} is in the stack twice")
        missing = layer.needs - given
        if missing:
            raise ConfigurationError(
                f"the layer {layer.name} needs {' and '.join(sorted(missing))}, which no layer "
                f"below it gives; below it: {', '.join(names_of(layers, layer)) or 'nothing'}"
            )
        for header in layer.headers:
            if header.__name__ in tags:
                raise ConfigurationError(
                    f"the layers {tags[header.__name__]} and {layer.name} both have headers "
                    f"named {header.__name__}"
                )
            tags[header.__name__] = layer.name
        names.add(layer.name)
        given |= layer.gives


def names_of(layers: Sequence[Layer], above: Layer) -> list[str]:
    return [layer.name for layer in layers[: layers.index(above)]]
