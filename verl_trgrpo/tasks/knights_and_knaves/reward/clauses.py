"""Reads one sentence of a Knights-and-Knaves answer, clause by clause; `forms` holds the accepted forms.

A clause is a claim ("Zoey is a knight"), a justification ("because her statement is true") or neutral prose ("the only
consistent assignment is"). Any other clause ends the reading.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from verl_trgrpo.tasks.knights_and_knaves.reward import forms, vocabulary
from verl_trgrpo.tasks.knights_and_knaves.reward.assignment import OTHER_ROLE, Assignment
from verl_trgrpo.tasks.knights_and_knaves.reward.forms import Claim, people_in

_REASONS = frozenset(("because", "since", "as"))
_CONSEQUENCES = frozenset(("so", "therefore", "thus", "hence"))


@dataclass
class Scope:
    """Words that may still be somebody's ("report") or hypothetical ("supposed") when a clause ends; "" if none."""

    kind: str = ""
    speaker: tuple[int, ...] = ()


@dataclass
class Sentence:
    """What a clause has to know about the clauses before it."""

    scope: Scope = field(default_factory=Scope)
    outer_scopes: list[Scope] = field(default_factory=list)  # one per open parenthesis
    claims: list[Claim] = field(default_factory=list)  # all that were found, in order
    last: Claim | None = None  # the last one that was accepted
    reported: Claim | None = None  # what the last report said, where that is one claim
    subject: tuple[int, ...] = ()  # whom the last clause was about
    named: set[int] = field(default_factory=set)  # so far


