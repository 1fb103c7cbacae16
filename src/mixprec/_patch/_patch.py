"""A patch is a list of names with what each held before; undoing it leaves no module with a stand-in of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from typing_extensions import Self

from mixprec._autocast import autocast
from mixprec._patch import _stand_ins
from mixprec._patch._stand_ins import PLACES
from mixprec._policy import Policy
from mixprec.errors import InvalidValueError

__all__ = ["Patch", "patch"]


class Patch:
    """A patch in force; a context manager that ends it. `places` are the names that were swapped, dotted."""

    def __init__(self, policy: Policy | str | None) -> None:
        self.policy = policy
        self.places: tuple[str, ...] = ()

    def undo(self) -> None:
        """Give the names back, those included that were imported since. A second call does nothing.

        Objects that were made meanwhile stay what they are and go on working.
        """
        if self not in _in_force:
            return
        _in_force.remove(self)
        _stand_ins.policies[:] = [each.policy for each in _in_force]
        if not _in_force:
            _swap({stand_in: original for original, stand_in in _pairs().items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


_in_force: list[Patch] = []
_originals: dict[str, type] = {}


def patch(policy: Policy | str | None = None) -> Patch:
    """Put mixprec's scaler and autocast in the place of PyTorch's, in the whole process, until `undo()`.

        mixprec.patch()                       # first lines of the program
        with mixprec.patch(policy="lean"):    # or for a while
            train()

    It changes `torch.amp`, `torch.cuda.amp`, `torch.cpu.amp`, `torch.autocast`, `torch.GradScaler` and FSDP1's
    `ShardedGradScaler`, and every module that has imported one of them by name. Scalers and regions made from then on
    are ours; those that exist stay PyTorch's, and so does what a function keeps as a default argument. A patch inside a
    patch brings its policy.

    Args:
        policy: for regions that give none of their own, unless one is in force already; None is PyTorch's own list.

    Raises: InvalidValueError, UnknownNameError, PolicySyntaxError for a policy that does not exist.

    **Cost**: one look through the names of all loaded modules, here and in `undo`.
    """
    if policy is not None:
        if not isinstance(policy, (Policy, str)):
            raise InvalidValueError("policy", policy, "a Policy, the name of one, or the text of one")
        autocast("cpu", enabled=False, policy=policy)  # one that does not exist is an error now
    made = Patch(policy)
    if not _in_force:
        _originals.update({place: _at(place) for place in PLACES if _at(place) is not None})
        made.places = _swap(_pairs())
    else:
        made.places = _in_force[0].places
    _in_force.append(made)
    _stand_ins.policies.append(policy)
    return made


def _pairs() -> dict[type, type]:
    return {_originals[place]: PLACES[place] for place in _originals}


def _swap(exchange: Mapping[type, type]) -> tuple[str, ...]:
    """Replace the keys by their values wherever a module names them; the places, dotted."""
    changed = set()
    by_id = {id(old): new for old, new in exchange.items()}
    for module, name, value in list(_bindings()):
        if id(value) in by_id:
            setattr(module, name, by_id[id(value)])
            changed.add(f"{module.__name__}.{name}")
    return tuple(sorted(changed))


def _bindings() -> Iterator[tuple[ModuleType, str, Any]]:
    """Every name of every loaded module: of torch's those in PLACES, of ours none."""
    for place in PLACES:
        module, name = _home(place)
        if module is not None and name in vars(module):
            yield module, name, vars(module)[name]
    for dotted, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and dotted.partition(".")[0] not in ("torch", "mixprec"):
            yield from ((module, name, value) for name, value in list(vars(module).items()))


def _home(place: str) -> tuple[ModuleType | None, str]:
    dotted, _, name = place.rpartition(".")
    return sys.modules.get(dotted), name


def _at(place: str) -> Any:
    module, name = _home(place)
    return None if module is None else vars(module).get(name)
