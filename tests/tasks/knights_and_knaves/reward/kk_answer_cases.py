"""Answers to one puzzle (Zoey and Ava are knights, Oliver is a knave), by what is special about them.

`...` stands for the rest of the right answer: "Oliver is a knave" and "Ava is a knight", on lines of their own.
"""

TRUTH = "(1) Zoey is a knight\n(2) Oliver is a knave\n(3) Ava is a knight"
REST = "\nOliver is a knave\nAva is a knight"
RIGHT_ANSWER = "Zoey is a knight" + REST

# Understood, and right.
RIGHT = {
    "numbered": [
        TRUTH,
        "1. Zoey is a knight.\n2. Oliver is a knave.\n3. Ava is a knight.",
        "1) Zoey is a knight\n2) Oliver is a knave\n3) Ava is a knight",
        "(1) Zoey is a knight (2) Oliver is a knave (3) Ava is a knight",
        "(1) Zoey is a knight; (2) Oliver is a knave; and (3) Ava is a knight.",
        "1.Zoey is a knight\n2.Oliver is a knave\n3.Ava is a knight",
    ],
    "typography": [
        "(1) [Zoey] is a knight\n(2) [Oliver] is a knave\n(3) [Ava] is a knight",
        "**[Zoey]**: knight\n[OLIVER]'s role: knave\n- [Ava] is a knight.",
        "Knights: [Zoey], [Ava]\nKnaves: [Oliver]",
        "- **Zoey**: Knight\n- **Oliver**: Knave\n- **Ava**: Knight",
        "• Zoey — Knight ✅\n• Oliver — Knave ✅\n• Ava — Knight ✅",
        "ZOEY IS A KNIGHT\nOLIVER IS A KNAVE\nAVA IS A KNIGHT",
        "_Zoey_ is a __knight__\n`Oliver` is a `knave`\n*Ava* is a *knight*",
        "```\nZoey is a knight...\n```",
        "### Final Answer\nZoey is a knight...",
        "Zoey is a 𝐤𝐧𝐢𝐠𝐡𝐭...",
        "Ｚｏｅｙ is a knight...",
        "Zoey\tis a  knight\r\n\r\nOliver\u00a0is a knave\r\nAva is a knight\r\n",
    ],
    "short form": [
        "Zoey: knight\nOliver - knave\nAva = knight",
        "Zoey – Knight, Oliver – Knave, Ava – Knight",
        "Zoey -> knight\nOliver → knave\nAva => knight",
        "Zoey (knight), Oliver (knave), Ava (knight)",
        "Zoey is knight\nOliver is the knave\nAva's role: knight",
        "Zoey’s a knight, Oliver's a knave, and Ava's a knight.",
        "Zoey is a knight, Oliver a knave, and Ava a knight.",
        "Zoey knight\nOliver, knave\nAva\tknight",
        "Zoey→Knight, Oliver->Knave, Ava:Knight",
        "a) Zoey is a knight\nii. Oliver is a knave\n(c) Ava is a knight",
        "Zoey and Ava: Knight\nOliver: Knave",
    ],
    "table": [
        "| Name | Role |\n|---|---|\n| Zoey | Knight |\n| Oliver | Knave |\n| Ava | Knight |",
        "| # | Person | Identity | Reason |\n|:--|:-:|--:|---|\n| 1 | **Zoey** | knight | Her statement is true |\n"
        "| 2 | Oliver | a knave | He lies. |\n| 3 | Ava | knight | She tells the truth |",
        "Zoey | Knight\nOliver | Knave\nAva | Knight",
        "| Role | People |\n|---|---|\n| Knights | Zoey, Ava |\n| Knave | Oliver |",
    ],
    "by role": [
        "The knights are: Zoey, Ava; the knaves are: Oliver",
        "**Knights:** Zoey and Ava\n**Knaves:** Oliver",
        "Knights:\n- Zoey\n- Ava\n\nKnaves:\n- Oliver",
        "Knights (truth-tellers): Zoey, Ava\nKnaves (liars): Oliver",
        "The two knights are Zoey and Ava, and the only knave is Oliver.",
        "The knave is Oliver, Zoey is a knight, and Ava is a knight.",
        "Both Zoey and Ava are knights, while Oliver is a knave.",
        "Zoey, Ava: knights. Oliver: knave.",
        "Oliver is a knave. Everyone else is a knight.",
        "Oliver is a knave.\nEveryone else is a knight.",
        "Oliver is a knave. The other two are both knights.",
        "Oliver is the only knave; the other two are knights.",
        "There are two knights and one knave. Zoey is a knight...",
        "There are 2 knights and 1 knave. Zoey is a knight...",
        "Only Oliver is a knave; Zoey and Ava are knights.",
        "Knights:\n- Zoey,\n- Ava.\n\nKnaves:\n- Oliver.",
    ],
    "introduction": [
        "After checking each statement, the only consistent assignment is:\nZoey is a knight...",
        "Therefore, the final answer is:\n\nZoey is a knight...",
        "By carefully checking every possibility, I found that Zoey is a knight, Oliver is a knave, and Ava is a knight.",
        "The roles of Zoey, Oliver, and Ava are as follows:\nZoey is a knight...",
        "Here is who is a knight and who is a knave:\nZoey is a knight...",
        "Knights always tell the truth, and knaves always lie. Hence Zoey is a knight...",
        "No other assignment works.\nZoey is a knight...",
        "We know that Zoey is a knight, that Oliver is a knave, and that Ava is a knight.",
        "First, Zoey is a knight. Second, Oliver is a knave. Finally, Ava is a knight.",
        "In other words, the solution to the puzzle is that Zoey and Ava are knights, and Oliver is a knave.",
        "It turns out that Zoey is a knight...",
        "The following assignment satisfies all statements:\nZoey is a knight...",
        "Having checked all 8 cases, we conclude: Zoey is a knight; Oliver is a knave; Ava is a knight.",
        "First Zoey is a knight, next Oliver is a knave, and lastly Ava is a knight.",
        "After checking every possibility:\nZoey is a knight...",
    ],
    "conclusion": [
        "Zoey is a knight...\nThis satisfies all the statements.",
        "Zoey is a knight...\n\nThere is no contradiction, so this is the unique solution to the puzzle.",
        "Zoey is a knight...\nEvery other assignment leads to a contradiction.",
        "Zoey is a knight...\nI have verified that each statement is consistent with its speaker's role.",
        "Zoey is a knight...\nThis is the only assignment that satisfies all the given statements.",
        "Zoey is a knight...\nAll other possibilities are ruled out, and everything checks out.",
        "Zoey is a knight...\nVerification:\n- Zoey (knight) says Oliver is a knave: true.\n"
        "- Oliver (knave) says Zoey is a knave: false.",
        "Zoey is a knight...\nSo Zoey is a knight, Oliver is a knave and Ava is a knight.",
    ],
    "justified": [
        "Zoey is a knight because her statement is true.\nOliver is a knave because he lies.\nAva is a knight.",
        "Zoey is a knight, so Oliver, whom she calls a knave, is a knave. Ava is a knight.",
        "Since Zoey is a knight, Oliver is a knave, which means that Ava is a knight.",
        "Zoey is a knight, not a knave; Oliver is a knave and not a knight; Ava is a knight (not a knave).",
        "Zoey is a knight rather than a knave...",
        "Zoey is not a knave but a knight...",
        "Zoey cannot be a knave, so she must be a knight. Oliver is a knave. Ava is a knight too.",
        "Zoey tells the truth and is a knight. Oliver lies, so he is a knave. Ava's statement holds, making her a knight.",
        "Zoey is a knight.\nOliver is a knave because he says that Zoey is a knave, which is false.\nAva is a knight.",
        "Oliver says that Zoey is a knave or Ava is a knave. Zoey is a knight...",
        "Oliver falsely claims that Zoey is a knave, so Oliver is a knave. Zoey is a knight. Ava is a knight.",
        "Zoey is a knight because if she were a knave, her statement would be true, which is impossible...",
        "1. Zoey: Knight – she tells the truth.\n2. Oliver: Knave – he claims that Zoey is a knave, which is false.\n"
        "3. Ava: Knight (truth-teller).",
        "If Zoey were a knave, then Oliver would be a knight. This is a contradiction. Therefore, Zoey is a knight...",
        "Oliver says that Zoey is a knave, but Zoey is a knight, so Oliver is a knave. Ava is a knight.",
        "Oliver says that Zoey is a knave but Zoey is a knight so Oliver is a knave. Ava is a knight.",
        "Zoey is a knight (she says that Oliver is a knave), Oliver is a knave, and Ava is a knight.",
        "Zoey is a knight. She tells the truth. Oliver is a knave. He lies. Ava is a knight, which is consistent with her"
        " being a knight.",
        "Oliver, who lies, is a knave. Zoey and Ava, on the other hand, are knights.",
        "Zoey is a knight. Then Oliver is a knave, and Ava is a knight.",
        "If Zoey were a knave then Oliver would be a knight, which is impossible. Hence Zoey is a knight...",
        "Zoey is a knight, otherwise Oliver would be telling the truth. Oliver is a knave. Ava is a knight.",
        "Oliver says that Oliver is a knight, but Oliver is a knave. Zoey and Ava are knights.",
        "Oliver's claim that Zoey is not a knight is false. Zoey is a knight...",
    ],
}

# Understood, and not right.
WRONG = {
    "definite": [
        "Zoey is a knave...",
        "Zoey: knave\nOliver: knight\nAva: knave",
        "Knights: Oliver\nKnaves: Zoey, Ava",
        "Everyone is a knight.",
        "Knights: none\nKnaves: Zoey, Oliver, Ava",
        "Zoey is a knave because her statement is false. The others are knights.",
        "| Zoey | knave |\n| Oliver | knave |\n| Ava | knave |",
    ],
}
