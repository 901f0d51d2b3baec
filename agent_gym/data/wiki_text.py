"""The language of the generated encyclopaedia: kinds of things, the relations between them, and the sentences that state and ask for them.

A `Relation` leads from a thing of one kind to a thing of another. It brings sentences that state it on the subject's page, noun phrases that
stand for its object inside a longer question ("the architect of the Xyz Library"), and questions that ask for it. A question over several hops
is a noun phrase inside a noun phrase, so three dozen relations give some hundreds of different chains.

Places in the templates: `{s}` the subject inside a question, `{o}` the object by name, `{It}`, `{it}`, `{Its}`, `{its}`, `{them}` the subject's pronouns on its own
page, `{year}` and `{n}` a year and a small number without meaning. Everything here is the project's own text.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ASIDES",
    "COMPARISONS",
    "FILLERS",
    "INTROS",
    "KINDS",
    "MAKING",
    "NAME_PATTERNS",
    "RELATIONS",
    "ROLES",
    "SHARED_TRAITS",
    "Comparison",
    "Relation",
    "relations_of",
]


@dataclass(frozen=True, slots=True)
class Relation:
    """A link from one kind of thing to another, with its wordings."""

    name: str
    subject: str
    object: str
    says: tuple[str, ...]
    phrases: tuple[str, ...]
    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question that sets two things of a kind side by side by a number that both intros state; the smaller or the larger one is the answer."""

    kind: str
    fact: str
    smaller: tuple[str, ...]
    larger: tuple[str, ...]


ROLES = (
    "composer", "architect", "botanist", "novelist", "sculptor", "astronomer", "physician", "cartographer", "painter", "engineer", "geologist",
    "playwright", "chemist", "translator", "violinist", "clockmaker", "naturalist", "historian", "glassmaker", "surveyor",
)  # fmt: skip

KINDS: dict[str, tuple[str, ...]] = {
    "person": ROLES,
    "town": ("market town", "harbour town", "mill town", "spa town", "mining town", "fishing town", "hill town"),
    "building": ("observatory", "library", "lighthouse", "theatre", "museum", "aqueduct", "hospital", "arsenal", "chapel", "conservatory"),
    "organisation": (
        "shipping company",
        "orchestra",
        "learned society",
        "publishing house",
        "institute",
        "football club",
        "trading house",
        "foundry",
    ),
    "work": ("novel", "opera", "painting", "play", "symphony", "film", "poem", "ballet"),
    "award": ("prize", "medal"),
    "ship": ("steamship", "sailing ship", "survey ship"),
    "river": ("river",),
    "mountain": ("mountain",),
    "lake": ("lake",),
    "island": ("island",),
}
"""Kinds of things and the words for their sorts."""

NAME_PATTERNS: dict[str, tuple[str, ...]] = {
    "town": ("{w}",),
    "building": ("{w} {Sort}",),
    "shipping company": ("{w} Shipping Company", "{w} Steam Navigation Company"),
    "orchestra": ("{w} Orchestra", "{w} Philharmonic"),
    "learned society": ("{w} Society", "{w} Academy"),
    "publishing house": ("{w} Press", "{w} Publishing House"),
    "institute": ("{w} Institute",),
    "football club": ("{w} Football Club",),
    "trading house": ("{w} Trading House",),
    "foundry": ("{w} Foundry",),
    "work": (
        "The Lanterns of {w}", "The Clockmaker of {w}", "{w} in Winter", "The Road to {w}", "A Letter from {w}", "The Orchards of {w}", "{w} at Dusk",
        "The Silence of {w}", "The Bells of {w}", "Three Days in {w}", "The Glass of {w}", "Farewell to {w}",
    ),
    "award": ("{w} {Sort}",),
    "ship": ("Star of {w}", "Lady {w}", "Spirit of {w}"),
    "river": ("River {w}",),
    "mountain": ("Mount {w}",),
    "lake": ("Lake {w}",),
    "island": ("{w} Island",),
}  # fmt: skip
"""How things are called: by their sort where it has an entry of its own, else by their kind. People have a given name and a surname."""

ASIDES = (
    "A guidebook compares {them} with {s}.",
    "{It} should not be confused with {s}.",
    "A letter in the archives mentions {them} together with {s}.",
    "{It} is often named in one breath with {s}.",
    "Nothing connects {them} with {s} but a printer's error of {year}.",
)
"""Sentences that name another thing without saying anything of it: they make a page turn up in searches for that thing."""

SHARED_TRAITS: dict[str, tuple[str, ...]] = {
    "person": ("Were {a} and {b} both {sorts}?", "Were both {a} and {b} {sorts}?"),
    "work": ("Are {a} and {b} both {sorts}?",),
    "town": ("Do {a} and {b} lie in the same region?", "Are {a} and {b} in the same region?"),
}
"""Yes-or-no questions over two things of a kind."""

