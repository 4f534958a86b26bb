"""The sentence forms an answer to a Knights-and-Knaves puzzle may use: claims, and justifications of claims.

Everything here is a permission. No list of suspicious wordings can be complete ("not", "psych!", "das Gegenteil"), so
there is none: a clause that neither has one of these forms nor is neutral prose (`vocabulary`) leaves the whole
answer unparsed.

The forms are regular expressions over a simplified sentence: lower case, one space between tokens, `@0`, `@1` ... for
the people of the puzzle, and, once the claims are found, `CLAIM0`, `CLAIM1` ... for those.
"""

import re
from dataclasses import dataclass


def alternatives(forms: dict[str, str]) -> str:
    """The forms as one alternation; the groups of a form `f` become `f` (all of it) and `f__<group>`."""
    return "|".join(f"(?P<{form}>{pattern.replace('(?P<', f'(?P<{form}__')})" for form, pattern in forms.items())


def words(text: str) -> frozenset[str]:
    """The words of a word list."""
    return frozenset(text.split())


_SPELLED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {word: number for number, word in enumerate(_SPELLED)} | {str(number): number for number in range(1, 100)}
NUMBER = rf"(?:{'|'.join(_SPELLED)}|[1-9][0-9]?)"
ROLE = r"(?:knights?|knaves?)"
_PERSON = r"@[0-9]+"
_MARK = re.compile(r"@([0-9]+)")
# bounded, so that a megabyte of names takes linear time
PEOPLE_LIST = rf"{_PERSON}(?: (?:, and|, &|,|and|&) {_PERSON}){{0,40}}"
_GROUP = r"(?:people|persons|inhabitants|islanders|characters|individuals|of them)"
_ARTICLE = r"(?:(?:a|an|the) )?"
# "a lying knight" would be a contradiction: only the adjective that fits
_KIND = r"(?:(?:truthful|honest|truth-telling) (?=knight)|(?:lying|dishonest) (?=knave))?"
_A_ROLE = rf"{_ARTICLE}{_KIND}(?P<role>{ROLE})"
_ADVERB = r"(?: (?:indeed|clearly|definitely|certainly|therefore|thus|hence|then|also|both|all|in fact|likewise))*"
_ASIDE = r"(?: , (?:too|also|likewise|meanwhile|finally|therefore|however|in turn|on the other hand|by contrast) ,)?"
_BE = (
    r"(?:is|are|must(?: therefore| thus| then| indeed| also| both)? be|has to be|have to be|turns? out to be"
    r"|(?:is|are|has been|have been) (?:(?:found|determined|confirmed|shown|proven|deduced) to be|identified as))"
)
_SIGN = r"(?::(?: is)?|=|-|->|=>|→|⇒)"
_LINK = rf"(?:{_BE}{_ADVERB}(?: :)?|{_SIGN})"

