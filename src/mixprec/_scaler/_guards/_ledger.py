"""A ledger says what one optimizer's gradients carry: nothing known, the scale of some update, or no scale any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from mixprec._scaler._guards._marks import Mark, Sentinels, is_same_tensor, mark, untouched


@dataclass(eq=False)
class Ledger:
    """What is known of the gradients of one optimizer, as of the last event.

    `carries` is the generation of the scale (the number of updates before it) that the gradients carry, None if that
    is not known. `unscaled` says that a step or `unscale_` has divided them. `mixed` and `stale` are what the guards
    report: scaled gradients added to unscaled ones, and to ones of another generation. `foreign` is the mark of the
    first sentinel's gradient after a backward pass of a loss that was not scaled.
    """

    sentinels: Sentinels
    count: int
    marks: list[Mark] = field(default_factory=list)
    carries: int | None = None
    unscaled: bool = False
    mixed: bool = False
    stale: bool = False
    foreign: Mark | None = None
    unscaled_at: int = -1
    in_place: bool = False
    warned: set[str] = field(default_factory=set)
    looks: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = self.sentinels.marks()

    def catch_up(self) -> None:
        """Forgets what is no longer so because somebody else wrote to the gradients or replaced them."""
        now = self.sentinels.marks()
        if not _all_untouched(self.marks, now):
            pairs = [(then, here) for then, here in zip(self.marks, now, strict=True) if then[0] is not None]
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
        added = [then[0] is not None for then, here in zip(self.marks, now, strict=True) if not untouched(then, here)]
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
        self.carries, self.unscaled = None, True
        self.mixed = self.stale = self.in_place = False
        self.foreign = None

    def accumulated(self, foreign: bool) -> None:
        """A backward pass, of a loss that was not scaled if `foreign`, has filled the first sentinel's gradient."""
        self.foreign = mark(self.sentinels.params[0]) if foreign else None

    def holds_foreign(self) -> bool:
        """Whether what such a pass left is still there."""
        return self.foreign is not None and untouched(self.foreign, mark(self.sentinels.params[0]))

    def untouched(self) -> bool:
        """Whether nobody has written to the gradients since the last event."""
        return _all_untouched(self.marks, self.sentinels.marks())

    def params_with_gradients(self) -> list[Tensor]:
        """Sentinels that have one."""
        return [param for param in self.sentinels.params if param.grad is not None]


def _all_untouched(before: list[Mark], after: list[Mark]) -> bool:
    return all(map(untouched, before, after))
