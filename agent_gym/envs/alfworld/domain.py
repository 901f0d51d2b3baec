"""What the actions of a game do: the file's PDDL domain, compared action by action with those that the simulator plays.

Each action is brought to a normal form in which the order of conditions, costs, alternatives with one member and existential conditions over types
that do not exist (they never hold) make no difference. Which kinds of receptacle clean, heat and cool, and which objects cut, is read from the file.
Everything else must be what the simulator does; a domain that differs is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from agent_gym.envs.alfworld.pddl import Expression, PDDLError, parse_pddl, typed_list

__all__ = ["ACTIONS", "TYPES", "Domain", "DomainError", "read_domain"]

TYPES = ("agent", "location", "receptacle", "object", "rtype", "otype")


class DomainError(ValueError):
    """The domain is not one that the simulator plays."""


@dataclass(frozen=True)
class Domain:
    """What a game's domain says.

    Attributes:
        name: the domain's own name, which its problems repeat.
        actions: names of its actions, in lower case.
        tools: for each action that needs a kind of receptacle or object, these kinds as the PDDL names them, such as `sinkbasintype`.
    """

    name: str
    actions: frozenset[str]
    tools: Mapping[str, frozenset[str]]


# The actions that the simulator plays: parameters, condition, effect. TOOL stands for a choice of kinds that the file makes.
_KNOWN = """(
  (look (?a - agent ?l - location)
    (atlocation ?a ?l)
    (checked ?l))
  (inventory (?a - agent) () (checked ?a))
  (help (?a - agent) () (checked ?a))
  (examinereceptacle (?a - agent ?r - receptacle)
    (exists (?l - location) (and (atlocation ?a ?l) (receptacleatlocation ?r ?l)))
    (checked ?r))
  (examineobject (?a - agent ?o - object)
    (holds ?a ?o)
    (checked ?o))
  (gotolocation (?a - agent ?lstart - location ?lend - location ?r - receptacle)
    (and (atlocation ?a ?lstart) (receptacleatlocation ?r ?lend))
    (and (not (atlocation ?a ?lstart)) (atlocation ?a ?lend)))
  (openobject (?a - agent ?l - location ?r - receptacle)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (openable ?r) (not (opened ?r)))
    (and (opened ?r) (checked ?r)))
  (closeobject (?a - agent ?l - location ?r - receptacle)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (openable ?r) (opened ?r))
    (not (opened ?r)))
  (pickupobject (?a - agent ?l - location ?o - object ?r - receptacle)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (inreceptacle ?o ?r) (pickupable ?o) (not (holdsany ?a))
      (or (opened ?r) (not (openable ?r))))
    (and (holds ?a ?o) (holdsany ?a) (not (inreceptacle ?o ?r)) (not (objectatlocation ?o ?l))))
  (putobject (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (holds ?a ?o) (objecttype ?o ?ot) (receptacletype ?r ?rt) (cancontain ?rt ?ot)
      (or (opened ?r) (not (openable ?r))))
    (and (inreceptacle ?o ?r) (objectatlocation ?o ?l) (not (holds ?a ?o)) (not (holdsany ?a))))
  (cleanobject (?a - agent ?l - location ?r - receptacle ?o - object)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (holds ?a ?o) (cleanable ?o) (receptacletype ?r TOOL))
    (isclean ?o))
  (heatobject (?a - agent ?l - location ?r - receptacle ?o - object)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (holds ?a ?o) (heatable ?o) (receptacletype ?r TOOL))
    (and (ishot ?o) (not (iscool ?o))))
  (coolobject (?a - agent ?l - location ?r - receptacle ?o - object)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (holds ?a ?o) (coolable ?o) (receptacletype ?r TOOL))
    (and (iscool ?o) (not (ishot ?o))))
  (toggleobject (?a - agent ?l - location ?o - object ?r - receptacle)
    (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (inreceptacle ?o ?r) (toggleable ?o))
    (and (istoggled ?o) (when (ison ?o) (not (ison ?o))) (when (not (ison ?o)) (ison ?o))))
  (sliceobject (?a - agent ?l - location ?co - object ?ko - object)
    (and (atlocation ?a ?l) (objectatlocation ?co ?l) (holds ?a ?ko) (sliceable ?co) (objecttype ?ko TOOL))
    (issliced ?co))
)"""
_TOOL_OF: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cleanobject": ("receptacletype", "?r"),
        "heatobject": ("receptacletype", "?r"),
        "coolobject": ("receptacletype", "?r"),
        "sliceobject": ("objecttype", "?ko"),
    }
)
_FALSE: Expression = ("or",)


def _normal(condition: Expression, types: frozenset[str]) -> Expression:
    """The condition or effect without what makes no difference: order, repetition, costs, nested and single-membered groups."""
    if isinstance(condition, str) or not condition:
        return condition if isinstance(condition, str) else ("and",)
    head, *parts = condition
    if head in ("and", "or"):
        members: set[Expression] = set()
        for part in parts:
            member = _normal(part, types)
            if not (isinstance(member, tuple) and member[:1] == ("increase",)):
                members.update(member[1:] if isinstance(member, tuple) and member[:1] == (head,) else (member,))
        return members.pop() if len(members) == 1 else (head, *sorted(members, key=repr))
    if head == "exists" and len(parts) == 2 and isinstance(parts[0], tuple):
        variables = sorted(typed_list(parts[0]))
        if any(kind not in types for _, kind in variables):
            return _FALSE
        return ("exists", tuple(variables), _normal(parts[1], types))
    return (head, *(_normal(part, types) for part in parts))


def _split_tools(name: str, condition: Expression) -> tuple[Expression, frozenset[str]]:
    """Take the choice of kinds out of an action's condition and put TOOL in its place."""
    if name not in _TOOL_OF or not isinstance(condition, tuple) or condition[:1] != ("and",):
        return condition, frozenset()
    asked = _TOOL_OF[name]
    parts: list[Expression] = []
    kinds: set[str] = set()
    for part in condition[1:]:
        choices = part[1:] if isinstance(part, tuple) and part[:1] == ("or",) else (part,)
        named = [choice[2] for choice in choices if isinstance(choice, tuple) and len(choice) == 3 and choice[:2] == asked]
        if named and len(named) == len(choices):
            kinds.update(kind for kind in named if isinstance(kind, str))
            part = (*asked, "tool")
        parts.append(part)
    return ("and", *sorted(parts, key=repr)), frozenset(kinds)