# ---- Claims: who has which role. `who`, `role`, `other`, `number` ... are what `clauses` takes from a form. ----
CLAIM_FORMS = {
    # "Zoey is not a knave but a knight"
    "not_but": rf"(?P<who>{_PERSON}) is not {_ARTICLE}(?P<other>{ROLE}) (?:, )?but {_A_ROLE}",
    # "Zoey is not a knight", "she cannot be a knave": implies the other role, but asserts none
    "negated": rf"(?P<who>{PEOPLE_LIST}|he|she) (?:(?:is|are) not|(?:cannot|can not|can't) be) {_A_ROLE}",
    # "Zoey is a knight", "Zoey: knight", "Zoey's role = knight", "both Zoey and Ava are knights", "only Zoey is a knight"
    "subject_first": (
        rf"(?:(?P<both>both )|(?P<only>only ))?(?P<who>{PEOPLE_LIST})(?: 's (?:role|identity|type))?{_ASIDE}"
        rf" (?:(?P<verb>{_BE}){_ADVERB}(?: :)?|{_SIGN}) {_A_ROLE}"
    ),
    # "the role of Zoey is knight"
    "role_of": rf"(?:the )?(?:role|identity|type) of (?P<who>{_PERSON}) {_LINK} {_A_ROLE}",
    # "Zoey's a knight"
    "contracted": rf"(?P<who>{_PERSON}) 's (?:a|the) (?P<role>{ROLE})",
    # "Zoey (knight)"
    "in_parentheses": rf"(?P<who>{_PERSON}) \( {_A_ROLE} \)",
    # "... and Oliver a knave"
    "without_verb": rf"(?P<who>{_PERSON}) (?:a|the) (?P<role>{ROLE})",
    # "... so he is a knave", "... making him a knave"
    "pronoun": rf"(?:(?:he|she) {_BE}{_ADVERB}|mak(?:es|ing) (?:him|her)) {_A_ROLE}",
    # "(Zoey tells the truth) and is a knight"
    "elided": rf"(?<=and ){_BE}{_ADVERB} {_A_ROLE}",
    # "The (two) knights are Zoey and Ava", "Knaves: Oliver", "the only knave is Oliver". The list stops before a name
    # that is the subject of the next clause ("the knight is Zoey, Oliver is a knave").
    "role_first": (
        rf"(?:(?:the|our) )?(?P<only>only |sole )?(?:(?P<number>{NUMBER}) )?(?P<role>{ROLE})"
        r"(?: \( (?P<gloss>truth-tellers?|liars?) \))?(?: on the island| in this puzzle| here)?"
        rf" (?:is :|are :|is|are|:|=|-) (?P<who>{PEOPLE_LIST})(?! (?:{_LINK} {_ARTICLE}|a |the ){ROLE}(?!\S))(?! 's)"
    ),
    # "Oliver is the only knave"
    "only_one": rf"(?P<who>{_PERSON}) is the (?P<only>only|sole) (?P<role>{ROLE})",
    # "Everyone is a knight", "all three are knaves", "both are knights"
    "everyone": (
        rf"(?:everyone|everybody|all(?: of)?(?: the)?(?: (?P<number>{NUMBER}))?(?: {_GROUP})?"
        rf"|they(?= are (?:all|both))|both(?: of them)?) (?:is|are)(?: all| both)? {_A_ROLE}"
    ),
    # "Everyone else is a knave", "the other two are knights", "the rest are knights"
    "everyone_else": (
        rf"(?:everyone else|everybody else|(?:all )?the others?|the rest|the (?:other|remaining) (?P<number>{NUMBER})"
        rf"(?: {_GROUP})?) (?:is|are)(?: all| both)? {_A_ROLE}"
    ),
    # "There are two knights and one knave", "no knaves"
    "count": rf"(?:there (?:is|are) )?(?:exactly |only )?(?P<number>{NUMBER}) (?P<role>{ROLE})",
    # "Knaves: none"
    "none": rf"(?:the )?(?P<role>{ROLE}) (?:are :|are|:|=|-) none",
}
_GROUPS = {form: tuple(re.findall(r"\?P<(\w+)>", pattern)) for form, pattern in CLAIM_FORMS.items()}
CLAIM = re.compile(rf"(?<!\S)(?:{alternatives(CLAIM_FORMS)})(?!\S)")
# A whole line "Zoey is a knight", "Zoey: knight", or "Zoey, knight" (a table whose columns are spaces or commas).
CLAIM_LINE = re.compile(rf"(?P<who>{_PERSON}) (?:(?:is|:|=|-|,) )?{_ARTICLE}(?P<role>knight|knave)")
# A line "Knights:" above a list of names, and the lines of that list.
HEADING_LINE = re.compile(r"(?:the )?(?:(?:knights|knaves)(?: are)?(?: :)?|(?:knight|knave)(?: is)? :)")
NAMES_LINE = re.compile(rf"{PEOPLE_LIST}|none")

