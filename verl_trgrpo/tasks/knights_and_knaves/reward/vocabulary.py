"""The words an answer to a Knights-and-Knaves puzzle may use around its claims: introductions and conclusions.

Like the sentence forms (`forms`), the lists are permissions. Words that negate, doubt, suppose, choose, ask, quote or
restrict (not, or, if, may, now, seems, said, only ...) are in none of them; where such a word belongs to a fixed phrase
that is beyond doubt ("no contradiction"), that phrase is an idiom. Before adding a word, think of what it can say
together with the words that are there ("for" and "now", "in" and "sense", "there is a" and "problem").
"""

import re

from verl_trgrpo.tasks.knights_and_knaves.reward.forms import (
    CLAIM,
    JUSTIFICATION,
    NUMBER,
    PEOPLE_LIST,
    alternatives,
    words,
)

_ASSIGNMENT = r"(?:(?:assignment|solution|answer|combination|option|case|arrangement|scenario)s?|possibilit(?:y|ies))"
_COUNT = rf"(?!no ){NUMBER}"
_ALL = r"(?:all|every|any|each|both)(?: of)?(?: the)?"
_OTHERS = rf"{_ALL} other {_ASSIGNMENT}"
_CONTRADICTION = r"(?:a |any )?(?:contradictions?|inconsistenc(?:y|ies)|conflicts?)"
_CONCLUDE = (
    r"(?:conclude|deduce|infer|determine|find|get|obtain|see(?= that)|know|have|verify|confirm|establish|identify"
    r"|summari[sz]e|check|found|deduced|determined|concluded|established|confirmed|verified|checked)"
)
_WORKING = (
    r"(?:check(?:ing|ed)|consider(?:ing|ed)|examin(?:ing|ed)|test(?:ing|ed)|trying|tried|analy[sz](?:ing|ed)"
    r"|evaluat(?:ing|ed)|explor(?:ing|ed)|enumerat(?:ing|ed)|(?:going|gone|working|worked) through)"
)
# Fixed phrases, read as the words on the right.
_IDIOMS = (
    (r"if and only if", "iff"),
    (rf"(?:without|no|free of|(?:does|do) not (?:lead to|produce|create|cause|give)) {_CONTRADICTION}", "consistent"),
    (rf"{_OTHERS} (?:would )?(?:leads? to|results? in|produces?|creates?|gives?) {_CONTRADICTION}", "consistent"),
    (rf"{_OTHERS} (?:fails?|(?:is|are) impossible|(?:is|are|was|were) (?:ruled out|eliminated))", "consistent"),
    (rf"no other {_ASSIGNMENT} (?:works?|exists?|fits?|(?:is|are) (?:possible|consistent))", "consistent"),
    (rf"no other {_ASSIGNMENT} (?=satisf(?:y|ies) (?:all|every|each|the|both)|is consistent with)", "this "),
    (rf"(?:assuming )?otherwise (?:leads to|there is|we get) {_CONTRADICTION}", "consistent"),
    (rf"(?:exactly|only) one (?=(?:\w+ )?{_ASSIGNMENT})", ""),
    (rf"(?:one and )?only (?:possible )?(?=(?:\w+ )?{_ASSIGNMENT})", ""),
    (r"only (?:possible )?way", "solution"),
    (
        rf"(?:having |(?:we|i)(?: have|'ve)? )?{_WORKING} {_ALL}(?: {_COUNT})?(?: possible)? {_ASSIGNMENT}",
        "considering",
    ),
    (rf"(?:all|the|these)(?: of the)? {_COUNT} (?=people|inhabitants|islanders|characters|statements|claims)", ""),
    # no neutral word: "every assignment works" denies that the answer is the only one
    (rf"{_ALL} {_ASSIGNMENT}", "?"),
    (
        rf"(?<!all )(?:we|i)(?: can| have|'ve)?(?: now| then| also| therefore| thus| hence| finally)* {_CONCLUDE}",
        "concluding",
    ),
    (
        r"let(?:'s| us| me) (?:conclude|summari[sz]e|recap|list|verify|check|confirm)|to (?:summari[sz]e|conclude|sum up)",
        "concluding",
    ),
    (r"can be (?:verified|checked|confirmed|seen)", "is confirmed"),
    (r"who is a knight and who is a knave|who(?:'s| is) (?:who|what)", "roles"),
    (rf"(?:identities|roles|types) of {PEOPLE_LIST}", "roles"),
    (rf"{PEOPLE_LIST} have the following (?:roles|identities|types)", "roles"),
    (r"given (?=the|these|this|all)", "considering "),
    (r"given (?=statements|conditions|clues|constraints|information|puzzle|facts|premises)", ""),
    (r": (?=(?:which is |this is )?(?:true|false|correct|a lie)(?!\S))", ", "),
    (r"it turns out|it can be (?:concluded|deduced|inferred)|(?:we|i) can say", "it follows"),
    (r"(?:after|by|upon) (?:testing|trying)", "considering"),
    (r"having (?:considered|examined|checked|tested|tried|analy[sz]ed)", "considering"),
    (r"(?:answer|solution) to (?:the|this) (?:question|problem|puzzle|riddle)", "solution"),
    (r"(?:solves|resolves) (?:the|this) problem", "solves"),
    (r"checks? out|makes sense", "holds"),
    (r"gives us", "gives"),
    (r"(?:this|which|that) tells us", "it follows"),
    (r"with certainty", "certainly"),
    (r"process of elimination", "elimination"),
    (r"leads to a feasible solution", "consistent"),
    (r"(?:statements|statement|claims|claim) made(?: by (?:each|every|all))?", "statements"),
    (r"agrees? with", "matches"),
    (r"under (?=this|these)", "with "),
    (r"(?:is|are) given (?=below|above)", "is "),
    (rf"(?:out of|of|among) (?:them|(?:the )?{_COUNT})", "overall"),
    (r"as well|in the end|in turn|in other words|in (?:summary|short|conclusion|total)", "overall"),
)
IDIOM_WORDS = {f"idiom{position}": text for position, (_, text) in enumerate(_IDIOMS)}
_IDIOM_FORMS = {f"idiom{position}": phrase for position, (phrase, _) in enumerate(_IDIOMS)}
IDIOM = re.compile(rf"(?<!\S)(?:{alternatives(_IDIOM_FORMS)})(?:(?<=\s)|(?!\S))")