@dataclass(frozen=True)
class _Action:
    parameters: Mapping[str, str]
    condition: Expression
    effect: Expression


def _read_known() -> Mapping[str, _Action]:
    types = frozenset(TYPES)
    known = {}
    for entry in parse_pddl(_KNOWN):
        assert isinstance(entry, tuple)
        name, parameters, condition, effect = entry
        assert isinstance(name, str) and isinstance(parameters, tuple)
        condition, _ = _split_tools(name, _normal(condition, types))
        known[name] = _Action(MappingProxyType(dict(typed_list(parameters))), condition, _normal(effect, types))
    return MappingProxyType(known)


_ACTIONS = _read_known()
ACTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {name: MappingProxyType({variable[1:]: kind for variable, kind in action.parameters.items()}) for name, action in _ACTIONS.items()}
)
"""The actions that the simulator plays, each with the names and types of its parameters."""


@lru_cache(maxsize=64)
def read_domain(text: str) -> Domain:
    """Read a PDDL domain and hold its actions against those that the simulator plays.

    Args:
        text: the domain, as in a game file; the answer is kept per text (all official games share three).

    Returns:
        What the simulator needs to know of it.

    Raises:
        DomainError: it is no PDDL domain, or an action, a section or a type is not one that the simulator plays.
    """
    try:
        return _read(parse_pddl(text))
    except PDDLError as error:
        raise DomainError(f"its PDDL domain cannot be read: {error}") from None


def _read(parsed: tuple[Expression, ...]) -> Domain:
    if len(parsed) < 2 or parsed[0] != "define" or not isinstance(parsed[1], tuple) or len(parsed[1]) != 2 or parsed[1][0] != "domain":
        raise DomainError("its PDDL domain does not begin with (define (domain NAME)")
    sections: list[tuple[Expression, ...]] = [section for section in parsed[2:] if isinstance(section, tuple) and section]
    if len(sections) != len(parsed) - 2:
        raise DomainError("its PDDL domain holds a word or an empty bracket where a section should be")
    types = frozenset(word for section in sections if section[0] == ":types" for word in section[1:] if isinstance(word, str))
    if types != frozenset(TYPES):
        raise DomainError(f"its PDDL domain has the types {', '.join(sorted(types)) or 'none'}, and not exactly {', '.join(TYPES)}")
    tools: dict[str, frozenset[str]] = {}
    actions: set[str] = set()
    for section in sections:
        if section[0] == ":action":
            name, kinds = _check_action(section, types)
            if name in actions:
                raise DomainError(f"its PDDL domain has the action {name} twice")
            actions.add(name)
            tools[name] = kinds
        elif section[0] not in (":requirements", ":types", ":predicates", ":functions"):
            raise DomainError(f"its PDDL domain has a section {section[0]!s:.40}, which the fast engine does not play")
    missing = sorted(_ACTIONS.keys() - actions - {"help"})
    if missing:
        raise DomainError(f"its PDDL domain lacks the action {missing[0]}")
    return Domain(str(parsed[1][1]), frozenset(actions), MappingProxyType(tools))


def _check_action(section: tuple[Expression, ...], types: frozenset[str]) -> tuple[str, frozenset[str]]:
    name = section[1] if len(section) > 1 else ""
    if not isinstance(name, str) or name not in _ACTIONS:
        raise DomainError(f"its PDDL domain has an action {name!s:.60}, which the fast engine does not play")
    if len(section) % 2:
        raise DomainError(f"the action {name} of its PDDL domain has a keyword without a value")
    fields = dict(zip(section[2::2], section[3::2], strict=True))
    parameters = fields.pop(":parameters", ())
    condition, kinds = _split_tools(name, _normal(fields.pop(":precondition", ()), types))
    effect = _normal(fields.pop(":effect", ()), types)
    known = _ACTIONS[name]
    same_parameters = isinstance(parameters, tuple) and dict(typed_list(parameters)) == known.parameters
    if fields or not same_parameters or condition != known.condition or effect != known.effect:
        raise DomainError(f"the action {name} of its PDDL domain is not the one that the fast engine plays")
    return name, kinds
