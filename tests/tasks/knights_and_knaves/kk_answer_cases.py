"""Answers to one puzzle (Zoey and Ava are knights, Oliver is a knave), by what is special about them.

`...` stands for the rest of the right answer: "Oliver is a knave" and "Ava is a knight", on lines of their own.
"""

TRUTH = "(1) Zoey is a knight\n(2) Oliver is a knave\n(3) Ava is a knight"
REST = "\nOliver is a knave\nAva is a knight"
RIGHT_ANSWER = "Zoey is a knight" + REST
ROLES = {"k": "knight", "v": "knave"}


def respond(answer: str) -> str:
    return f"<think>Zoey says so.</think>\n<answer>{answer}</answer>"


def write_truth(names: list[str], roles: str) -> str:
    """The ground truth; `roles` has a letter per person, k for a knight and v for a knave."""
    lines = zip(names, roles, strict=True)
    return "\n".join(f"({k}) {name} is a {ROLES[role]}" for k, (name, role) in enumerate(lines, start=1))


RIGHT = [
    "Zoey is the knight\nOliver is the knave\nAva is the knight",
    "Zoey is knight\nOliver is a knave\nAva is a knight",
    "Zoey is a knight Oliver is a knave Ava is a knight",
    "1) Zoey: knight 2) Oliver: the knave 3) Ava: knight",
    TRUTH,
    RIGHT_ANSWER,
    "1. Zoey is a knight.\n2. Oliver is a knave.\n3. Ava is a knight.",
    "1) Zoey is a knight\n2) Oliver is a knave\n3) Ava is a knight",
    "1.Zoey is a knight\n2.Oliver is a knave\n3.Ava is a knight",
    "(1) Zoey is a knight; (2) Oliver is a knave; and (3) Ava is a knight.",
    "Zoey is a knight, Oliver is a knave, and Ava is a knight.",
    "Zoey is a knight and Oliver is a knave and Ava is a knight",
    "Zoey is a knight. Oliver is a knave. Ava is a knight.",
    "Zoey is a knight;Oliver is a knave,Ava is a knight;",
    "- Zoey is a knight\n- Oliver is a knave\n- Ava is a knight",
    "* Zoey is a knight;\n* Oliver is a knave;\n* Ava is a knight.",
    "• Zoey is a knight,\n• Oliver is a knave,\nand • Ava is a knight",
    "- (3) Ava is a knight\n- (1) Zoey is a knight\n- (2) Oliver is a knave",
    "**Zoey** is a **knight**\n*Oliver* is a knave\n**Ava is a knight.**",
    "ZOEY IS A KNIGHT\noliver is a knave\nAva Is A Knight",
    "Zoey\tis a  knight\r\n\r\nOliver\u00a0is a knave\r\nAva is a knight\r\n",
    RIGHT_ANSWER + "\nZoey is a knight",
    "(1) Zoey is a knight (2) Oliver is a knave (3) Ava is a knight",
    "1) Zoey is a knight 2) Oliver is a knave 3) Ava is a knight",
    "1. Zoey is a knight 2. Oliver is a knave 3. Ava is a knight.",
    "[1] Zoey is a knight [2] Oliver is a knave [3] Ava is a knight",
    "1: Zoey is a knight\n2 - Oliver is a knave\n3.) Ava is a knight",
    "- Zoey is a knight - Oliver is a knave - Ava is a knight",
    "Zoey is a knight -\nOliver is a knave –\nAva is a knight —",
    "Zoey is a knight!\nOliver is a knave !\nAva is a knight!!!",
    "Zoey is a knight! Oliver is a knave! Ava is a knight!",
    "Zoey is a knight — Oliver is a knave—Ava is a knight",
    "Zoey is a knight & Oliver is a knave & Ava is a knight",
    "Zoey: knight\nOliver: knave\nAva: knight",
    "1. **Zoey**: a knight\n2. **Oliver**: a knave\n3. **Ava**: a knight",
    "Zoey - knight, Oliver = knave, Ava : knight",
    "（１）Zoey is a knight\n（２）Oliver is a knave\n（３）Ava is a knight",
    "１．Zoey is a knight；２．Oliver is a knave，３．Ava is a knight！",
    "① Zoey is a knight ② Oliver is a knave ③ Ava is a knight",
    "❶ Zoey is a knight。❷ Oliver is a knave、⑶ Ava is a knight。",
    "1\ufe0f\u20e3 Zoey is a knight\n2\ufe0f\u20e3 Oliver is a knave\n3\ufe0f\u20e3 Ava is a knight",
    "– Zoey is a knight\n— Oliver is a knave\n‑ Ava is a knight",
    "◦ Zoey is a knight\n▪ Oliver is a knave\n+ Ava is a knight",
    "•Zoey is a knight\n·Oliver is a knave\n●Ava is a knight",
    "\u200bZoey is a knight\u200b\nOliver is a\u00adknave\ufeff\n\u2060Ava is a knight",
    "Zoey is a 𝐤𝐧𝐢𝐠𝐡𝐭\nＯｌｉｖｅｒ is a knave\nAva is a knight",
    "Zoey is a knight\u2028Oliver is a knave\rAva is a knight",
    "__Zoey__ is a _knight_\n`Oliver` is a `knave`\n***Ava*** is a **`knight`**",
    f"```\n{TRUTH}\n```",
    f"```text\n{TRUTH}\n```",
    f"\n``` Markdown \n{TRUTH}```\n",
    f"```{TRUTH}```",
]

# One role for every person, and not all right.
WRONG = [
    "Zoey is a knave...",
    "Zoey is a knave, Oliver is a knight, and Ava is a knave.",
    "Zoey: knave\nOliver: knave\nAva: knight",
    "(1) Zoey is a knight (2) Oliver is a knight (3) Ava is a knight",
    "```\nZoey is a knave!...\n```",
    "(1) Zoey is a knave; (2) Oliver is a knave; (3) Ava is a knave",
    "**Ava** is a **knight**. **Oliver** is a **knight**. **Zoey** is a **knight**.",
]

# Right to a reader, but no claims in the form that the prompt asks for.
PROSE = [
    "(1) [Zoey] is a knight\n(2) [Oliver] is a knave\n(3) [Ava] is a knight",
    "| Name | Role |\n|---|---|\n| Zoey | knight |\n| Oliver | knave |\n| Ava | knight |",
    "Knights: Zoey, Ava\nKnaves: Oliver",
    "Both Zoey and Ava are knights, while Oliver is a knave.",
    "Oliver is a knave. Everyone else is a knight.",
    "### Final answer\nZoey is a knight...",
    "So Zoey is a knight...",
    "Zoey is a knight...\nThis satisfies all the statements.",
    "Zoey is a knight because her statement is true...",
    "Zoey is a knight, not a knave...",
]