INTROS: dict[str, tuple[str, ...]] = {
    "person": (
        "{name} ({born} – {died}) was {a_sort}.",
        "{name} ({born} – {died}) was {a_sort} remembered for work of the {decade}s.",
        "{name}, born on {born}, was {a_sort} who died on {died}.",
    ),
    "town": (
        "{name} is {a_sort} in the {region} region with {count} inhabitants.",
        "{name} is {a_sort} of {count} inhabitants in the {region} region.",
    ),
    "building": (
        "The {name} is {a_sort} that was completed in {made}.",
        "Completed in {made}, the {name} is {a_sort} built of local stone.",
    ),
    "organisation": ("The {name} is {a_sort} that was founded in {made}.", "Founded in {made}, the {name} is {a_sort}."),
    "work": ('"{name}" is {a_sort} from {made}.', '"{name}" is {a_sort} first shown to the public in {made}.'),
    "award": ("The {name} is {a_sort} that has been given since {made}.",),
    "ship": ("The {name} was {a_sort} launched in {made}.", "Launched in {made}, the {name} was {a_sort} of {tons} tons."),
    "river": (
        "The {name} is a river {length} kilometres long.",
        "With a length of {length} kilometres, the {name} is a river of the uplands.",
    ),
    "mountain": ("{name} is a mountain {height} metres high.", "{name} rises to a height of {height} metres."),
    "lake": ("{name} is a lake {depth} metres deep.",),
    "island": ("{name} is an island with a coast of {length} kilometres.",),
}

FILLERS: dict[str, tuple[str, ...]] = {
    "person": (
        "{It} kept a diary for {n} years.",
        "{Its} letters fill {n} volumes.",
        "{It} is said to have owned {n} telescopes.",
        "A collection of {its} notebooks was sold in {year}.",
    ),
    "town": (
        "A fire in {year} destroyed {n} of its streets.",
        "Its railway station was opened in {year}.",
        "The old walls have {n} gates.",
    ),
    "building": ("It has {n} windows on its southern side.", "It was closed for repairs in {year}.", "A storm in {year} damaged its roof."),
    "organisation": ("It had {n} members in its first year.", "Its archive was opened to the public in {year}."),
    "work": ("It is divided into {n} parts.", "A restored version appeared in {year}.", "Critics received it coolly at first."),
    "award": ("It consists of {n} ounces of silver and a diploma.", "It was not given in {year}."),
    "ship": ("It was refitted in {year}.", "Its crew numbered {n}."),
    "river": ("It is crossed by {n} bridges.", "A flood in {year} changed its lower course."),
    "mountain": ("Its northern face holds {n} small glaciers.", "A hut for climbers was opened there in {year}."),
    "lake": ("It freezes for about {n} days a year.", "Its level was raised in {year}."),
    "island": ("It has {n} freshwater springs.", "A radio mast was put up there in {year}."),
}

MAKING = {
    "novel": ("written", "author"),
    "play": ("written", "author"),
    "poem": ("written", "author"),
    "opera": ("composed", "composer"),
    "symphony": ("composed", "composer"),
    "ballet": ("composed", "composer"),
    "painting": ("painted", "painter"),
    "film": ("directed", "director"),
}
"""Sort of a work -> (participle, maker)."""

