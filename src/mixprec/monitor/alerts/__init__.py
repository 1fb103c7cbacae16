"""An alert is a rule over the latest records, in a file of its own; finding them is listing this folder.

To add one, add `mpNNN_name.py`, named by the cause's code, with a `RULE` in it: an object of a `Rule` subclass whose
`look` returns a finding or None. It is asked after every step, so it looks at the cheapest sign first. What it says
is what it means and what to do; it is said once, and then only after ever longer silences.
"""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Moment, Rule, Window, all_rules
from mixprec.monitor.alerts._speak import Alerts

__all__ = ["Alerts", "Moment", "Rule", "Window", "all_rules"]