# Between two clauses. A clause is read alone, so these must not change what it means.
SEPARATORS = words(", : - ( ) and so but while whereas because since as therefore thus hence however then who")
# May stand before a claim in the same clause: "it follows that", "the answer is".
ORDINALS = words("first second third fourth fifth sixth seventh next last firstly secondly thirdly lastly")
OPENERS = words(
    """it this that which from means meaning making clear evident implies shows proves establishes confirms follows
    makes concluding the our my final correct answer solution conclusion result is also here finally overall clearly
    indeed consequently accordingly ultimately determined deduced established concluded"""
)
# Verbs among them need a subject: "Oliver is a knave / implies / Zoey is a knight" is a condition.
VERB_OPENERS = words("is means implies shows proves establishes confirms makes")
# May stand after a claim in the same clause; "" is nothing.
CLAIM_TAILS = words("too also indeed here overall") | {""}
# A clause before a colon must hold one of the answer words or work words, so that it announces an answer.
ROLE_NOUNS = words("assignment assignments identity identities role roles type types status statuses nature")
ANSWER_WORDS = ROLE_NOUNS | words(
    """answer answers solution conclusion conclusions result results follows following concluding summary recap outcome
    deduction deductions identification determination truth okay alright final verification explanation reasoning
    justification proof overall finally consequently accordingly"""
)
# Words for what the islanders say, and for the islanders. A clause with the former must also say that it was worked on
# or is satisfied, a clause with the latter must be about roles or about what they say: otherwise it may announce
# quotations ("The statements are:", "The islanders agree:").
UTTERANCES = words(
    """statement statements claim claims clue clues condition conditions constraint constraints premise premises remark
    remarks assertion assertions"""
)
PEOPLE_WORDS = words(
    """person people persons inhabitant inhabitants islander islanders character characters individual individuals
    speaker speakers everyone everybody person's inhabitant's islander's character's individual's speaker's
    everyone's inhabitants' islanders' characters' speakers'"""
)
WORK_WORDS = words(
    """checking checked analyzing analysing analysis examining evaluating evaluation considering reviewing worked going
    comparing combining using applying studying verifying verified verification based elimination examination
    consideration inspection looking enumerating enumeration cross-checking double-checking double-checked
    substituting search solved solves solving resolved resolves"""
)
SATISFIED_WORDS = words(
    """checks consistent consistency consistently satisfy satisfies satisfied satisfying fit fits match matches matched
    matching hold holds work works align aligns aligned fulfill fulfills fulfilled meet meets met confirms confirmed
    true"""
)
_OTHER_NEUTRAL_WORDS = words(
    """a an these those its their there here's that's it's there's every each all both everything of in on at by with
    from for to into after upon through across within via are been has have exactly precisely therefore thus hence
    further detailed information fact facts evidence inference inferences unique valid sole single complete
    definitive coherent sound straightforward certainly logical logically logic deductive careful carefully thorough
    thoroughly systematic systematically methodically rigorous step steps above below determined deduced found
    established derived reached obtained shown proven explained outlined completed leads arrive arrives gives yields
    exists arises arise list listed table truth uniquely together simultaneously fully entirely perfectly completely
    definitely easily one-by-one case-by-case step-by-step done qed respective corresponding exhaustive putting"""
)
# The puzzle itself: a clause about it must be about its solution or say that it was worked on.
PUZZLE_WORDS = words("puzzle puzzle's riddle island")
NEUTRAL_WORDS = (
    OPENERS
    | ANSWER_WORDS
    | UTTERANCES
    | PEOPLE_WORDS
    | WORK_WORDS
    | SATISFIED_WORDS
    | PUZZLE_WORDS
    | _OTHER_NEUTRAL_WORDS
)
# No clause by themselves: they go with what stands after the separator ("all but Zoey are knights").
_FRAGMENTS = words("all every each both everything these those") | VERB_OPENERS - {"is"}
_QUESTIONS = [["is", word] for word in ("it", "this", "that", "there")]
TABLE_WORDS = words(
    """name names person people inhabitant islander character role identity type status who is the reason reasoning why
    explanation justification answer conclusion final #"""
)
# A name that is one of these words is recognised in its given spelling only.
KNOWN_WORDS = (
    NEUTRAL_WORDS
    | SEPARATORS
    | TABLE_WORDS
    | words(" ".join(re.findall(r"[a-z]+", CLAIM.pattern + JUSTIFICATION.pattern)))
)


def is_neutral(clause: list[str], after: str) -> bool:
    """Whether a clause without claims and names, followed by the separator `after`, cannot change what a claim says."""
    if len(clause) == 1 and clause[0] in ORDINALS:
        return True
    said = set(clause)
    if after == "but" or said <= _FRAGMENTS:
        return False
    if not said <= NEUTRAL_WORDS or clause[-1] == "a" or clause[:2] in _QUESTIONS:  # "Solution A:"
        return False
    if said & UTTERANCES and not said & (WORK_WORDS | SATISFIED_WORDS):
        return False
    if said & PEOPLE_WORDS and not said & (ROLE_NOUNS | UTTERANCES):
        return False
    if said & PUZZLE_WORDS and not said & (WORK_WORDS | SATISFIED_WORDS | ANSWER_WORDS):
        return False
    return after != ":" or bool(said & ANSWER_WORDS) or (len(clause) > 1 and bool(said & WORK_WORDS))
