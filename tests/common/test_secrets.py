"""Passwords in addresses are refused before anything is written or printed, wherever they stand."""

import ast
import io
import itertools
import os
from pathlib import Path

import pytest

from tests.conftest import composed
from tests.launch.launching import composed as composed_run
from tests.work import counted
from verl_trgrpo.checks.check import secret_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.secrets import (
    has_password,
    names_secret,
    password_problems,
    secrets_of,
    without_passwords,
    word_problems,
)
from verl_trgrpo.launch.train import _prepare
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import flat

PASSWORD = "hunter2"
SCHEMES = ("http", "https", "HTTPS", "ftp", "postgresql+psycopg", "redis", "s3", "socks5h", "ray", "tcp")
USERS = ("user", "", "a.b-c%40d", "o:o")
HOSTS = ("host", "host:8000", "127.0.0.1:80", "[::1]:80", "")
ENDS = ("", "/", "/path?x=1#y", " and more")
URL = f"http://user:{PASSWORD}@host:1/x"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_shape_of_an_address_with_a_password_is_found(scheme):
    for user, host, end in itertools.product(USERS, HOSTS, ENDS):
        for password in (PASSWORD, f"{PASSWORD}/x", f"p@{PASSWORD}"):
            url = f"{scheme}://{user}:{password}@{host}{end}"
            assert has_password(url) and has_password(f"see {url}") and has_password([{"a": [url]}]), url
            assert PASSWORD not in without_passwords(f"see {url}") and host in without_passwords(url)
        assert not has_password(f"{scheme}://{host}{end}"), "without a user"
    assert has_password("https://ghp_token@host") and not has_password("ssh://git@host/x")
    assert not has_password("http://host:80/a@b") and not has_password("http://host/?q=a:b@c")
    assert not has_password("see http://host:80, ask me@home") and not has_password("http://[::1]:80/a@b")


@pytest.mark.parametrize("part", ["{} word", "{}\nword", "{}\tword", "word?{}", "word#{}", "{}/@word"])
@pytest.mark.parametrize("start", ["http://", "HTTPS://", "http:/", "http:\\\\", "//", "redis:///"])
def test_so_is_one_written_carelessly(start, part):
    url = f"{start}user:{part.format(PASSWORD)}@host/x"
    assert has_password(f"{url}") and PASSWORD not in without_passwords(f"a: '{url}'")


@pytest.mark.parametrize(
    "key", ["token", "TOKEN", "api_key", "apikey", "access_token", "X-Amz-Signature", "client_secret", "sig"]
)
def test_so_is_a_token_in_the_query(key):
    url = f"https://host/x?a=1&{key}={PASSWORD}&b=2"
    assert has_password(url) and without_passwords(url) == f"https://host/x?a=1&{key}=***&b=2"
    (said,) = word_problems([f"--source={url}"])
    assert said.startswith("--source has") and PASSWORD not in said


def test_every_value_of_a_configuration_is_looked_at():
    config = composed().config
    places = [key for key, value in flat(config).items() if value is None or isinstance(value, (str, list))]
    assert len(places) > 200
    problems = password_problems({key: [URL, 1] if number % 2 else URL for number, key in enumerate(places)})
    assert [problem.partition(" ")[0] for problem in problems] == places
    assert PASSWORD not in "".join(problems)


KEYS = [
    "+actor_rollout_ref.rollout.custom.search.url", "trainer.project_name", "+ray_kwargs.ray_init.address", "data.train_files",
    "actor_rollout_ref.model.path", "+trainer.anything", "++nested.hf.endpoint", "no.such.key", "trainer.logger",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("form", ["{}", "[a,'{}']", "'{}'", "{{a:{{b:'{}'}}}}"])
def test_an_override_with_a_password_is_refused_and_not_repeated(tmp_path, monkeypatch, capfd, key, form):
    monkeypatch.chdir(tmp_path)
    for command in ("train", "validate", "preview"):
        assert main([command, f"{key}={form.format(URL)}"]) == 2
    said = "".join(capfd.readouterr())
    assert said.count("has an address with a password") == 3 and PASSWORD not in said and key in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("written", [f"'{URL}'", "'${oc.env:AN_ADDRESS}'", f"[a, '{URL}']", f"{{a: ['{URL}']}}"])
def test_so_is_a_recipe_with_one_also_by_way_of_the_environment(tmp_path, monkeypatch, written):
    monkeypatch.setenv("AN_ADDRESS", URL)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"defaults: [trgrpo_trainer, _self_]\nmine: {{url: {written}}}\n")
    with pytest.raises(InvalidInputError, match=r"mine\.url(\.a)? has an address with a password") as error:
        compose(recipe)
    assert PASSWORD not in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--model", URL, "--data", "x"], ["eval", f"--agent=url={URL}"], ["data", "build", "math", "--source", URL],
        ["search", "serve", f"--index={URL}"], ["report", URL], ["export", URL, "--out", "x"], [URL], ["doctor", URL],
    ],
)  # fmt: skip
def test_no_command_repeats_a_password(tmp_path, monkeypatch, capfd, words):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = "".join(capfd.readouterr())
    assert "has an address with a password" in said and PASSWORD not in said
    assert not list(tmp_path.iterdir())