# ---- Justifications: they assert no role, but what they imply must not contradict the roles that are asserted. ----
_CLAIM_TOKEN = r"CLAIM[0-9]+"
_SPEAKER = rf"(?:{_PERSON}|he|she)"
_OWNER = rf"(?:{_PERSON} '(?:s)?|his|her)"
_HIM = rf"(?:{_PERSON}|him|her|himself|herself)"
_UTTERANCE = (
    r"(?:own )?(?:statement|claim|assertion|remark|accusation|declaration|comment)"
    rf"(?: about {_HIM}| that (?P<said>{_CLAIM_TOKEN}))?"
)
_ALWAYS = r"(?:(?:always|indeed|also|both|therefore|thus|clearly|definitely|must) )*"
_TELLS_TRUTH = (
    r"(?:(?:tells?|speaks?|told|spoke) the truth|(?:(?:is|are|be) )?(?:telling the truth|truthful|honest)"
    r"|(?:(?:is|are|be) )?(?:a truth-teller|truth-tellers?))"
)
_LIES = r"(?:lies?|lied|(?:(?:is|are|be) )?(?:lying|a liar|liars?|dishonest)|contradicts? (?:himself|herself))"
_HOLDS = rf"(?:is|was|must be|turns out to be|has to be){_ADVERB}"
_FALSE = r"(?:false|untrue|incorrect|a lie|not true)"
JUSTIFICATION_FORMS = {
    # "Zoey tells the truth", "and is truthful", "(truth-teller)"
    "truthful": rf"(?:(?P<who>{PEOPLE_LIST}|he|she) )?{_ALWAYS}{_TELLS_TRUTH}(?: about {_HIM})?(?: too)?",
    # "Oliver lies", "(liar)"
    "lying": rf"(?:(?P<who>{PEOPLE_LIST}|he|she) )?{_ALWAYS}{_LIES}(?: about {_HIM})?(?: too)?",
    # "her statement is true", "Zoey's claim about Oliver holds"
    "true_statement": (
        rf"(?P<who>{_OWNER}) {_UTTERANCE}"
        rf" (?:{_HOLDS} (?:true|correct|truthful|the truth|consistent|satisfied)|holds|holds true)"
    ),
    # "his statement is false"
    "false_statement": rf"(?P<who>{_OWNER}) {_UTTERANCE} (?:{_HOLDS} {_FALSE}|leads to a contradiction)",
    # "knights always tell the truth", "a knave always lies"
    "rule": (
        r"(?:a |the |each |every |all |both )?(?:knights? (?:always |must |only )*(?:tells?|speaks?) the truth"
        r"|knaves? (?:always |must |only )*(?:lies?|tells? lies))"
    ),
    # ", which is true"; a bare "true" only right after something reported
    "remark_true": (
        r"(?P<it>which|this|that|it) is(?: indeed| also| clearly)? (?:true|correct|consistent|the truth)|true|correct"
    ),
    # ", which is consistent with Zoey being a knight"
    "fits": (
        r"(?:(?:which|this|that) )?(?:is )?(?:consistent with|fits|matches|confirms) "
        rf"(?:(?P<who>{_PERSON})|him|her|his)(?: 's)? being (?:a |the )?(?P<role>knight|knave)"
    ),
    # ", which is false": only right after something reported or supposed, which is then what is false
    "remark_false": (
        r"(?:(?:which|this|that|it) (?:is|would be)(?: indeed| also| clearly| therefore)? )?"
        rf"(?:(?P<contradiction>a contradiction|contradiction|contradictory|impossible|inconsistent)|{_FALSE})"
    ),
    # ", not a knave": only after a claim of the other role
    "not_other": rf"(?:not|rather than) {_ARTICLE}(?P<role>{ROLE})",
    # "if she were a knave": only after "<claim> because" or, with "were", at the start of a sentence; then only "would"
    # clauses may follow
    "supposed": rf"if (?:{_CLAIM_TOKEN}|not|{_SPEAKER} (?:(?P<were>were)|was) (?:not )?{_ARTICLE}{ROLE})",
    # "her statement would be true", "otherwise she would be lying"
    "would": (
        rf"(?P<otherwise>otherwise )?(?:{_OWNER} {_UTTERANCE}|{_SPEAKER}|it|this|that|there) would (?P<content>.+)"
    ),
    # "Oliver says that ...", "he calls Zoey ...": what follows is somebody else's claim
    "report": (
        rf"(?P<who>{PEOPLE_LIST}|he|she) (?:also )?"
        r"(?:(?P<rightly>correctly|truthfully|rightly) |(?P<wrongly>falsely|incorrectly|wrongly) )?"
        r"(?:says?|said|claims?|claimed|states?|stated|asserts?|asserted|declares?|declared|calls?|called|accuses?"
        r"|accused)(?: that)? (?P<content>.+)"
    ),
}
JUSTIFICATION = re.compile(rf"(?:for )?(?:{alternatives(JUSTIFICATION_FORMS)})")
_ROLE_WORDS = "knight knights knave knaves"
REPORTED_WORDS = words(
    f"""{_ROLE_WORDS} a an the of being is are both he she him her himself herself they them or if iff only not at least
    exactly one same different type kind lying lies liar truth tells telling truth-teller"""
)
WOULD_WORDS = words(
    f"""{_ROLE_WORDS} a an the to in not be have lead lie make tell speak create cause contradict lying telling truth
    true false contradiction contradictory impossible inconsistent truthful honest statement claim his her its"""
)
# "Zoey (knight) says ..." implies a role, too.
LABELLED_SPEAKER = re.compile(
    rf"(?P<who>{_PERSON}) \( (?P<role>knight|knave) \)(?= (?:says|said|claims|claimed|states) )"
)
# ", whom she calls a knave," between a name and its verb; the groups `truthful` and `lying` imply a role.
RELATIVE_CLAUSE = re.compile(
    rf"(?P<who>{_PERSON}) (?:,|\() (?:whom {_SPEAKER} (?:calls|called) (?:a )?{ROLE}"
    rf"|who (?:calls|called) {_HIM} (?:a )?{ROLE}"
    rf"|who (?:says|said|claims|claimed|states|stated) (?:that )?{_SPEAKER} is (?:not )?(?:a )?{ROLE}"
    rf"|(?P<truthful>who {_ALWAYS}{_TELLS_TRUTH}|whose statement is true)"
    rf"|(?P<lying>who {_ALWAYS}{_LIES}|whose statement is false)) (?:,|\))(?= (?:is|are|must) )"
)


