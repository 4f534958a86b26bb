r"""The spellings of one sign, command or function: the language that the reader of answers understands.

docs/math_language.md shows this table. A spelling that begins with a backslash is a command, a word or sign in ASCII is plain
text, read where an answer has no backslash, and anything else is a character.
"""

LANGUAGE = {
    r"\frac": r"\dfrac \tfrac \cfrac", r"\binom": r"\dbinom \tbinom", r"\sqrt": "√", r"\cdot": "· ⋅ ∙", r"\times": "×",
    "-": "− ‐ ‑ ‒ – — ―", "/": "÷ ∕ ⁄", r"\pm": "±", r"\mp": "∓", "'": "‘ ’ ′", "''": "″", r"\ldots": r"\dots \cdots",
    r"\geq": r"\geqslant \geqq \ge ≥ ⩾ >=", r"\leq": r"\leqslant \leqq \le ≤ ⩽ <=", r"\neq": r"\ne ≠ !=", "<": r"\lt",
    ">": r"\gt", r"\approx": "≈", r"\equiv": "≡", r"\in": "∈", r"\cup": "∪", r"\cap": "∩", r"\therefore": "∴",
    r"\setminus": r"\smallsetminus \backslash ∖", r"\emptyset": r"\varnothing ∅", r"\infty": r"\infin ∞",
    r"\mathbb{R}": r"\R ℝ", r"\mathbb{Z}": "ℤ", r"\mathbb{N}": "ℕ", r"\mathbb{Q}": "ℚ", r"\mathbb{C}": "ℂ",
    "(": r"\lparen \langle ⟨", ")": r"\rparen \rangle ⟩", "[": r"\lbrack", "]": r"\rbrack", r"\{": r"\lbrace", r"\}": r"\rbrace",
    "|": r"\lvert \rvert \vert", r"\lfloor": "⌊", r"\rfloor": "⌋", r"\lceil": "⌈", r"\rceil": "⌉",
    r"^\circ": r"\degree \degrees °", r"\angle": "∠", ":": r"\colon ∶ ꞉", ",": "、", ".": "。",
    "£": r"\pounds", "€": r"\euro", r"\text{ cents}": "¢",
    r"\alpha": "α alpha", r"\beta": "β beta", r"\gamma": "γ gamma", r"\delta": "δ", r"\epsilon": r"\varepsilon ε", r"\zeta": "ζ",
    r"\eta": "η", r"\theta": r"\vartheta θ theta", r"\lambda": "λ lambda", r"\mu": "μ", r"\nu": "ν", r"\xi": "ξ", r"\pi": "π pi",
    r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ", r"\phi": r"\varphi φ ϕ", r"\chi": "χ", r"\psi": "ψ", r"\omega": "ω omega",
    r"\Gamma": "Γ", r"\Delta": "Δ", r"\Theta": "Θ", r"\Lambda": "Λ", r"\Xi": "Ξ", r"\Pi": "Π", r"\Sigma": "Σ", r"\Phi": "Φ",
    r"\Psi": "Ψ", r"\Omega": "Ω",
}  # fmt: skip
_PLAIN_FUNCTIONS = "sin cos tan cot csc arcsin arccos arctan sinh cosh tanh exp ln log lg"
LANGUAGE |= {rf"\{name}": name for name in _PLAIN_FUNCTIONS.split(" ")}
_PAIRS = [(spelling, name) for name, spellings in LANGUAGE.items() for spelling in spellings.split()]
LATEX_COMMANDS = {spelling[1:]: name for spelling, name in _PAIRS if spelling[0] == "\\"} | {"cr": "\ue000"}
PLAIN_TEXT = {spelling: f"{name} " for spelling, name in _PAIRS if spelling[0] != "\\" and spelling.isascii()}
CHARACTERS = str.maketrans(
    {spelling: name + " " * (name[-1].isalpha()) for spelling, name in _PAIRS if not spelling.isascii()}
)
