"""The page that goes from a raw file to a training runs as it is printed, in an empty directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/your_data.md"
# Set in a developer's shell or by other tests; a new user has none of them.
UNSET = ("PYTHONPATH", "VERL_USE_EXTERNAL_MODULES", "RAY_ADDRESS", "HYDRA_FULL_ERROR")


def test_the_page_runs_as_printed(tmp_path):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["python", "bash", "python", "yaml", "bash"]
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    printed = ""
    for language, text in blocks:
        if language != "bash":
            name = text.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
            continue
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        printed += result.stdout + result.stderr
        assert result.returncode == 0, printed[-6000:]
    assert "0 errors" in printed and "no errors" in printed
    assert re.search(r"step 3 of 3 .*reward", printed), printed[-3000:]
    assert (tmp_path / "runs/mine/mine-grpo/global_step_3/actor").is_dir()
