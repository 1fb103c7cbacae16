"""Show which dtype a policy runs each op in.

The same table that `mixprec.autocast` compiles, for a device that need not be present.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from mixprec._policy import CastRule, Decision, Policy
from mixprec.cli._named_policies import NAMED, SUMMARY, named
from mixprec.cli._options import device_option, format_option
from mixprec.report import json, text

__all__ = ["command"]

MEANING: Mapping[CastRule, str] = {
    CastRule.LOW: "inputs are cast to the region's 16-bit dtype",
    CastRule.FP32: "inputs are cast to float32",
    CastRule.FP32_OUT: "inputs stay as they are, the result is float32",
    CastRule.WIDEST: "inputs are cast to the widest dtype among them",
    CastRule.KEEP: "nothing is cast",
    CastRule.BANNED: "the call raises an error that says what to write instead",
}


@click.command()
@click.argument("name", required=False)
@device_option()
@format_option()
def command(name: str | None, device: str, output: str) -> None:
    """List the policies, or show what policy NAME does with every op on a device."""
    if name is None:
        _show_names(output)
        return
    policy = named(name, device)
    decisions = [policy.explain(op) for op in policy.ops]
    if output == "json":
        click.echo(json.document(policy=name, device=device, text=str(policy), ops=decisions))
    else:
        _print_ops(name, device, policy, decisions)


def _show_names(output: str) -> None:
    if output == "json":
        click.echo(json.document(policies=[{"name": name, "summary": SUMMARY[name]} for name in NAMED]))
        return
    screen = text.console()
    screen.print(text.pairs(list(SUMMARY.items())))
    screen.print("`mixprec policy NAME --device cpu|cuda|mps|xpu` lists the ops of one.")


def _print_ops(name: str, device: str, policy: Policy, decisions: list[Decision]) -> None:
    screen = text.console()
    screen.print(f"{name} on {device}: {SUMMARY[name]}", style="bold")
    for rule in CastRule:
        ops = sorted(decision.op for decision in decisions if decision.rule is rule)
        if ops:
            screen.print()
            screen.print(f"{rule.value} ({len(ops)}): {MEANING[rule]}", style="bold")
            screen.print(text.indented(" ".join(ops)))
    for line in policy.module_rules:
        screen.print(f"  in {line.where}: {line.op or 'every op'} {line.rule.value}")
    screen.print()
    screen.print("Every other op keeps its inputs' dtypes. `mixprec explain OP` says why an op has its rule.")
