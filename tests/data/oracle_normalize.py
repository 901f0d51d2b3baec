"""An independent normalisation: the official rules applied word by word, without regular expressions and without the package.

The official script works on strings with patterns; this one walks over characters and words. A word boundary there is a change between a
character that counts as part of a word (letter, digit, underscore, in the Unicode sense) and one that does not.
"""

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def oracle_normalize(text: str) -> str:
    characters = [character for character in text.lower() if character not in PUNCTUATION]
    runs: list[list[str]] = []
    for character in characters:
        inside = character.isalnum() or character == "_"
        if runs and (runs[-1][0].isalnum() or runs[-1][0] == "_") == inside:
            runs[-1].append(character)
        else:
            runs.append([character])
    kept = [" " if "".join(run) in ("a", "an", "the") else "".join(run) for run in runs]
    return " ".join("".join(kept).split())


def oracle_em(prediction: str, gold: str) -> float:
    return float(oracle_normalize(prediction) == oracle_normalize(gold))


def oracle_f1(prediction: str, gold: str) -> float:
    given, wanted = oracle_normalize(prediction), oracle_normalize(gold)
    for one in (given, wanted):
        if one in ("yes", "no", "noanswer") and given != wanted:
            return 0.0
    left, right = given.split(), wanted.split()
    rest, shared = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    return 2 * shared / (len(left) + len(right)) if shared else 0.0
