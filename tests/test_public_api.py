"""The public names: what is exported, what it costs, what the reference lists, and what a missing extra says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import verl_trgrpo
import verl_trgrpo.core
from verl_trgrpo.common.extras import EXTRA_OF, install_command, missing_extra

ROOT = Path(__file__).parents[1]


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False)


def test_the_top_level_is_lazy_and_the_core_needs_torch_and_numpy_alone():
    """A finder refuses the modules of all other extras."""
    extras = sorted(name for name, extra in EXTRA_OF.items() if extra != "core")
    result = python(
        "import sys, verl_trgrpo\n"
        "assert not {'torch', 'numpy'} & sys.modules.keys()\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name in {extras!r}: raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from verl_trgrpo import *\n"
        "print(compute_policy_loss.__module__, compute_score.__module__)\n"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["verl_trgrpo.core.losses", "verl_trgrpo.tasks"]


def test_names_of_the_top_level_exist_and_are_typed():
    assert {*verl_trgrpo.__all__} <= {*dir(verl_trgrpo)}
    for name in verl_trgrpo.__all__:
        assert getattr(verl_trgrpo, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        verl_trgrpo.no_such_name  # noqa: B018
    package = Path(verl_trgrpo.__file__).parent
    stub = ast.parse((package / "__init__.pyi").read_text())
    [exported] = [node for node in stub.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(exported.value) == verl_trgrpo.__all__
    assert (package / "py.typed").is_file()


def test_the_reference_lists_the_core_s_names():
    listed = re.findall(r"^::: (verl_trgrpo\.\S+)", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    core = [name.rpartition(".")[2] for name in listed if name.startswith("verl_trgrpo.core.")]
    assert sorted(core) == sorted(verl_trgrpo.core.__all__)
    for name in verl_trgrpo.core.__all__:
        assert getattr(verl_trgrpo.core, name).__doc__


def imported_modules() -> set[str]:
    """Top-level modules that the package imports anywhere, lazy imports included."""
    found = set()
    for file in [*ROOT.glob("verl_trgrpo/**/*.py"), *ROOT.glob("hydra_plugins/**/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - {*sys.stdlib_module_names, "verl_trgrpo", "hydra_plugins"}


def test_every_module_that_is_imported_is_in_an_extra():
    """sympy comes with torch."""
    found = imported_modules()
    assert {"torch", "numpy", "verl"} <= found
    assert found - {"sympy"} - EXTRA_OF.keys() == set()


def test_a_command_without_its_extra_says_which_one_in_a_line():
    result = python(
        "import sys\nsys.modules['tyro'] = None\nsys.argv = ['verl-trgrpo', 'doctor']\n"
        "from verl_trgrpo.__main__ import main\nsys.exit(main())"
    )
    assert result.returncode == 1
    [line] = result.stderr.strip().splitlines()
    assert "tyro" in line and install_command("verl") in line


def test_a_plugin_without_its_extra_says_which_one():
    result = python("import sys\nsys.modules['psutil'] = None\nimport verl_trgrpo.verl_plugin.register")
    assert result.returncode != 0 and install_command("verl") in result.stderr


def test_other_errors_name_no_extra():
    assert missing_extra(ModuleNotFoundError("no", name="my_own_module")) is None
    assert missing_extra(ValueError("no")) is None