RELATIONS: tuple[Relation, ...] = (
    Relation(
        "birthplace", "person", "town",
        ("{It} was born in {o} as one of {n} children.", "{It} came from {o}, where {it} was born."),
        ("the town where {s} was born", "the birthplace of {s}"),
        ("In which town was {s} born?", "What is the birthplace of {s}?"),
    ),
    Relation(
        "deathplace", "person", "town",
        ("{It} spent {its} last years in {o} and died there.", "{It} died in {o} after a short illness."),
        ("the town where {s} died",),
        ("In which town did {s} die?", "Where did {s} die?"),
    ),
    Relation(
        "teacher", "person", "person",
        ("{It} studied under {o} for {n} years.", "{Its} teacher was {o}, to whom {it} stayed loyal."),
        ("the teacher of {s}", "the person who taught {s}"),
        ("Who taught {s}?", "Under whom did {s} study?"),
    ),
    Relation(
        "spouse", "person", "person",
        ("In {year} {it} married {o}, whom {it} had met on a voyage.", "{It} was married to {o} from {year}."),
        ("the person whom {s} married", "the spouse of {s}"),
        ("Who was married to {s}?", "Whom did {s} marry?"),
    ),
    Relation(
        "directed", "person", "organisation",
        ("From {year} {it} was the head of the {o}.", "{It} led the {o} for {n} years."),
        ("the organisation that {s} led",),
        ("Which organisation did {s} lead?", "Of which organisation was {s} the head?"),
    ),
    Relation(
        "award", "person", "award",
        ("In {year} {it} received the {o}.", "{It} was honoured with the {o} in {year}."),
        ("the award that {s} received",),
        ("Which award did {s} receive?", "With which award was {s} honoured?"),
    ),
    Relation(
        "town_river", "town", "river",
        ("It lies on the {o}.", "The {o} flows through the town."),
        ("the river that flows through {s}", "the river on which {s} lies"),
        ("On which river does {s} lie?", "Which river flows through {s}?"),
    ),
    Relation(
        "town_founder", "town", "person",
        ("The town was founded in {year} by {o}.", "It goes back to a settlement that {o} founded in {year}."),
        ("the founder of {s}", "the person who founded {s}"),
        ("Who founded {s}?", "Who was the founder of {s}?"),
    ),
    Relation(
        "town_twin", "town", "town",
        ("Since {year} it has been twinned with {o}.", "Its twin town is {o}."),
        ("the twin town of {s}",),
        ("With which town is {s} twinned?", "What is the twin town of {s}?"),
    ),
    Relation(
        "town_mayor", "town", "person",
        ("Its first elected mayor was {o}.", "In {year} the town elected {o} as its first mayor."),
        ("the first mayor of {s}",),
        ("Who was the first mayor of {s}?",),
    ),
    Relation(
        "building_designer", "building", "person",
        ("It was designed by {o}, who won the commission in {year}.", "The plans were drawn by {o}."),
        ("the designer of {s}", "the person who designed {s}"),
        ("Who designed {s}?", "Who was the designer of {s}?"),
    ),
    Relation(
        "building_town", "building", "town",
        ("It stands in {o}, on the site of an old market.", "It is the best-known building of {o}."),
        ("the town where {s} stands",),
        ("In which town does {s} stand?", "In which town can one visit {s}?"),
    ),
    Relation(
        "building_patron", "building", "person",
        ("Its construction was paid for by {o}.", "The money for it came from {o}."),
        ("the person who paid for {s}", "the patron of {s}"),
        ("Who paid for the construction of {s}?", "Who was the patron of {s}?"),
    ),
    Relation(
        "building_keeper", "building", "organisation",
        ("Since {year} it has been run by the {o}.", "It is run by the {o}, to which it belongs."),
        ("the organisation that runs {s}",),
        ("Which organisation runs {s}?", "To which organisation does {s} belong?"),
    ),
    Relation(
        "organisation_founder", "organisation", "person",
        ("Its founder was {o}.", "It was set up by {o} with {n} partners."),
        ("the founder of {s}", "the person who founded {s}"),
        ("Who founded {s}?", "Who was the founder of {s}?"),
    ),
    Relation(
        "organisation_seat", "organisation", "town",
        ("Its seat is in {o}.", "It has had its offices in {o} since {year}."),
        ("the town where {s} has its seat",),
        ("In which town is the seat of {s}?", "Where does {s} have its seat?"),
    ),
    Relation(
        "organisation_merger", "organisation", "organisation",
        ("In {year} it took over the {o}.", "It absorbed the {o} in {year}."),
        ("the organisation that {s} took over",),
        ("Which organisation did {s} take over?",),
    ),
    Relation(
        "organisation_award", "organisation", "award",
        ("Each year it gives the {o}.", "It is known for the {o}, which it has given since {year}."),
        ("the award given by {s}",),
        ("Which award is given by {s}?",),
    ),
    Relation(
        "work_maker", "work", "person",
        ("It was {made_by} by {o}.", "It was {made_by} by {o} in {n} weeks."),
        ("the {maker} of {s}",),
        ("Who is the {maker} of {s}?", "By whom was {s} {made_by}?"),
    ),
    Relation(
        "work_setting", "work", "town",
        ("It shows everyday life in {o}.", "Its subject is a summer in {o}."),
        ("the town depicted in {s}",),
        ("Which town is depicted in {s}?",),
    ),
    Relation(
        "work_dedicatee", "work", "person",
        ("It is dedicated to {o}.", "It bears a dedication to {o}."),
        ("the person to whom {s} is dedicated", "the dedicatee of {s}"),
        ("To whom is {s} dedicated?",),
    ),
    Relation(
        "work_sponsor", "work", "organisation",
        ("It was commissioned by the {o}.", "The {o} commissioned it in {year}."),
        ("the organisation that commissioned {s}",),
        ("Which organisation commissioned {s}?", "By which organisation was {s} commissioned?"),
    ),
    Relation(
        "award_founder", "award", "person",
        ("It was endowed by {o}.", "It was endowed in the will of {o}."),
        ("the person who endowed {s}",),
        ("Who endowed {s}?", "By whom was {s} endowed?"),
    ),
    Relation(
        "award_first", "award", "person",
        ("It was first won by {o}.", "The first winner was {o}."),
        ("the first winner of {s}",),
        ("Who was the first winner of {s}?", "Who first won {s}?"),
    ),
    Relation(
        "ship_captain", "ship", "person",
        ("Its first captain was {o}.", "On its maiden voyage it was under the command of {o}."),
        ("the first captain of {s}",),
        ("Who was the first captain of {s}?",),
    ),
    Relation(
        "ship_owner", "ship", "organisation",
        ("It was built for the {o}.", "It was built for the {o}, which paid for it in {n} instalments."),
        ("the organisation for which {s} was built",),
        ("For which organisation was {s} built?",),
    ),
    Relation(
        "ship_wreck", "ship", "island",
        ("It ran aground off {o} in {year}.", "It was wrecked on the reefs of {o}."),
        ("the island off which {s} was wrecked",),
        ("Off which island was {s} wrecked?",),
    ),
    Relation(
        "river_source", "river", "mountain",
        ("It rises on {o}.", "Its source is on {o}."),
        ("the mountain on which {s} rises",),
        ("On which mountain does {s} rise?", "On which mountain is the source of {s}?"),
    ),
    Relation(
        "river_mouth", "river", "lake",
        ("It flows into {o}.", "It reaches {o} after {n} waterfalls."),
        ("the lake into which {s} flows",),
        ("Into which lake does {s} flow?",),
    ),
    Relation(
        "river_charted", "river", "person",
        ("It was first charted by {o} in {year}.", "The first chart of it was drawn by {o}."),
        ("the person who first charted {s}",),
        ("Who first charted {s}?",),
    ),
    Relation(
        "mountain_climber", "mountain", "person",
        ("It was first climbed by {o} in {year}.", "The first ascent was made by {o}."),
        ("the first climber of {s}", "the person who first climbed {s}"),
        ("Who first climbed {s}?", "Who made the first ascent of {s}?"),
    ),
    Relation(
        "lake_island", "lake", "island",
        ("Its largest island is {o}.", "In the middle of it lies {o}."),
        ("the largest island in {s}",),
        ("What is the largest island in {s}?",),
    ),
    Relation(
        "lake_town", "lake", "town",
        ("The largest town on its shore is {o}.", "Of the towns on its shore, {o} is the largest."),
        ("the largest town on the shore of {s}",),
        ("What is the largest town on the shore of {s}?",),
    ),
    Relation(
        "island_owner", "island", "person",
        ("It had been in private hands until {o}, its last private owner, gave it up in {year}.", "Its last private owner was {o}."),
        ("the last private owner of {s}",),
        ("Who was the last private owner of {s}?",),
    ),
    Relation(
        "island_building", "island", "building",
        ("Its only large building is the {o}.", "Apart from the {o}, it has no large building."),
        ("the large building on {s}",),
        ("What is the large building on {s}?",),
    ),
)  # fmt: skip

