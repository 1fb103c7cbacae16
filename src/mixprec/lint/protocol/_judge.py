"""What is wrong with an event, given where a path stands: every fault is found here."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from mixprec.lint.protocol._conditions import Formula, decide
from mixprec.lint.protocol._ledger import Context as Where
from mixprec.lint.protocol._ledger import Fault, Ledger
from mixprec.lint.protocol._path import EVERY, Gradients, Loops, Part, Path, Protocol, Stage
from mixprec.lint.protocol._values import Context, Optimizer, Region, Scaler

__all__ = ["Judge"]


class Judge:
    """Reads paths and names faults; moves nothing but what it meets for the first time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.where: Where = ()
        self.several = False
        self.site: ast.AST | None = None
        self.sites: dict[ast.AST, ast.AST] = {}

    def _sign(self, path: Path, node: ast.AST, faults: list[Fault]) -> None:
        self.ledger.sign(node, (self.where, path.loops), path.literals, faults)

    def enabled(self, path: Path, scaler: Scaler) -> bool | None:
        """Whether `scaler` is enabled on `path`; None where that is open."""
        return decide(scaler.enabled, path.literals)

    def meet(self, path: Path, scaler: Scaler) -> Protocol:
        """Where `scaler` stands; one that was not made on this path may have been used before."""
        if scaler.key not in path.scalers:
            path.scalers[scaler.key] = Protocol(unknown=True, scaled=True)
        path.known_scalers[scaler.key] = scaler
        return path.scalers[scaler.key]

    def know(self, path: Path, optimizer: Optimizer) -> Gradients:
        """The gradients of `optimizer`; those of one from outside may hold what was not seen."""
        path.optimizers[optimizer.key] = optimizer
        if optimizer.key not in path.gradients:
            path.gradients[optimizer.key] = replace(path.gradients[EVERY], unknown=True)
        return path.gradients[optimizer.key]

    def _live(self, path: Path, part: Part) -> bool:
        """Whether `part` carries the scale of a scaler that may be enabled on `path`."""
        scaler = path.known_scalers.get(part.scaler or "")
        return scaler is not None and self.enabled(path, scaler) is not False

    def _scaled(self, path: Path, gradients: Gradients) -> list[Part]:
        return [part for part in gradients.scaled if self._live(path, part)]

    def _condition(self, path: Path, parts: Iterable[Part]) -> Formula | None:
        """Under which condition `parts` are scaled, where that is open."""
        for part in parts:
            scaler = path.known_scalers.get(part.scaler or "")
            if scaler is not None and self.enabled(path, scaler) is None:
                return scaler.enabled
        return None

    def _open(self, path: Path, scaler: Scaler) -> Formula | None:
        return scaler.enabled if self.enabled(path, scaler) is None else None

    @staticmethod
    def region(path: Path) -> Region | None:
        """The autocast region that rules on `path`: the innermost, if it may be enabled."""
        for context in reversed(path.contexts):
            if isinstance(context, Region):
                return None if decide(context.enabled, path.literals) is False else context
        return None

    @staticmethod
    def without_gradients(path: Path) -> bool:
        """Whether nothing here is recorded for backward."""
        return any(isinstance(context, Context) and context.kind == "no_grad" for context in path.contexts)

    def _single(self, path: Path) -> bool:
        return not self.several and len(path.optimizers) <= 1

    def _on_unscaled(self, path: Path, optimizer: str, part: Part) -> list[Fault]:
        """A scaled backward onto gradients that were unscaled already."""
        if part.scaler is None or not self._single(path) or not self._live(path, part):
            return []
        stage = path.scalers[part.scaler].stage(optimizer)
        if stage is None or stage.name != "unscaled" or stage.cleared or stage.halved:
            return []
        scaler = path.known_scalers[part.scaler]
        return [Fault("unscaled-every-batch", stage.node, enabled=self._open(path, scaler), others=(part.node,))]

    def _unscaled_again(self, path: Path, scaler: Scaler, stage: Stage, call: ast.Call) -> Fault:
        enabled = self._open(path, scaler)
        if stage.halved:
            return Fault("sam-unscaled-twice", call, enabled=enabled, others=(stage.node,))
        if stage.loops == path.loops:
            return Fault("unscaled-twice", call, enabled=enabled, others=(stage.node,))
        kind = "left-unscaled" if stage.cleared else "unscaled-every-batch"
        return Fault(kind, stage.node, enabled=enabled, others=(call,))

    def _fault(self, path: Path, kind: str, anchor: ast.AST, scaler: Scaler, optimizer: Optimizer) -> Fault:
        outside = scaler.made is None and scaler.function is not None
        return Fault(kind, anchor, enabled=self._open(path, scaler), outside=outside or optimizer.outside)

    def _first_use(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> list[Fault]:
        """A scaler that never scaled anything has nothing to unscale or step."""
        protocol = path.scalers[scaler.key]
        gradients = path.gradients[optimizer.key]
        if protocol.scaled or protocol.unknown or gradients.unknown:
            return []
        plain = [part for part in gradients.fresh if part.scaler is None]
        if any(part.unsure for part in plain):
            return []
        if plain:
            return [self._fault(path, "plain-backward", part.node, scaler, optimizer) for part in plain]
        asked = (one.atom for one in path.literals.values() if one.atom.volatile)
        if gradients.fresh or any(atom.asked_in(self.where, path.loops) for atom in asked):
            return []
        return [self._fault(path, "nothing-scaled", call, scaler, optimizer)]

    def _consumed(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> list[Fault]:
        """What is wrong with the gradients that `scaler` is about to unscale."""
        gradients = path.gradients[optimizer.key]
        fresh = gradients.fresh
        own = [part for part in fresh if part.scaler == scaler.key]
        faults: list[Fault] = []
        if not gradients.unknown and not any(part.unsure for part in fresh):
            faults += self._not_scaled(path, scaler, optimizer, call, fresh, own)
        old = [part for part in own if part.old]
        if old and (len(old) == len(own) or self._single(path)):
            faults.append(self._old_scale(path, scaler, optimizer, call))
        return faults

    def _not_scaled(
        self,
        path: Path,
        scaler: Scaler,
        optimizer: Optimizer,
        call: ast.Call,
        fresh: frozenset[Part],
        own: list[Part],
    ) -> list[Fault]:
        plain = [part for part in fresh if part.scaler is None]
        others = [part for part in fresh if part.scaler not in (None, scaler.key) and self._live(path, part)]
        if plain and not others and (not own or self._single(path)):
            kind = "plain-backward-too" if own else "plain-backward"
            return [self._fault(path, kind, part.node, scaler, optimizer) for part in plain]
        if others and not own and not plain:
            other = path.known_scalers[others[0].scaler or ""]
            if (other.made is None) == (scaler.made is None) and not (other.picked or scaler.picked):
                return [self._fault(path, "two-scalers", call, scaler, optimizer)]
        return []

    def _old_scale(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.AST) -> Fault:
        update = path.scalers[scaler.key].updated
        assert update is not None
        between = any(key != optimizer.key for key in path.scalers[scaler.key].settled)
        kind = "update-between-steps" if between else "update-in-window"
        return replace(self._fault(path, kind, update, scaler, optimizer), others=(call,))

    def _clipped(self, path: Path, params: str | None, how: str) -> list[str]:
        """Whose gradients are clipped: those of the optimizer that owns the parameters, else all that wait."""
        if not path.optimizers:
            return [EVERY]
        owners = [k for k, o in path.optimizers.items() if params is None or o.params is None or o.params == params]
        chosen = owners or list(path.optimizers)
        if len(chosen) > 1 and how == "clipped":
            return [key for key in chosen if path.gradients[key].fresh or path.gradients[key].unknown]
        return chosen

    def _any_unscaled(self, path: Path, keys: list[str]) -> bool:
        stages = [protocol.stage(key) for protocol in path.scalers.values() for key in keys]
        return any(stage is not None and stage.name == "unscaled" for stage in stages)

    def _double_step(self, path: Path, optimizer: Optimizer, call: ast.Call) -> list[Fault]:
        for key, protocol in path.scalers.items():
            stage = protocol.stage(optimizer.key)
            scaler = path.known_scalers[key]
            if stage is None or stage.name != "stepped" or stage.loops != path.loops:
                continue
            if self.enabled(path, scaler) is not False and not path.gradients[optimizer.key].fresh:
                return [Fault("step-twice", call, enabled=self._open(path, scaler), others=(stage.node,))]
        return []

    def _without_scaler(self, path: Path, gradients: Gradients) -> list[Fault]:
        """Gradients of a loss from a float16 region, never scaled."""
        regions = {part.region for part in gradients.fresh if part.scaler is None and not part.unsure}
        faults = []
        for region in regions:
            if region is None or region.dtype != "float16" or decide(region.enabled, path.literals) is False:
                continue
            if region.node is not None and len(regions) == 1 and not gradients.unknown:
                condition = region.enabled if decide(region.enabled, path.literals) is None else None
                kind = "fp16-without-scaler" if region.explicit else "default-fp16-without-scaler"
                kind = "chosen-fp16-without-scaler" if region.chosen else kind
                faults.append(Fault(kind, region.node, enabled=condition))
        return faults

    def _empty(self, path: Path, gradients: Gradients, call: ast.AST) -> list[Fault]:
        """A step without gradients: they were cleared too early, or there was no backward."""
        if gradients.fresh or gradients.unknown or gradients.cleared is None or not self._single(path):
            return []
        if not self._mixed(path, replace(gradients, parts=gradients.parts | gradients.dropped)):
            return []
        if gradients.dropped and not any(part.unsure for part in gradients.dropped):
            return [Fault("cleared-before-step", gradients.cleared, others=(call,))]
        return [Fault("no-gradient", call)] if path.loops and not gradients.parts else []

    def _stale(self, path: Path, gradients: Gradients, call: ast.AST) -> list[Fault]:
        """Gradients of an earlier iteration are used: a step has consumed them, or they were left behind."""
        here = _innermost(path.loops)
        before = [part for part in gradients.parts if _innermost(part.loops) == here and part.loops != path.loops]
        if not gradients.fresh or not self._mixed(path, gradients):
            return []
        outside = all(optimizer.outside for optimizer in path.optimizers.values())
        faults: list[Fault] = []
        if any(part.used is not None and _innermost(part.loops) == here for part in gradients.parts):
            adding = min((part.node for part in gradients.fresh), key=lambda node: getattr(node, "lineno", 0))
            faults.append(Fault("stale-gradients", adding, others=(call,), outside=outside))
        elif self._single(path) and any(part.used is None and not part.unsure for part in before):
            faults.append(Fault("left-behind", call, outside=outside))
        return faults

    def _mixed(self, path: Path, gradients: Gradients) -> bool:
        """Whether mixed precision is at work here at all."""
        return bool(path.known_scalers) or any(part.region is not None for part in gradients.parts)

    def _between(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.AST) -> list[Fault]:
        """An update between the steps of two optimizers in one iteration."""
        own = [entry for entry in path.log if entry.loops == path.loops and entry.scaler == scaler.key]
        stepped = [n for n, entry in enumerate(own) if entry.kind == "step" and entry.subject != optimizer.key]
        for place, entry in enumerate(own):
            if entry.kind == "update" and stepped and stepped[0] < place:
                spent = path.scalers[scaler.key].spent and entry.node is path.scalers[scaler.key].updated
                kind = "update-between-steps" if spent else "update-before-second-step"
                fault = self._fault(path, kind, entry.node, scaler, optimizer)
                return [replace(fault, others=(call,))]
        return []

    def _updated_again(self, path: Path, scaler: Scaler, call: ast.AST) -> list[Fault]:
        """Updates of this iteration that came before a step which this one follows: each step has an update."""
        own = [entry for entry in path.log if entry.loops == path.loops and entry.scaler == scaler.key]
        steps = [place for place, entry in enumerate(own) if entry.kind == "step"]
        if len({own[place].subject for place in steps}) < 2:
            return []
        return [
            Fault("updated-again", entry.node, others=(call,))
            for place, entry in enumerate(own)
            if entry.kind == "update" and steps[0] < place < steps[-1]
        ]

    def _twice_owned(self, path: Path, scaler: Scaler, optimizer: Optimizer) -> list[Fault]:
        """Parameters that another optimizer has too, whose gradients this scaler has just unscaled for that one."""
        mine = {(p.node, p.loops) for p in path.gradients[optimizer.key].fresh if p.scaler == scaler.key}
        for key, stage in path.scalers[scaler.key].stages:
            other = path.optimizers.get(key)
            if other is None or other.key == optimizer.key or stage.cleared:
                continue
            parts = path.gradients[key].parts
            theirs = {(p.node, p.loops) for p in parts if p.scaler == scaler.key and p.unscaled}
            shared = sorted(text for text, _ in other.owned & optimizer.owned)
            if shared and mine & theirs and optimizer.made is not None and other.made is not None:
                fault = self._fault(path, "parameter-twice", optimizer.made, scaler, optimizer)
                return [replace(fault, names=(("shared", shared[0]),), others=(other.made,))]
        return []

    def _beside(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> list[Fault]:
        """What is wrong with the scaler itself, or with where the step stands."""
        return [*self._around_step(path, optimizer, call), *self._misplaced(path, scaler, optimizer)]

    def _misplaced(self, path: Path, scaler: Scaler, optimizer: Optimizer) -> list[Fault]:
        """A scaler that is made anew for an optimizer that outlives it, or has nothing to do."""
        faults: list[Fault] = []
        outlives = len(scaler.loops) > len(optimizer.loops) and scaler.loops[: len(optimizer.loops)] == optimizer.loops
        if scaler.made is not None and outlives and any(i for _, i in scaler.loops[len(optimizer.loops) :]):
            faults.append(self._fault(path, "scaler-recreated", scaler.made, scaler, optimizer))
        elif scaler.made is not None and optimizer.outside and scaler.function is not None:
            faults.append(self._fault(path, "scaler-made-in-function", scaler.made, scaler, optimizer))
        regions = {part.region for part in path.gradients[optimizer.key].fresh if part.scaler == scaler.key}
        dtypes = {None if region is None else region.dtype for region in regions}
        if dtypes == {"bfloat16"} and scaler.made is not None:
            nodes = tuple(node for region in regions if region is not None for node in _nodes(region.node))
            fault = self._fault(path, "bf16-scaler", scaler.made, scaler, optimizer)
            faults.append(replace(fault, others=nodes))
        return faults

    def _around_step(self, path: Path, optimizer: Optimizer, call: ast.AST) -> list[Fault]:
        faults: list[Fault] = []
        region = self.region(path)
        if region is not None:
            condition = region.enabled if decide(region.enabled, path.literals) is None else None
            faults.append(Fault("step-in-region", call, enabled=condition, others=_nodes(region.node)))
        early: ast.AST | None = None
        for entry in path.log:
            if entry.loops != path.loops:
                continue
            if entry.kind == "schedule" and entry.subject == optimizer.key:
                early = early or entry.node
            elif entry.kind == "step" and entry.subject == optimizer.key and early is None:
                return faults
        if early is not None and path.loops and self._mixed(path, path.gradients[optimizer.key]):
            faults.append(Fault("schedule-before-step", early, others=(call,)))
        return faults


def _innermost(loops: Loops) -> int:
    """The innermost loop of `loops` that still runs; 0 where there is none."""
    return next((loop for loop, _ in reversed(loops) if loop), 0)


def _nodes(node: ast.AST | None) -> tuple[ast.AST, ...]:
    return () if node is None else (node,)
