"""Signatures as `help()` and `inspect.signature` show them, where the written ones say less.

Nothing here changes how a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def spelled_out(options: type, defaults: Mapping[str, object]) -> Callable[[Function], Function]:
    """Show `**options: Unpack[...]` as the keywords that it stands for: with the types that this
    `TypedDict` gives them, and these defaults."""
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=written(kind))
        for name, kind in options.__annotations__.items()
    ]

    def spell_out(function: Function) -> Function:
        found = signature(function)
        others = [p for p in found.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        function.__signature__ = found.replace(parameters=[*others, *keywords])  # type: ignore[attr-defined]
        return function

    return spell_out


def written(annotation: Any) -> Any:
    """Return an annotation of a `TypedDict` as its source has it."""
    return getattr(annotation, "__forward_arg__", annotation)


def made_by(calls: str) -> Callable[[Function], Function]:
    """Show a constructor without its arguments, which programs do not have, and name in its
    docstring the calls that construct such objects for them."""

    def hide(constructor: Function) -> Function:
        constructor.__doc__ = f"Not for programs, which get such an object from {calls}."
        constructor.__signature__ = NO_ARGUMENTS  # type: ignore[attr-defined]
        return constructor

    return hide


NO_ARGUMENTS = Signature([Parameter("self", Parameter.POSITIONAL_ONLY)])
