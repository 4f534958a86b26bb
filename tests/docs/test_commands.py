"""Every command of the pages is one that can be typed: its program, module, script or target of make exists."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Programs of others, and words of the shell.
OTHERS = {
    "git", "pip", "docker", "sbatch", "sky", "kubectl", "export", "source", "hf", "cosmic-ray", "pre-commit", "ray", "mkdir",
    "tensorboard", "mlflow", "wandb", "uv", "torchrun", "nvidia-smi", "cd", "srun", "helm", "cr-report", "cr-filter-operators",
    "curl", "xz",
}  # fmt: skip


def command_lines(text):
    """The logical lines of the shell blocks of a page, without comments, assignments in front and substitutions."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removesuffix("; done"), comments=True)
            words = words[words.index("do") + 1 :] if "do" in words else words
            if re.match(r"[A-Z_]+=\$\(", line):  # the output of a program of the page
                continue
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            for end in ("|", ">", "&", "&&", ";", "2>&1"):
                words = words[: words.index(end)] if end in words else words
            if words:
                yield words


def problem(words):
    """What is wrong with a command; "" if nothing is."""
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program in ("...", "done") or "=" in program:  # the rest of somebody's own command, or overrides alone
        return "" if all("=" in word or word.startswith("--") for word in rest) else "not overrides"
    if program == "verl-trgrpo":
        return ""  # tests/cli/test_printed_commands.py reads their options
    if program == "make":
        targets = [word for word in rest if "=" not in word and not word.startswith("-")]
        makefile = (ROOT / "Makefile").read_text()
        return "; ".join(f"no target {target}" for target in targets if f"\n{target}:" not in makefile)
    if program in ("python", "python3"):
        return of_python(rest)
    if program == "bash":
        return "" if rest[0] == "SCRIPT.sh" or (ROOT / rest[0]).is_file() else f"no script {rest[0]}"
    return "" if program in OTHERS else f"{program} is not known"


def of_python(words):
    if words[0] == "-m":
        module = words[1]
        own = module.split(".")[0] in (
            "verl_trgrpo",
            "studies",
            "examples",
            "tests",
            "data_prep",
            "recipes",
            "benchmarks",
        )
        found = [ROOT / f"{module.replace('.', '/')}{end}" for end in (".py", "/__main__.py", "/__init__.py")]
        return "" if not own or any(path.is_file() for path in found) else f"no module {module}"
    return "" if words[0] in ("-c", "make_raw.py") or (ROOT / words[0]).is_file() else f"no program {words[0]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_can_be_typed(page):
    found = {" ".join(words): problem(words) for words in command_lines(page.read_text())}
    assert {line: why for line, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "line",
    [
        "make quikstart", "python docs/nowhere.py",
        "python -m studies.nowhere", "bash nowhere.sh", "nonsense",
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_typed_is_seen(line):
    [words] = command_lines(f"```bash\n{line}  # a comment\n```\n")
    assert problem(words)
