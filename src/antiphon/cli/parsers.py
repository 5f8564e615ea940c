"""The parts of the commands of `antiphon`: parsers with an example, options that several commands
have, and implementations that are imported only when they run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

from antiphon.cli import arguments
from antiphon.terminal.lines import harmless

Handler = Callable[..., int]
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Option = Callable[[argparse.ArgumentParser], None]
"""A function that adds an option to a parser."""


class Parser(argparse.ArgumentParser):
    """Its complaints quote arguments and files. All subcommands are of this class, too."""

    def error(self, message: str) -> NoReturn:
        super().error(harmless(message))


def add_parser(commands: Commands, name: str, text: str, example: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=epilog(example),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_command(
    commands: Commands, name: str, text: str, example: str, handler: Handler, *options: Option
) -> argparse.ArgumentParser:
    parser = add_parser(commands, name, text, example)
    parser.set_defaults(handler=handler)
    add_options(parser, *options)
    return parser


def add_options(parser: argparse.ArgumentParser, *options: Option) -> None:
    for add in options:
        add(parser)


def option(name: str, text: str, default: Any = None, **how: Any) -> Option:
    """Return an option, or a positional argument. Its help ends with its default, if it has one
    that `text` does not mention."""
    if default is not None and "(default" not in text:
        text = f"{text} (default: %(default)s)".lstrip()

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(name, default=default, help=text, **how)

    return add


def flag(name: str, text: str) -> Option:
    """Return an option without a value: False, unless it is given."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(name, action="store_true", help=text)

    return add


def add_group(commands: Commands, name: str, text: str, example: str) -> Commands:
    parser = add_parser(commands, name, text, example)
    return parser.add_subparsers(metavar="COMMAND", required=True)


def implementation(module: str, function: str) -> Handler:
    """Return a handler that imports the module and calls `module.function(args)`."""

    def handler(args: object) -> int:
        run: Handler = getattr(import_module(module), function)
        return run(args)

    return handler


def on_spark(what: str, module: str) -> Handler:
    """Return a handler that calls `module.run(args)`, or says how to install the extra if it
    lacks."""
    run = implementation(module, "run")

    def handler(args: object) -> int:
        require_spark(what)
        return run(args)

    return handler


def require_spark(what: str) -> None:
    from antiphon.spark.session import require

    require(what)


def epilog(line: str) -> str:
    return f"example:\n  {line}"


def add_storage(parser: argparse.ArgumentParser, default: str | None = "durable") -> None:
    parser.add_argument(
        "--storage",
        choices=("durable", "memory"),
        default=default,
        help="whether an entry is stored once synced to disk, or once in memory (default: durable)",
    )


def add_contexts(parser: argparse.ArgumentParser, default: str | None = "replicated") -> None:
    parser.add_argument(
        "--contexts",
        choices=("replicated", "local"),
        default=default,
        help="which servers know how far a subscriber is: all, or its own (default: replicated)",
    )


def add_traces(parser: argparse.ArgumentParser) -> None:
    """Add `--trace` and `--audit`, which runs the audit after the command. Call it after the
    handler is set."""
    parser.add_argument(
        "--trace", type=arguments.path, metavar="DIR", help="keep the delivery traces here"
    )
    parser.add_argument(
        "--audit", action="store_true", help="end with `antiphon audit` of the traces in --trace"
    )
    command: Handler = parser.get_default("handler")

    def then_audit(args: argparse.Namespace) -> int:
        if args.audit and args.trace is None:
            parser.error("--audit needs --trace")
        if not args.audit:
            return command(args)
        require_spark("--audit")  # now, and not when the work is done
        code = command(args)
        return max(code, implementation("antiphon.spark.audit.report", "at_the_end")(args))

    parser.set_defaults(handler=then_audit)


def add_master(parser: argparse.ArgumentParser) -> None:
    """Add `--master`, for commands that start Spark."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master, as Spark names it (default: local[*], all cores of this machine)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which every command has."""
    flag("--json", "end with one JSON object on a line")(parser)


def add_json_lines(parser: argparse.ArgumentParser) -> None:
    """Add `--json` to a command that runs on, or has much to print."""
    flag("--json", "one JSON object a line")(parser)