def is_report(content: list[str]) -> bool:
    """Whether the reported words hold a role, and nothing but roles, people and how they are joined."""
    return any(word.startswith(("CLAIM", "kn")) for word in content) and all(
        word in REPORTED_WORDS or word.startswith(("@", "CLAIM")) for word in content
    )


@dataclass
class Claim:
    """One claim found in a sentence; it counts once the clause around it is understood.

    Attributes:
        form: key of `CLAIM_FORMS`.
        role: "knight" or "knave".
        people: whom it is about; empty for a pronoun and for everyone (else) until it is accepted.
        number: how many people it is about, where it says so.
        only: it says that nobody else has the role.
    """

    form: str
    role: str
    people: tuple[int, ...]
    number: int | None
    only: bool


def people_in(text: str) -> tuple[int, ...]:
    """The people whose marks `@0`, `@1` ... stand in the text, in order."""
    return tuple(map(int, _MARK.findall(text)))


def parse_claim(match: re.Match[str]) -> Claim | None:
    """The claim a match of `CLAIM` makes, or None where it contradicts itself ("Zoey is a knights")."""
    form = match.lastgroup or ""
    group = {name: text for name in _GROUPS[form] if (text := match[f"{form}__{name}"])}
    role, plural = group["role"].removesuffix("s"), group["role"].endswith("s")
    people = people_in(group.get("who", ""))
    number = NUMBERS[group["number"]] if "number" in group else None
    many = len(people) > 1
    if form == "subject_first":
        # "Oliver: knaves" is not clear; "Zoey and Ava: knight" is, "Zoey, Ava: knight" is not
        each = "verb" not in group and " and " in group["who"]
        if (plural and not many) or (many and not plural and not each) or ("both" in group and len(people) != 2):
            return None
    if form == "role_first" and ((many and not plural) or number not in (None, len(people))):
        return None
    if group.get("other", "").startswith(role):  # "not a knight but a knight"
        return None
    if "gloss" in group and (role == "knight") != group["gloss"].startswith("truth"):
        return None
    if "both" in match[0].split():  # a number to everyone and everyone_else only
        if number not in (None, 2):  # "the other three are both knights"
            return None
        number = 2
    elif match[0].startswith("the other ") and number is None:  # of everyone_else; "the others" may be more
        number = 1
    elif form == "none":
        form, number = "count", 0
    return Claim(form, role, people, number, "only" in group)
