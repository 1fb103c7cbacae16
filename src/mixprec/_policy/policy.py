"""A policy is a value: a base list of op rules, and the rules that change it, in order. Nothing in it can be mutated.

```
policy = Policy.torch("cuda").with_op("softmax", "fp32", module="encoder.*").with_module(torch.nn.LayerNorm, "keep")
print(policy)                                    # the text form; Policy.parse reads it back
policy.explain("softmax", module="encoder.attn") # -> Decision: the rule, the reason, the source
```
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mixprec._policy import document, text
from mixprec._policy.base import Base, table
from mixprec._policy.entry import Rule
from mixprec._policy.resolve import Decision, resolve
from mixprec._policy.rule import CastRule, as_rule
from mixprec._policy.selector import Selector, path_selector, selector
from mixprec._policy.sharing import Sharing, as_sharing
from mixprec.errors import InvalidValueError

__all__ = ["Policy"]


@dataclass(frozen=True)
class Policy:
    """Which dtype each op runs in, as data.

    `base` is the list to start from, `rules` what changes it in the order given, `sharing` which casts consumers
    share (None: what the base shares). Two policies are equal where these are. `str(policy)` is the text form.
    """

    base: Base
    rules: tuple[Rule, ...] = ()
    sharing: Sharing = None  # type: ignore[assignment]  # None is replaced by the base's choice right below

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "sharing", self.base.sharing if self.sharing is None else as_sharing(self.sharing))

    @classmethod
    def torch(cls, device_type: str, *, version: str | None = None) -> Policy:
        """PyTorch's own list for `"cpu"`, `"cuda"`, `"mps"` or `"xpu"`, of the installed release unless one is given.

        Raises `UnknownNameError`. Source: the links in each `Decision`.
        """
        return cls(Base("torch", device_type, version))

    @classmethod
    def uniform(cls) -> Policy:
        """One list for CPU, CUDA, MPS and XPU, so that a CPU run rehearses a GPU run."""
        return cls(Base("uniform"))

    @classmethod
    def lean(cls) -> Policy:
        """`uniform` with less memory: norms and softmax stored in 16 bits, activation casts shared."""
        return cls(Base("lean"))

    @classmethod
    def careful(cls) -> Policy:
        """`uniform` with more in float32: every long sum, every norm, every exponential and logarithm."""
        return cls(Base("careful"))

    @classmethod
    def named(cls, name: str, device: str | None = None) -> Policy:
        """The policy called `name`: `torch` (needs a `device` type), `uniform`, `lean` or `careful` (on any)."""
        if name == "torch" and device is None:
            raise InvalidValueError("device", device, "a device type, as PyTorch has one list for each")
        return cls(Base(name, device if name == "torch" else None))

    @classmethod
    def parse(cls, source: str) -> Policy:
        """The policy that `source` writes down; `Policy.parse(str(policy)) == policy`. Raises `PolicySyntaxError`."""
        return cls(*text.read(source))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready values: what the policy is made of, and each op's rule with its reason (see `document`)."""
        return document.write(self.base, self.rules, self.sharing, {op: self.explain(op) for op in self.ops})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Policy:
        """The policy that `to_json` gave; `Policy.from_json(policy.to_json()) == policy`."""
        return cls(*document.read(values))

    def with_op(
        self, op: str, rule: CastRule | str, module: Selector | type | str | None = None, *, reason: str = ""
    ) -> Policy:
        """The policy with `rule` for `op`, everywhere or only inside `module` (a path glob, a class, a class name).

        `op` may be any Python spelling. Raises `UnknownNameError` with suggestions, and `InvalidValueError` for
        `FP32_OUT` on an op without `dtype=`.
        """
        return self._with(Rule(op, None if module is None else selector(module), as_rule(rule), reason))

    def with_module(self, module: Any, rule: CastRule | str, *, within: Any = None, reason: str = "") -> Policy:
        """The policy with `rule` (`LOW`, `FP32` or `KEEP`) for every op inside `module`.

        `module` is a path glob, a class, a class name, or an instance, whose path in the model `within` is looked up
        now: a policy holds no objects. Raises `InvalidValueError`.
        """
        where = path_selector(_path_of(module, within)) if _is_instance(module) else selector(module)
        return self._with(Rule(None, where, as_rule(rule), reason))

    def with_sharing(self, sharing: Sharing | str) -> Policy:
        """The policy with other casts shared."""
        return replace(self, sharing=as_sharing(sharing))

    @property
    def ops(self) -> Mapping[str, CastRule]:
        """Rule of each op that has one outside modules, sorted by name; an op that is absent is `KEEP`."""
        return _ops(self)

    @property
    def module_rules(self) -> tuple[Rule, ...]:
        """The rules that speak of modules. Empty: nobody has to know which module an op runs in."""
        return tuple(rule for rule in self.rules if rule.where is not None)

    def explain(
        self, op: str, module: str | None = None, module_classes: type | str | Iterable[type | str] = ()
    ) -> Decision:
        """What happens to `op` inside the module at that path, with the reason and the source."""
        return resolve(self, op, module, module_classes)

    def __str__(self) -> str:
        return text.write(self.base, self.rules, self.sharing)

    def _with(self, rule: Rule) -> Policy:
        others = tuple(r for r in self.rules if r.subject != rule.subject)
        return replace(self, rules=(*others, rule))


@functools.lru_cache(maxsize=256)
def _ops(policy: Policy) -> Mapping[str, CastRule]:
    base = {op: group.rule for op, group in table(policy.base).items()}
    own = {rule.op: rule.rule for rule in policy.rules if rule.op is not None and rule.where is None}
    return MappingProxyType(dict(sorted((base | own).items())))


def _is_instance(module: Any) -> bool:
    return not isinstance(module, (str, type, Selector)) and hasattr(module, "named_modules")


def _path_of(module: Any, within: Any) -> str:
    """Path glob of the instance `module` in the model `within`; `**` for the model itself."""
    if within is None:
        raise InvalidValueError(
            "module",
            f"an instance of {type(module).__name__}",
            "a path glob, a class, or an instance together with within=model",
            "A policy holds paths, not objects.",
        )
    for path, candidate in within.named_modules():
        if candidate is module:
            return path or "**"
    raise InvalidValueError(
        "module", f"an instance of {type(module).__name__}", f"a module inside the {type(within).__name__} given"
    )
