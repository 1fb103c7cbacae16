"""The scaler protocol as a state machine: each call moves a path on and names what it breaks.

Per scaler and optimizer: ready, unscaled, stepped; per optimizer: whose scale its gradients carry. After a fault the
machine goes on as if the call had been right, so that one mistake is named once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from mixprec.lint.protocol._conditions import Formula, decide
from mixprec.lint.protocol._ledger import Context as Where
from mixprec.lint.protocol._ledger import Fault, Ledger
from mixprec.lint.protocol._path import EVERY, Gradients, Happening, Loops, Part, Path, Protocol, Stage
from mixprec.lint.protocol._values import Context, Mark, Opaque, Optimizer, Region, Scaler, Scheduler

__all__ = ["Machine"]


class Machine:
    """Moves paths through the protocol and signs the ledger.

    `where` are the calls that led to the code that runs, `site` the last of them in the file itself while the code of
    another one runs. `sites` keeps it for every call there. `several`: there are several optimizers.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.where: Where = ()
        self.several = False
        self.site: ast.AST | None = None
        self.sites: dict[ast.AST, ast.AST] = {}

    # --- what stands where

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

    def create(self, path: Path, optimizer: Optimizer) -> None:
        """`optimizer` is made here: nothing has been added to its gradients."""
        path.gradients[optimizer.key] = Gradients()

    def create_scaler(self, path: Path, scaler: Scaler) -> None:
        """`scaler` is made here: it has scaled nothing."""
        path.scalers[scaler.key] = Protocol()
        path.known_scalers[scaler.key] = scaler

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

    # --- forward and backward

    def scale(self, path: Path, scaler: Scaler, value: Opaque) -> Opaque:
        """`scaler.scale(value)`."""
        protocol = self.meet(path, scaler)
        if self.enabled(path, scaler) is False:
            return value
        path.scalers[scaler.key] = replace(protocol, scaled=True)
        return replace(value, key=f"{value.key}*{scaler.key}", mark=Mark(scaler.key, protocol.version), outside=False)

    def backward(self, path: Path, value: Opaque, call: ast.Call) -> None:
        """`value.backward()`."""
        faults: list[Fault] = []
        region = self.region(path)
        if region is not None:
            condition = region.enabled if decide(region.enabled, path.literals) is None else None
            faults.append(Fault("backward-in-region", call, enabled=condition, others=_nodes(region.node)))
        if value.cut is not None:
            faults.append(Fault("detached", call, (("how", value.cut),)))
        part = Part(
            call,
            None if value.mark is None else value.mark.scaler,
            unsure=value.mark is None and (value.unsure or value.outside),
            shared=not self._single(path),
            region=value.region,
            loops=path.loops,
        )
        for key, gradients in path.gradients.items():
            faults += self._on_unscaled(path, key, part)
            path.gradients[key] = replace(
                gradients, parts=gradients.parts | {part}, dropped=frozenset(), unknown=gradients.unknown
            )
        self._sign(path, call, faults)

    def _on_unscaled(self, path: Path, optimizer: str, part: Part) -> list[Fault]:
        """A scaled backward onto gradients that were unscaled already."""
        if part.scaler is None or not self._single(path) or not self._live(path, part):
            return []
        stage = path.scalers[part.scaler].stage(optimizer)
        if stage is None or stage.name != "unscaled" or stage.cleared or stage.halved:
            return []
        scaler = path.known_scalers[part.scaler]
        return [Fault("unscaled-every-batch", stage.node, enabled=self._open(path, scaler), others=(part.node,))]

    # --- unscale, clip

    def unscale(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> None:
        """`scaler.unscale_(optimizer)`."""
        protocol = self.meet(path, scaler)
        gradients = self.know(path, optimizer)
        if self.enabled(path, scaler) is False:
            return
        stage = protocol.stage(optimizer.key)
        faults = self._first_use(path, scaler, optimizer, call)
        if not faults and stage is None:
            faults = self._consumed(path, scaler, optimizer, call)
            faults += self._misplaced(path, scaler, optimizer)
        elif stage is not None and stage.name == "unscaled":
            faults = [self._unscaled_again(path, scaler, stage, call)]
        elif stage is not None and stage.name == "stepped":
            late = stage.loops == path.loops
            kind, anchor = ("unscale-after-step", call) if late else ("missing-update", stage.node)
            faults = [self._fault(path, kind, anchor, scaler, optimizer)]
        self._sign(path, call, faults)
        path.scalers[scaler.key] = replace(protocol, scaled=True).at(
            optimizer.key, Stage("unscaled", call, path.loops, halved=stage is not None and stage.halved)
        )
        path.gradients[optimizer.key] = gradients.each(unscaled=True)

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
        if gradients.fresh or any(literal.atom.volatile for literal in path.literals.values()):
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
            if (other.made is None) == (scaler.made is None):
                return [self._fault(path, "two-scalers", call, scaler, optimizer)]
        return []

    def _old_scale(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.AST) -> Fault:
        update = path.scalers[scaler.key].updated
        assert update is not None
        between = any(key != optimizer.key for key in path.scalers[scaler.key].settled)
        kind = "update-between-steps" if between else "update-in-window"
        return replace(self._fault(path, kind, update, scaler, optimizer), others=(call,))

    def clip(self, path: Path, params: str | None, call: ast.AST, how: str) -> None:
        """Gradients are clipped, or their norm is read, where they stand."""
        keys = self._clipped(path, params, how)
        gradients = [path.gradients[key] for key in keys]
        scaled = [self._scaled(path, one) for one in gradients]
        unsure = any(one.unknown and not parts for one, parts in zip(gradients, scaled, strict=True))
        faults: list[Fault] = []
        if scaled and all(scaled) and not unsure and not self._any_unscaled(path, keys):
            parts = [part for several in scaled for part in several]
            faults.append(Fault("clip-scaled", call, (("how", how),), enabled=self._condition(path, parts)))
        self._sign(path, call, faults)

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

    # --- step

    def scaler_step(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> None:
        """`scaler.step(optimizer)`."""
        protocol = self.meet(path, scaler)
        gradients = self.know(path, optimizer)
        if self.enabled(path, scaler) is False:
            self._take(path, optimizer, call, None)
            return
        stage = protocol.stage(optimizer.key)
        faults = self._first_use(path, scaler, optimizer, call)
        if not faults and stage is None:
            faults = self._consumed(path, scaler, optimizer, call)
        elif stage is not None and stage.name == "stepped":
            anchor = call if stage.loops == path.loops else stage.node
            faults = [self._fault(path, "missing-update", anchor, scaler, optimizer)]
        if not faults:
            faults = self._empty(path, gradients, call)
        faults += self._stale(path, gradients, call)
        faults += self._between(path, scaler, optimizer, call)
        faults += self._beside(path, scaler, optimizer, call)
        self._sign(path, call, faults)
        self._stepped(path, scaler, optimizer, call, {fault.kind for fault in faults})
        self._take(path, optimizer, call, scaler)

    def _stepped(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call, kinds: set[str]) -> None:
        """Go on as if the step had been right: with its update to come, and by the scaler that scaled."""
        owners = {scaler.key}
        if "two-scalers" in kinds:
            owners = {part.scaler for part in path.gradients[optimizer.key].fresh if part.scaler is not None}
        early = bool(kinds & {"update-in-window", "update-between-steps"})
        for key in owners:
            protocol = replace(path.scalers[key], scaled=True)
            path.scalers[key] = protocol if early else protocol.at(optimizer.key, Stage("stepped", call, path.loops))

    def closure_step(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.Call) -> None:
        """`scaler.step(optimizer, closure)`: what the closure does to gradients is not the scaler's to see."""
        protocol = self.meet(path, scaler)
        self.know(path, optimizer)
        if self.enabled(path, scaler) is False:
            return
        self._sign(path, call, [self._fault(path, "closure", call, scaler, optimizer)])
        path.scalers[scaler.key] = replace(protocol, scaled=True).at(optimizer.key, Stage("stepped", call, path.loops))
        path.gradients[optimizer.key] = Gradients(unknown=True)

    def plain_step(self, path: Path, optimizer: Optimizer, call: ast.Call) -> None:
        """`optimizer.step()`."""
        gradients = self.know(path, optimizer)
        scaled = [part for part in gradients.fresh if part.scaler is not None and self._live(path, part)]
        faults: list[Fault] = []
        if scaled and len(scaled) == len(gradients.fresh) and not gradients.unknown:
            kind = "step-past-scaler" if all(part.unscaled for part in scaled) else "step-on-scaled"
            others = tuple(part.node for part in scaled)
            faults.append(Fault(kind, call, enabled=self._condition(path, scaled), others=others))
        faults += self._double_step(path, optimizer, call)
        faults += self._without_scaler(path, gradients)
        if not faults:
            faults = self._empty(path, gradients, call)
        faults += self._stale(path, gradients, call)
        faults += self._around_step(path, optimizer, call)
        self._sign(path, call, faults)
        for key, protocol in path.scalers.items():
            if protocol.stage(optimizer.key) is not None or any(part.scaler == key for part in scaled):
                path.scalers[key] = protocol.at(optimizer.key, Stage("stepped", call, path.loops))
        self._take(path, optimizer, call, None)

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
        """Gradients that an earlier step has consumed are still there and are used again."""
        here = _innermost(path.loops)
        stale = any(part.used is not None and _innermost(part.loops) == here for part in gradients.parts)
        if not stale or not gradients.fresh or not self._mixed(path, gradients):
            return []
        outside = all(optimizer.outside for optimizer in path.optimizers.values())
        adding = min((part.node for part in gradients.fresh), key=lambda node: getattr(node, "lineno", 0))
        return [Fault("stale-gradients", adding, others=(call,), outside=outside)]

    def _mixed(self, path: Path, gradients: Gradients) -> bool:
        """Whether mixed precision is at work here at all."""
        return bool(path.known_scalers) or any(part.region is not None for part in gradients.parts)

    def _between(self, path: Path, scaler: Scaler, optimizer: Optimizer, call: ast.AST) -> list[Fault]:
        """An update between the steps of two optimizers in one iteration."""
        own = [entry for entry in path.log if entry.loops == path.loops and entry.scaler == scaler.key]
        stepped = [n for n, entry in enumerate(own) if entry.kind == "step" and entry.subject != optimizer.key]
        for place, entry in enumerate(own):
            if entry.kind == "update" and stepped and stepped[0] < place:
                fault = self._fault(path, "update-before-second-step", entry.node, scaler, optimizer)
                return [replace(fault, others=(call,))]
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

    def _take(self, path: Path, optimizer: Optimizer, call: ast.AST, scaler: Scaler | None) -> None:
        gradients = path.gradients[optimizer.key]
        used = gradients.each(used=call, unscaled=True)
        path.gradients[optimizer.key] = replace(used, unknown=False, dropped=frozenset(), cleared=None)
        key = None if scaler is None else scaler.key
        path.log = (*path.log, Happening("step", optimizer.key, call, path.loops, key))

    def half_step(self, path: Path, optimizer: Optimizer, call: ast.Call, last: bool) -> None:
        """`optimizer.first_step()` or, when `last`, `optimizer.second_step()`."""
        gradients = self.know(path, optimizer)
        scaled = self._scaled(path, gradients)
        condition = self._condition(path, scaled)
        self._sign(path, call, [Fault("sam-on-scaled", call, enabled=condition)] if scaled else [])
        for key, protocol in path.scalers.items():
            stage = protocol.stage(optimizer.key)
            if last:
                path.scalers[key] = protocol.at(optimizer.key, Stage("stepped", call, path.loops))
            elif stage is not None:
                path.scalers[key] = protocol.at(optimizer.key, replace(stage, halved=True))
            elif any(part.scaler == key for part in scaled):
                path.scalers[key] = protocol.at(optimizer.key, Stage("unscaled", call, path.loops, True, True))
        path.gradients[optimizer.key] = Gradients(cleared=call)

    # --- update, clear, schedule

    def update(self, path: Path, scaler: Scaler, call: ast.Call) -> None:
        """`scaler.update()`."""
        protocol = self.meet(path, scaler)
        if self.enabled(path, scaler) is False:
            return
        waiting = {
            part
            for key, gradients in path.gradients.items()
            if key != EVERY or self._single(path)
            for part in gradients.fresh
            if part.scaler == scaler.key and not part.unsure
        }
        faults: list[Fault] = []
        idle = bool(waiting) and not protocol.stages and not protocol.unknown
        if idle:
            others = tuple(part.node for part in waiting)
            faults.append(Fault("update-without-step", call, enabled=self._open(path, scaler), others=others))
        join = [c for c in path.contexts if isinstance(c, Context) and c.kind == "join" and c.node is not None]
        faults += [Fault("update-in-join", c.node, others=(call,)) for c in join if c.node is not None]
        self._sign(path, call, faults)
        settled = tuple(key for key, stage in protocol.stages if stage.name == "stepped")
        path.scalers[scaler.key] = Protocol(protocol.version + 1, protocol.scaled, updated=call, settled=settled)
        path.log = (*path.log, Happening("update", scaler.key, call, path.loops, scaler.key))
        if idle:
            return
        for key, gradients in path.gradients.items():
            aged = frozenset(replace(p, old=True) if p.scaler == scaler.key else p for p in gradients.parts)
            path.gradients[key] = replace(gradients, parts=aged)

    def set_scale(self, path: Path, scaler: Scaler) -> None:
        """`scaler.update(new_scale)`: the scale is set by hand, which is not the update that a step waits for."""
        protocol = self.meet(path, scaler)
        path.scalers[scaler.key] = replace(protocol, version=protocol.version + 1, stages=())

    def clear(self, path: Path, keys: Iterable[str], call: ast.AST) -> None:
        """The gradients of these optimizers are set to zero or None."""
        faults: list[Fault] = []
        for key in keys:
            gradients = path.gradients[key]
            fresh = gradients.fresh
            here = path.loops[-1][0] if path.loops else 0
            mine = {bool(part.loops) and part.loops[-1][0] == here and not part.unsure for part in fresh}
            if mine == {True} and self._single(path) and key != EVERY:
                faults.append(Fault("cleared-in-window", call, others=tuple(part.node for part in fresh)))
            path.gradients[key] = Gradients(cleared=call, dropped=fresh)
            for name, protocol in path.scalers.items():
                stage = protocol.stage(key)
                if stage is not None:
                    path.scalers[name] = protocol.at(key, replace(stage, cleared=True))
        self._sign(path, call, faults)

    def schedule(self, path: Path, scheduler: Scheduler, call: ast.Call) -> None:
        """`scheduler.step()`."""
        faults: list[Fault] = []
        guarded = any(literal.atom.about_scale for literal in path.literals.values())
        for entry in path.log:
            scaler = path.known_scalers.get(entry.scaler or "")
            if entry.kind != "step" or entry.loops != path.loops or scaler is None or guarded:
                continue
            if scheduler.optimizer in (None, entry.subject) and self.enabled(path, scaler) is not False:
                faults = [Fault("schedule-unguarded", call, enabled=self._open(path, scaler), others=(entry.node,))]
        self._sign(path, call, faults)
        path.log = (*path.log, Happening("schedule", scheduler.optimizer or "", call, path.loops))

    def undo(self, path: Path, mark: Mark, scale: Mark, node: ast.AST) -> None:
        """Something scaled by `mark` is divided by `scale`."""
        scaler = path.known_scalers.get(mark.scaler)
        faults: list[Fault] = []
        if scaler is not None and mark.scaler == scale.scaler and mark.version != scale.version:
            faults.append(Fault("undone-with-new-scale", node, enabled=self._open(path, scaler)))
        self._sign(path, node, faults)

    def shown(self, path: Path, mark: Mark, node: ast.AST) -> None:
        """Something scaled by `mark` is logged or added up."""
        scaler = path.known_scalers.get(mark.scaler)
        enabled = None if scaler is None else self._open(path, scaler)
        self._sign(path, node, [Fault("scaled-loss-shown", node, enabled=enabled)])

    def escape(self, path: Path, optimizers: Iterable[str]) -> None:
        """Code that is not here was given these optimizers: anything may have happened to them."""
        for key in optimizers:
            path.gradients[key] = Gradients(unknown=True)
        path.gradients[EVERY] = Gradients(unknown=True)
        for key, protocol in path.scalers.items():
            path.scalers[key] = Protocol(protocol.version, scaled=True, unknown=True)


def _innermost(loops: Loops) -> int:
    """The innermost loop of `loops` that still runs; 0 where there is none."""
    return next((loop for loop, _ in reversed(loops) if loop), 0)


def _nodes(node: ast.AST | None) -> tuple[ast.AST, ...]:
    return () if node is None else (node,)