COMPARISONS: tuple[Comparison, ...] = (
    Comparison("person", "birth", ("Who was born first, {a} or {b}?", "Who is older, {a} or {b}?"), ("Who was born later, {a} or {b}?",)),
    Comparison("building", "year", ("Which was completed first, {a} or {b}?",), ("Which was completed later, {a} or {b}?",)),
    Comparison("organisation", "year", ("Which was founded first, {a} or {b}?",), ("Which was founded later, {a} or {b}?",)),
    Comparison(
        "town", "inhabitants", ("Which town has fewer inhabitants, {a} or {b}?",), ("Which town has more inhabitants, {a} or {b}?",)
    ),
    Comparison("river", "kilometres", ("Which river is shorter, {a} or {b}?",), ("Which river is longer, {a} or {b}?",)),
    Comparison("mountain", "metres", ("Which mountain is lower, {a} or {b}?",), ("Which mountain is higher, {a} or {b}?",)),
    Comparison("ship", "year", ("Which ship was launched first, {a} or {b}?",), ("Which ship was launched later, {a} or {b}?",)),
)


def relations_of(kind: str) -> tuple[Relation, ...]:
    """Return the relations whose subject is of a kind.

    Args:
        kind: a key of `KINDS`.

    Returns:
        The relations, in the order of `RELATIONS`.
    """
    return tuple(relation for relation in RELATIONS if relation.subject == kind)