class ClauseReader:
    """Reads the sentences of an answer into an `Assignment`. Its methods say whether they understood all of it."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._named_before: set[int] = set()  # in the last sentence of the line that named somebody
        self._previous = ""  # kind of the clause before it in the line
        self._report = Sentence()  # the one with the last report

    def start_line(self) -> None:
        """Forgets the line before."""
        self._named_before = set()
        self._previous = ""

    def read_sentence(self, text: str, scope: Scope) -> Scope | None:
        """Reads a sentence that begins in `scope`.

        Returns:
            The scope that is open at its end, or None where the sentence is not understood.
        """
        self._assignment.named.update(people_in(text))
        text = forms.RELATIVE_CLAUSE.sub(self._read_relative_clause, text)
        text = forms.LABELLED_SPEAKER.sub(self._read_label, text)
        sentence = Sentence(scope)
        text = forms.CLAIM.sub(lambda match: _take_claim(sentence, match), text)
        text = vocabulary.IDIOM.sub(lambda match: vocabulary.IDIOM_WORDS[match.lastgroup or ""], text)
        tokens = text.split()
        if not tokens:  # "! Zoey is a knight"
            return None
        for before, clause, after in _clauses(tokens):
            if clause and not self._read_clause(sentence, before, clause, after):
                return None
            if after == "(":
                sentence.outer_scopes.append(sentence.scope)
            elif after == ")" and sentence.outer_scopes:
                sentence.scope = sentence.outer_scopes.pop()
        if tokens[-1] in vocabulary.SEPARATORS and sentence.scope.kind:
            return None  # "Oliver says that Zoey is a knight," and the next line goes on
        self._named_before = sentence.named or self._named_before
        return sentence.scope

    def _read_relative_clause(self, match: re.Match[str]) -> str:
        if match["truthful"] or match["lying"]:
            self._assignment.imply(people_in(match["who"]), "knight" if match["truthful"] else "knave")
        return match["who"]

    def _read_label(self, match: re.Match[str]) -> str:
        self._assignment.imply(people_in(match["who"]), match["role"])
        return match["who"]

    def _read_clause(self, sentence: Sentence, before: str, words: list[str], after: str) -> bool:
        """Reads a clause between the separators `before` and `after`."""
        start = int(len(words) > 1 and words[0] in vocabulary.ORDINALS and words[1].startswith("CLAIM"))
        while start < len(words) and words[start] in vocabulary.OPENERS:
            start += 1
        core = words[start:]
        rest = " ".join(core[1:])
        kind = ""
        if core and core[0].startswith("CLAIM") and (rest in vocabulary.CLAIM_TAILS or rest.startswith("rather than")):
            if words[0] not in vocabulary.VERB_OPENERS and self._accept_claim(
                sentence, before, sentence.claims[int(core[0][5:])]
            ):
                self._previous = kind = "claim"
            if rest.startswith("rather"):
                return bool(kind) and self._read_clause(sentence, "", core[1:], after)
        elif match := forms.JUSTIFICATION.fullmatch(" ".join(words)) or forms.JUSTIFICATION.fullmatch(" ".join(core)):
            kind = self._accept_justification(sentence, before, after, match)
        elif sentence.scope.kind != "supposed" and vocabulary.is_neutral(words, after):
            kind = "neutral"
        self._previous = kind
        sentence.named.update(people_in(" ".join(words)))
        return bool(kind)

    def _accept_claim(self, sentence: Sentence, before: str, claim: Claim) -> bool:
        """Takes a claim whose clause holds nothing else, unless it may be reported, hypothetical or unclear."""
        reported, consequence = sentence.reported, before in _CONSEQUENCES and sentence.scope.kind == "report"
        if claim.form == "pronoun" and consequence:
            claim.people = sentence.scope.speaker  # "Oliver says Zoey is a knave, so he is ..."
        elif claim.form == "elided":
            claim.people = sentence.subject if self._previous in ("claim", "truthful", "lying") else ()
        elif claim.form in ("pronoun", "negated"):
            claim.people = claim.people or self._resolve(sentence, "")
        if claim.form in ("elided", "pronoun", "negated") and len(claim.people) != 1:
            return False
        # "Oliver says Zoey is a knave, so Ava is a knight" may be Oliver's reasoning; "so Oliver is a knave" is not
        by_us = consequence and bool(claim.people) and claim.people == sentence.scope.speaker
        if before == "but" and sentence.scope.kind == "report" and reported is not None:
            # "Oliver says Zoey is a knave, but Zoey is a knight"
            plain = reported.form == claim.form == "subject_first"
            by_us = plain and reported.people == claim.people and reported.role != claim.role
        if (sentence.scope.kind and not by_us) or not self._find_people(claim):
            return False
        if claim.form == "count":
            self._assignment.counts.append((claim.role, claim.number or 0))
        elif claim.form == "negated":
            self._assignment.imply(claim.people, OTHER_ROLE[claim.role])
        else:
            self._assignment.claim(claim.people, claim.role)
            sentence.last = claim
        if claim.only:
            others = (person for person in self._assignment.people if person not in claim.people)
            self._assignment.imply(others, OTHER_ROLE[claim.role])
        sentence.subject = claim.people
        sentence.named.update(claim.people)
        return True

    def _find_people(self, claim: Claim) -> bool:
        """Resolves "everyone" and "everyone else"; False where they may mean fewer people."""
        everybody, mentioned, asserted = self._assignment.people, self._assignment.mentioned, self._assignment.asserted
        if claim.form == "everyone":
            claim.people = tuple(everybody)
            return len(mentioned) in (0, len(everybody)) and claim.number in (None, len(everybody))
        if claim.form == "everyone_else":
            claim.people = tuple(person for person in everybody if person not in asserted)
            others_known = (asserted or self._assignment.counts) and self._assignment.named == asserted
            return bool(claim.people and others_known) and claim.number in (None, len(claim.people))
        return True

    def _accept_justification(self, sentence: Sentence, before: str, after: str, match: re.Match[str]) -> str:
        """The kind of the justification, or "" where it may not stand here."""
        form = match.lastgroup or ""
        supposed = sentence.scope.kind == "supposed"
        accepted = not supposed
        if form in ("truthful", "lying", "true_statement", "false_statement"):
            accepted = not supposed and self._accept_truthfulness(sentence, before, match, form)
        elif form == "remark_false":
            absurd = supposed or bool(match["remark_false__contradiction"])
            accepted = self._previous == "report" or (absurd and self._previous in ("supposed", "would"))
            self._judge_report(False)
        elif form == "remark_true":
            accepted = not supposed and (bool(match["remark_true__it"]) or self._previous == "report")
            self._judge_report(True)
        elif form == "fits":
            self._assignment.imply(people_in(match["fits__who"] or ""), match["fits__role"])
        elif form == "not_other":
            role = match["not_other__role"].removesuffix("s")
            accepted = self._previous == "claim" and sentence.last is not None and sentence.last.role != role
        elif form == "supposed":
            reason = before in ("because", "since") and sentence.last is not None
            accepted = reason or (not before and bool(match["supposed__were"]))
            sentence.scope = Scope("supposed")
        elif form == "would":
            reason = supposed or (bool(match["would__otherwise"]) and self._previous == "claim")
            accepted = reason and forms.WOULD_WORDS.issuperset(match["would__content"].split())
            sentence.scope = Scope("supposed")
        elif form == "report":
            # a report before a colon announces the lines below it as reported
            accepted = not supposed and after != ":" and self._accept_report(sentence, match)
        return form if accepted else ""

    def _accept_report(self, sentence: Sentence, match: re.Match[str]) -> bool:
        """Somebody says something about roles."""
        content = match["report__content"].split()
        claims = [sentence.claims[int(word[5:])] for word in content if word.startswith("CLAIM")]
        sentence.scope = Scope("report", self._resolve(sentence, match["report__who"]))
        sentence.reported = claims[0] if len(content) == len(claims) == 1 else None
        sentence.named.update(person for claim in claims for person in claim.people)
        self._previous, self._report = "report", sentence
        if match["report__rightly"] or match["report__wrongly"]:
            self._judge_report(bool(match["report__rightly"]))
        return forms.is_report(content)

    def _judge_report(self, true: bool) -> None:
        """What was just reported is said to be true or false, which implies the speaker's role and maybe another."""
        if self._previous != "report":
            return
        self._assignment.imply(self._report.scope.speaker, "knight" if true else "knave")
        if self._report.reported is not None:
            self._imply_said(self._report.reported, true)

    def _imply_said(self, claim: Claim, true: bool) -> None:
        """A claim of somebody else is said to be true or false."""
        if len(claim.people) == 1:
            as_said = true != (claim.form == "negated")
            self._assignment.imply(claim.people, claim.role if as_said else OTHER_ROLE[claim.role])

    def _accept_truthfulness(self, sentence: Sentence, before: str, match: re.Match[str], form: str) -> bool:
        """Somebody tells the truth or lies: that implies a role without asserting it."""
        who = match[f"{form}__who"]
        sentence.subject = self._resolve(sentence, who) if who else sentence.subject
        true = form.startswith("tru")
        self._assignment.imply(sentence.subject, "knight" if true else "knave")
        if form.endswith("_statement") and (said := match[f"{form}__said"]):
            self._imply_said(sentence.claims[int(said[5:])], true)
        # an unclear "she" does no harm in a reason, but by itself "she lies" might take back any claim
        return bool(sentence.subject) or (bool(who) and before in _REASONS)

    def _resolve(self, sentence: Sentence, who: str) -> tuple[int, ...]:
        """Names, or for a pronoun the only person named before it in the sentence (or the one before); else empty."""
        named = sentence.named or self._named_before
        return people_in(who) or (tuple(named) if len(named) == 1 else ())


def _take_claim(sentence: Sentence, match: re.Match[str]) -> str:
    """Notes a claim in the sentence and returns the token that takes its place."""
    claim = forms.parse_claim(match)
    if claim is None:
        return "?"  # no word of any form
    sentence.claims.append(claim)
    return f"CLAIM{len(sentence.claims) - 1}"


def _clauses(tokens: list[str]) -> Iterator[tuple[str, list[str], str]]:
    """Each clause (maybe empty) with the separators before and after it; "" at the ends of the sentence."""
    before, clause = "", list[str]()
    for token in tokens:
        # "then" only begins a clause: "Zoey is a knight then Oliver is a knave" may be a condition
        adverb = (token == "then" and clause and clause[0] != "if") or (
            token in _CONSEQUENCES and clause and clause[-1] in ("is", "are", "must")
        )
        if token not in vocabulary.SEPARATORS or adverb:
            clause.append(token)
        else:
            yield before, clause, token
            before, clause = token, []
    yield before, clause, ""