SECRETS = {
    "ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY": "4f1c8a",
    "ray_kwargs.ray_init.runtime_env.env_vars.MY_PASSPHRASE": "a b",
    "reward.custom_reward_function.reward_kwargs.api_key": "sk-1",
    "reward.custom_reward_function.reward_kwargs.openai_api_key": "sk-1",
    "reward.custom_reward_function.reward_kwargs.hf_token": "hf_1",
    "mine.password": 123456,
    "token": "t-1",
    "mine.judge_token": "J1",
    "mine.judge_key": "sk-1",
    "mine.headers.x-api-key": "k",
    "mine.headers.X-Auth-Token": "k",
    "mine.headers.Authorization": "k",
    "mine.apiKey": "k",
    "mine.pwd": "k",
    "mine.DB_PASS": "k",
    "ray_kwargs.ray_init.runtime_env.env_vars.GITHUB_PAT": "k",
    "ray_kwargs.ray_init.runtime_env.env_vars.MYSQL_PWD": "k",
    "ray_kwargs.ray_init.runtime_env.env_vars.OPENAI_KEY_2": "k",
}
NO_SECRETS = {
    "data.prompt_key": "prompt", "mine.pad_token": "<pad>", "mine.image_token": "<i>",
    "mine.api_key": None, "my.password": "", "mine.key": "x",
    "mine.secret": "${other.secret}", "mine.token": True, "actor.ppo_max_token_len_per_gpu": 16384, "mine.tokenizer": "x1",
    "mine.keyword": "k1", "mine.pass_k": "k1", "mine.monkey": "k1", "mine.path": "k1", "data.image_key": "image_1",
    "mine.label_key": "answer_text", "teacher_models.one.key": "gsm8k", "mine.api_key_file": "k1", "mine.max_token": 512,
    "mine.api_key_env": "OPENAI_API_KEY", "mine.bypass": "k1", "mine.compat": "k1",
    "ray_kwargs.ray_init.runtime_env.env_vars.TOKENIZERS_PARALLELISM": "true",
    "ray_kwargs.ray_init.runtime_env.env_vars.KEYBOARD": "k1", "ray_kwargs.ray_init.runtime_env.env_vars.MAX_TOKEN": "4096",
    "ray_kwargs.ray_init.runtime_env.env_vars.NCCL_DEBUG": "WARN", "mine.api_keys_file": "x",
}  # fmt: skip


def test_a_value_with_the_name_of_a_secret_is_one():
    values = {**SECRETS, **NO_SECRETS, "mine.name": "${oc.env:JUDGE_TOKEN}-${oc.env:HOME}"}
    found = secrets_of(values)
    assert {secret.key: secret.values({"JUDGE_TOKEN": "j", "HOME": "h"}) for secret in found} == {
        **{key: [str(value)] for key, value in SECRETS.items()}, "mine.name": ["j"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "openai_key",
        "x-api-key",
        "pwd",
        "GITHUB_PAT",
        "MYSQL_PWD",
        "authToken",
        "client_secret",
        "DBPASS",
        "dbpassword",
        "userpwd",
        "PGPASSWORD",
        "clientsecret",
        "SENTRY_DSN",
        "cookie",
        "set-cookie",
        "csrftoken",
    ],
)
def test_a_name_is_that_of_a_secret_at_every_door(name):
    (literal,) = secrets_of({f"mine.{name}": PASSWORD})
    assert literal.values({}) == [PASSWORD]
    for key, variable in ((f"mine.{name}", "JUDGE"), ("mine.note", f"MY_{name.replace('-', '_').upper()}")):
        (referred,) = secrets_of({key: f"${{oc.env:{variable}}}"})
        assert referred.values({variable: PASSWORD}) == [PASSWORD]
    for text in (
        f"https://host/x?a=1&{name}={PASSWORD}&b=2",
        f"http-{name}: {PASSWORD}",
        f"{{'http-{name}': '{PASSWORD}'}}",
    ):
        assert has_password(text) and without_passwords(text) == text.replace(PASSWORD, "***")


WORDS_APART = ("tokenizer", "max_token_len", "keyword", "pass_k", "monkey", "path", "x-keyboard", "bypass", "compass", "surpass",
               "overpass", "cookiecutter", "passenger", "cookie_path")  # fmt: skip


@pytest.mark.parametrize("name", WORDS_APART)
def test_so_is_no_name_that_has_one_in_its_letters(name):
    assert not secrets_of({f"mine.{name}": PASSWORD, "mine.note": f"${{oc.env:{name.upper()}}}"})
    assert not has_password(f"https://host/x?{name}={PASSWORD}") and not has_password(f"http-{name}: {PASSWORD}")
    assert not secrets_of({"a": "${oc.env:PWD}", "data.prompt_key": "prompt", "data.pad_token": "<pad>"})
    assert not secrets_of(flat(composed().config))


