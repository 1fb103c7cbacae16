"""The step as it is written: what autocast added is taken out of the record."""

from __future__ import annotations

from mixprec.audit._casts import is_cast
from mixprec.audit._log import Held, Kind, Op, Phase, Step

__all__ = ["Reading", "elements"]


class Reading:
    """A recorded step and what follows from it in every precision. **Cost**: a few passes over the events."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.alias = _aliases(step)
        self.gathered = _gathered(step)
        self.gathered_into = {into: number for number, into in self.gathered.items()}
        self.owned = {h.ref.storage: h.kind for h in (*step.earlier, *step.held)}
        self.owned |= dict.fromkeys((*self.gathered, *_summands(step)), Kind.GRADIENT)
        self.weights = frozenset(h.ref.storage for h in step.held if h.kind is Kind.WEIGHT)
        self.covered = not any(op.low for op in step.ops())
        self.last_use = self._last_uses()
        self.inner = {n for op in step.ops(Phase.FORWARD) if op.cls and not op.factory for n in op.made}
        self.saved = frozenset(self.value(s.ref.storage) for s in step.saved)

    def value(self, number: int) -> int:
        """The storage of the value that storage `number` is a cast of, or the storage itself."""
        while number in self.alias:
            number = self.alias[number]
        return number

    def trained(self) -> int:
        """Elements that have a gradient."""
        return sum(self.sizes())

    def sizes(self) -> list[int]:
        """Elements of each weight that has a gradient; a weight and its master are one."""
        masters = [elements(h) for h in self.step.held if h.kind is Kind.MASTER]
        moments = [mark.held for mark in self.step.marks if mark.held] or [self.step.held]
        gradients = [[elements(h) for h in held if h.kind is Kind.GRADIENT] for held in moments]
        return masters or max(gradients, key=sum)

    def _last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for index, event in enumerate(self.step.events):
            if isinstance(event, Op) and event.phase is Phase.FORWARD:
                for ref in (*event.inputs, *event.outputs):
                    if ref.storage >= 0:
                        last[self.value(ref.storage)] = index
        return last


def elements(held: Held) -> int:
    """How many the tensor has."""
    count = 1
    for size in held.ref.shape:
        count *= size
    return count


def _gathered(step: Step) -> dict[int, int]:
    """16-bit gradients that were copied into the float32 gradients of masters: they are the weights' gradients."""
    gradients = {h.ref.storage for h in step.held if h.kind is Kind.GRADIENT}
    made = {number for op in step.ops(Phase.BACKWARD) for number in op.made} - gradients
    found = {}
    for op in step.ops(Phase.FORWARD, Phase.OPTIMIZER):
        half = len(op.inputs) // 2
        if op.name == "_foreach_copy_":
            pairs = list(zip(op.inputs[half:], op.inputs[:half], strict=True))
        elif op.name in ("copy_", "_to_copy") and op.inputs and op.outputs:
            pairs = [(op.inputs[-1], op.outputs[0])]
        else:
            continue
        found.update({a.storage: b.storage for a, b in pairs if a.storage in made and b.storage in gradients})
    return found


def _summands(step: Step) -> frozenset[int]:
    """Gradients of a later backward pass, which are added to those of an earlier one and gone."""
    gradients = {h.ref.storage for h in step.held if h.kind is Kind.GRADIENT}
    sums = (op for op in step.ops(Phase.BACKWARD) if op.name == "add_" and len(op.inputs) == 2)
    return frozenset(op.inputs[1].storage for op in sums if op.inputs[0].storage in gradients)


def _aliases(step: Step) -> dict[int, int]:
    """Storage of each copy that autocast or its backward made -> what it copies.

    In backward it is the other way round where the copy is a weight's gradient: there the 16-bit one is in between.
    """
    gradients = {h.ref.storage for h in step.held if h.kind is Kind.GRADIENT} | _summands(step)
    found = {}
    for op in step.ops(Phase.FORWARD, Phase.BACKWARD):
        if not is_cast(op) or op.explicit or not op.made or op.inputs[0].storage < 0:
            continue
        source, result = op.inputs[0].storage, op.outputs[0].storage
        if op.phase is Phase.FORWARD and op.low:
            found[result] = source
        elif op.phase is Phase.BACKWARD and result in gradients:
            found[source] = result
        elif op.phase is Phase.BACKWARD:
            found[result] = source
    return found
