"""The scaler protocol as a state machine: each call moves a path on and names what it breaks.

Per scaler and optimizer: ready, unscaled, stepped; per optimizer: whose scale its gradients carry. After a fault the
machine goes on as if the call had been right, so that one mistake is named once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from mixprec.lint.protocol._conditions import decide
from mixprec.lint.protocol._judge import Judge
from mixprec.lint.protocol._ledger import Fault
from mixprec.lint.protocol._path import EVERY, Gradients, Happening, Part, Path, Protocol, Stage
from mixprec.lint.protocol._values import Context, Mark, Opaque, Optimizer, Scaler, Scheduler

__all__ = ["Machine"]


class Machine(Judge):
    """Moves paths through the protocol and signs the ledger.

    `where` are the calls that led to the code that runs, `site` the last of them in the file itself while the code of
    another one runs. `sites` keeps it for every call there. `several`: there are several optimizers.
    """

    def create(self, path: Path, optimizer: Optimizer) -> None:
        """`optimizer` is made here: nothing has been added to its gradients."""
        path.gradients[optimizer.key] = Gradients()

    def create_scaler(self, path: Path, scaler: Scaler) -> None:
        """`scaler` is made here: it has scaled nothing."""
        path.scalers[scaler.key] = Protocol()
        path.known_scalers[scaler.key] = scaler

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
        for name, protocol in path.scalers.items():
            if protocol.spent:
                path.scalers[name] = replace(protocol, spent=False)
        self._sign(path, call, faults)

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
            faults += self._twice_owned(path, scaler, optimizer)
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
            faults += self._twice_owned(path, scaler, optimizer)
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
        idle = bool(waiting) and not protocol.stages and not protocol.unknown and not self._just_stepped(path, scaler)
        if idle:
            others = tuple(part.node for part in waiting)
            faults.append(Fault("update-without-step", call, enabled=self._open(path, scaler), others=others))
        join = [c for c in path.contexts if isinstance(c, Context) and c.kind == "join" and c.node is not None]
        faults += [Fault("update-in-join", c.node, others=(call,)) for c in join if c.node is not None]
        faults += self._updated_again(path, scaler, call)
        self._sign(path, call, faults)
        settled = tuple(key for key, stage in protocol.stages if stage.name == "stepped")
        path.scalers[scaler.key] = Protocol(
            protocol.version + 1, protocol.scaled, updated=call, settled=settled, spent=True
        )
        path.log = (*path.log, Happening("update", scaler.key, call, path.loops, scaler.key))
        if idle:
            return
        for key, gradients in path.gradients.items():
            aged = frozenset(replace(p, old=True) if p.scaler == scaler.key else p for p in gradients.parts)
            path.gradients[key] = replace(gradients, parts=aged)

    @staticmethod
    def _just_stepped(path: Path, scaler: Scaler) -> bool:
        """Whether a step of this iteration has come since the last update; one that came too late has no stage."""
        own = [entry for entry in path.log if entry.loops == path.loops and entry.scaler == scaler.key]
        return bool(own) and own[-1].kind == "step"

    def load_empty(self, path: Path, scaler: Scaler, call: ast.Call) -> None:
        """`scaler.load_state_dict(state)` with the state of a scaler that is off, which is empty."""
        wrong = self.enabled(path, scaler) is True
        self._sign(path, call, [Fault("empty-state", call)] if wrong else [])

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

    def overwrite(self, path: Path) -> None:
        """Gradients are written by hand: whose they are and what they hold is open, but no scale has changed."""
        spent = {key for key, protocol in path.scalers.items() if protocol.spent}
        self.escape(path, list(path.optimizers))
        for key in spent:
            path.scalers[key] = replace(path.scalers[key], spent=True)

    def escape(self, path: Path, optimizers: Iterable[str]) -> None:
        """Code that is not here was given these optimizers: anything may have happened to them."""
        for key in optimizers:
            path.gradients[key] = Gradients(unknown=True)
        path.gradients[EVERY] = Gradients(unknown=True)
        for key, protocol in path.scalers.items():
            path.scalers[key] = Protocol(protocol.version, scaled=True, unknown=True)


def _nodes(node: ast.AST | None) -> tuple[ast.AST, ...]:
    return () if node is None else (node,)