@pytest.mark.parametrize("word", ["+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY", "+mine.api_key"])
@pytest.mark.parametrize("written", [PASSWORD, "'${oc.env:JUDGE_TOKEN}'"])
def test_validate_warns_of_what_trackers_would_get_without_its_value(monkeypatch, word, written):
    monkeypatch.setenv("JUDGE_TOKEN", PASSWORD)
    found = secret_findings(RunView(composed([f"{word}={written}"])))
    assert [finding.where for finding in found] == [word.strip("+")] and PASSWORD not in str(found)


# What makes values of a configuration's text, and why no password reaches a record or a message there.
PARSERS = (
    "OmegaConf.load",
    "OmegaConf.from_dotlist",
    "safe_load",
    "safe_load_all",
    "load_yaml",
    "initialize_config_dir",
    "tomllib.load",
)
OWN, WORDS = "files of this package", "word_problems of the command line"
READERS = {
    "checks/algorithm.py OmegaConf.load": OWN,
    "cli/doctor.py initialize_config_dir": "an empty configuration",
    "curation/data_check.py OmegaConf.from_dotlist": WORDS,
    "evaluation/evaluate.py OmegaConf.from_dotlist": WORDS,
    "evaluation/options.py OmegaConf.from_dotlist": WORDS,
    "runs/readers.py OmegaConf.load": OWN,
    "runs/readers.py safe_load": OWN,
    "runs/keys.py safe_load": OWN,
    "checks/machine.py load_yaml": "the door",
    "common/foreign.py OmegaConf.load": "the door",
    "data/prompts.py load_yaml": "the door",
    "runs/compose.py initialize_config_dir": "password_problems of what was composed",
    "runs/run_directory.py OmegaConf.load": "inert takes them out",
}


def parsers(source):
    names = (ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name | ast.Attribute))
    return {parser for name in names for parser in PARSERS if f".{name}".endswith(f".{parser}")}


def test_every_reader_of_a_configuration_is_known():
    assert parsers("OmegaConf.load(x)\nyaml.safe_load(y)\nmap(load_yaml, z)") == {
        "OmegaConf.load",
        "safe_load",
        "load_yaml",
    }
    package = Path(main.__code__.co_filename).parents[1]
    found = {
        f"{file.relative_to(package)} {name}" for file in package.rglob("*.py") for name in parsers(file.read_text())
    }
    assert found == {*READERS}


def test_nothing_of_the_environment_is_recorded(tmp_path, monkeypatch):
    names = {
        f"{service}_{kind}"
        for service in ("WANDB", "HF", "MLFLOW_TRACKING", "MY")
        for kind in ("API_KEY", "TOKEN", "PASSWORD")
    }
    for name in {*names, *os.environ, "VERL_TRGRPO_SEARCH_TOKEN", "HTTPS_PROXY"} - {"PATH", "HOME", "PYTHONPATH"}:
        monkeypatch.setenv(name, URL if "PROXY" in name else PASSWORD)
    run = composed_run(tmp_path, trainer__project_name="${oc.env:MY_TOKEN}")
    assert run.config.trainer.project_name == PASSWORD
    _prepare(run, 1, io.StringIO(), None)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "config.yaml"} <= {path.name for path in written}
    assert not [path for path in written if PASSWORD in path.read_text()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Proxy-Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic ***"),
        ("Cookie: sid=abcd1; csrf=ef2", "Cookie: ***"),
        ("Set-Cookie: sid=abcd1; Path=/", "Set-Cookie: ***"),
        ("a cookie: it is sweet", "a cookie: it is sweet"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("authorization: token abcdefgh", "authorization: token ***"),
        ("https://host/a?token=abcdef&page=2", "https://host/a?token=***&page=2"),
        ("https://host/a?sig=abcdef", "https://host/a?sig=***"),
        ("https://host/a?prompt_key=prompt&max_tokens=5", "https://host/a?prompt_key=prompt&max_tokens=5"),
    ],
)
def test_a_value_of_letters_alone_is_masked_where_its_name_says_enough(text, shown):
    assert without_passwords(text) == shown


@pytest.mark.parametrize(
    ("name", "value"), [("access_token_expiry", 3600), ("hub_token", "none"), ("password_required", True)]
)
def test_what_is_said_of_a_secret_is_none(name, value):
    assert secrets_of({name: value}) == []


@pytest.mark.parametrize("letters", ["pass", "password_", "dbpassX", "cookie-", "secretsecret", "apitoken "])
def test_the_name_of_a_value_is_judged_in_linear_time(letters):
    with counted("verl_trgrpo.common") as work:
        steps = [work.of(names_secret, letters * size, "k") for size in (40, 80, 160)]
    assert steps[2] - steps[1] <= 2.2 * (steps[1] - steps[0])


def test_no_key_of_verl_is_that_of_a_secret():
    """Whatever its value is."""
    keys = flat(composed().config)
    assert len(keys) > 500 and not [key for key in keys if names_secret(key.rpartition(".")[2], "Qx7")]
