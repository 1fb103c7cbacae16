"""A ledger says what one optimizer's gradients carry: nothing known, the scale of some update, or no scale any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from mixprec._scaler._guards._marks import Mark, Sentinels, is_same_tensor, untouched


@dataclass(eq=False)
class Ledger:
    """What is known of the gradients of one optimizer, as of the last event.

    `carries` is the generation of the scale (the number of updates before it) that the gradients carry, None if that
    is not known. `unscaled` says that a step or `unscale_` has divided them. `mixed` and `stale` are what the guards
    report: scaled gradients added to unscaled ones, and to ones of another generation.
    """

    sentinels: Sentinels
    count: int
    marks: tuple[Mark, ...] = ()
    carries: int | None = None
    unscaled: bool = False
    mixed: bool = False
    stale: bool = False
    unscaled_at: int = -1
    in_place: bool = False
    warned: set[str] = field(default_factory=set)
    looks: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = self.sentinels.marks()

    def catch_up(self) -> None:
        """Forgets what is no longer so because somebody else wrote to the gradients or replaced them."""
        now = self.sentinels.marks()
        if any(not untouched(then, mark) for then, mark in zip(self.marks, now, strict=True)):
            pairs = [(then, mark) for then, mark in zip(self.marks, now, strict=True) if then[0] is not None]
            self.in_place = bool(pairs) and all(is_same_tensor(*pair) and pair[0][1] < pair[1][1] for pair in pairs)
            self.carries = self.carries if self.in_place else None
            self.unscaled = self.mixed = self.stale = False
        self.marks = now

    def backward_started(self) -> None:
        """Before a backward pass of a scaled loss."""
        self.catch_up()
        if self.in_place:
            self.carries, self.in_place = None, False

    def backward_ended(self, generation: int) -> None:
        """After it; `generation` is the scale's."""
        now = self.sentinels.marks()
        added = [then[0] is not None for then, mark in zip(self.marks, now, strict=True) if not untouched(then, mark)]
        self.marks = now
        if not added:
            return
        if any(added):
            self.mixed = self.mixed or self.unscaled
            self.stale = self.stale or (self.carries is not None and self.carries != generation)
        self.carries, self.unscaled = generation, False

    def divided(self, backwards: int) -> None:
        """After the scaler unscaled the gradients; `backwards` counts the backward passes so far."""
        self.unscaled_at = backwards
        self.stepped()

    def stepped(self) -> None:
        """After a step, which leaves unscaled gradients behind."""
        self.marks = self.sentinels.marks()
        self.carries, self.unscaled, self.mixed, self.stale, self.in_place = None, True, False, False, False

    def params_with_gradients(self) -> list[Tensor]:
        """Sentinels that have one."""
        return [param for param in self.sentinels.params if param.grad is not None]
