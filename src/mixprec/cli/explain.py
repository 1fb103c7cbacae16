"""Explain a cause of failure, or what every policy does with an op.

Codes and names of causes come from the catalogue that lint, doctor, monitor and audit share.
"""

from __future__ import annotations

import contextlib
from typing import Any

import click
from rich.console import Console

from mixprec._policy import Decision, known_op
from mixprec._policy.names import KNOWN
from mixprec.causes import Cause, all_causes, find_cause
from mixprec.cli._named_policies import NAMED, named
from mixprec.cli._options import DEVICES, format_option
from mixprec.errors import UnknownNameError
from mixprec.report import json, text

__all__ = ["command"]


@click.command()
@click.argument("what", required=False, metavar="[OP|CODE]")
@format_option()
def command(what: str | None, output: str) -> None:
    """Explain a cause by code or name, or an op by name; without argument, list the causes.

    Examples: mixprec explain MP002; mixprec explain clip-before-unscale; mixprec explain softmax
    """
    subject = None if what is None else _subject(what)
    if output == "json":
        click.echo(json.document(**_document(subject)))
    elif subject is None:
        _print_causes()
    elif isinstance(subject, Cause):
        _print_cause(subject)
    else:
        _print_op(subject)


def _subject(what: str) -> Cause | str:
    """The cause or the op that `what` names. Raises `UnknownNameError` with the closest of both."""
    for find in (find_cause, known_op):
        with contextlib.suppress(UnknownNameError):
            return find(what)
    names = [name for cause in all_causes() for name in (cause.code, cause.name)]
    raise UnknownNameError("op or cause", what, [*names, *KNOWN], "`mixprec explain` lists the causes.")


def _document(subject: Cause | str | None) -> dict[str, Any]:
    if subject is None:
        return {"kind": "causes", "causes": all_causes()}
    if isinstance(subject, Cause):
        return {"kind": "cause", "cause": subject}
    return {"kind": "op", "op": subject, "decisions": _decisions(subject)}


def _decisions(op: str) -> list[dict[str, Any]]:
    """What every named policy decides about `op` on every device."""
    return [
        {"policy": name, "device": device, **json.plain(named(name, device).explain(op))}
        for name in NAMED
        for device in DEVICES
    ]


def _print_causes() -> None:
    rows = [(cause.code, cause.name, cause.title) for cause in all_causes()]
    text.console().print(text.table(("code", "name", "what goes wrong"), rows))


def _print_cause(cause: Cause) -> None:
    screen = text.console()
    screen.print(f"{cause.code} {cause.name}", style="bold")
    screen.print(cause.title)
    screen.print()
    screen.print(
        text.pairs(
            [
                ("symptom", cause.symptom),
                ("evidence", cause.evidence),
                ("fix", cause.fix),
                ("seen by", ", ".join(where.value for where in cause.where)),
                ("PyTorch", {"silent": "says nothing", "warns": "warns", "raises": "raises an error"}[cause.raises]),
                *([("look-alikes", _related(cause))] if cause.related else []),
            ]
        )
    )
    text.links(screen, cause.sources)


def _related(cause: Cause) -> str:
    names = {other.code: other.name for other in all_causes()}
    return ", ".join(f"{code} {names.get(code, '')}".strip() for code in cause.related)


def _print_op(op: str) -> None:
    screen = text.console()
    decisions = {(name, device): named(name, device).explain(op) for name in NAMED for device in DEVICES}
    screen.print(op, style="bold")
    rows = [(name, *(decisions[name, device].rule.value for device in DEVICES)) for name in NAMED]
    screen.print(text.table(("policy", *DEVICES), rows))
    _print_reasons(screen, decisions)


def _print_reasons(screen: Console, decisions: dict[tuple[str, str], Decision]) -> None:
    """Each distinct reason once, with the policies and devices that it holds for."""
    by_reason: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for where, decision in decisions.items():
        by_reason.setdefault((decision.rule.value, decision.reason, decision.source), []).append(where)
    for (rule, reason, source), places in by_reason.items():
        screen.print()
        screen.print(f"{rule} in {_places(places)}: {reason}")
        text.links(screen, [source] if source else [])
    replacements = {decision.replacement for decision in decisions.values() if decision.replacement}
    for replacement in sorted(replacements):
        screen.print(f"Write instead: {replacement}")


def _places(places: list[tuple[str, str]]) -> str:
    """`torch (cpu, cuda), uniform`: devices are named where a policy has the reason on some only."""
    parts = []
    for name in NAMED:
        devices = [device for policy, device in places if policy == name]
        if devices:
            parts.append(name if len(devices) == len(DEVICES) else f"{name} ({', '.join(devices)})")
    return ", ".join(parts)
