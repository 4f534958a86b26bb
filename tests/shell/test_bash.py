"""What is read of a script are the words that bash itself gives to its programs."""

import subprocess
import sys

import pytest

from verl_trgrpo.shell.bash import _MOST_STEPS, Bash, TooLongError

# Every program that a script calls writes its words to a file, ended by zero bytes, and runs nothing.
HANDLER = r"""
command_not_found_handle() { printf '%s\0' "$@" >> "$OUT"; printf 'END\0' >> "$OUT"; return 0; }
"""
# Scripts for which nothing outside decides.
KNOWN = {
    "words": "run a=1 b=\"x y\" c='$A' d=\\$A e=['p','q'] f=\"[\\\"p\\\"]\" g= '' \"\"",
    "lines": "run a=1 \\\n  b=2 \\\n  c=3\nrun d",
    "comment ends a command": "run a=1 \\\n  b=2 \\\n# c=3 \\\nrun d=4",
    "variables": "A=1; B=$A/b; export C=\"$B c\"; run $C \"$C\" k=$A-$B ${A}x ${B}y z$A",
    "two variables in a path": "A=p; B=q; run $A/$B/c k=$A/x-$B.log $A$B",
    "two variables with a space": 'A="p"; B="q r"; C="$A $B"; run $C "$C" "$A $B x"',
    "many lines in one variable": 'A="\n  x.a=1 \\\n  x.b=2 \\\n"\nB="$A y"\nrun $A $B',
    "defaults": 'A=; run ${A:-x} ${A-x} ${B:-y z} "${B:-y z}" ${B:=w} $B ${B:+s} ${N+t} ${N:-} "${N:-}"',
    "lists in defaults": "A=${N:-[\"/p\"]}; B=\"${N:-['a','b']}\"; C=${N:-\"['$A/x']\"}; run $A \"$B\" $C",
    "sums in defaults": "a=2; b=3; A=${N:-$((a + b))}; B=${N:-$(((a + b) * 2))}; run $A $B",
    "arguments": 'run "$@" $# $1 "${2:-d}" ${9:-none} "${@:2}" $*; shift; run "$@"; set -- p; run "$@"',
    "arrays": 'A=(a "b c" $(echo d)); A+=(e); run "${A[@]}" ${#A[@]} ${A[1]} "${A[*]}" $A; B=(); run x "${B[@]}" y',
    "keyed arrays": 'declare -A M=([a]=1 [b]="2 3"); M[c]=4; k=c; run ${M[a]} "${M[b]}" ${M[$k]}',
    "cut and replaced": "A=qwen/Qwen-7B.tar; run ${A##*/} ${A%.*} ${A#*/} ${A%%/*} ${A//-/_} ${A/Q/q} ${A^^} ${A,,}",
    "parts": "A=qwen; run ${#A} ${A:2:3} ${A:1}",
    "numbers": "a=7; run $((a * 2 + 1)) $((a / 2)) $((-a / 2)) $((a % 4)) $((a > 3 ? 1 : 0)) $[a+1]; ((a += 2)); ((a++)); run $a",
    "conditions": 'A=x; if [ "$A" = "y" ]; then run 1; elif [[ $A == x* && -n $A ]]; then run 2; else run 3; fi',
    "more conditions": '[ -z "$N" ] && run 1; [ -n "$N" ] || run 2; [[ 3 -gt 2 ]] && run 3; ! [ 1 -eq 1 ] || run 4',
    "choices": 'case "$1" in a|b) run ab;; ar*) run ar;; *) run other;; esac; case zz in q) run q;; esac',
    "loops": 'for i in 1 2 x; do [ $i = 2 ] && continue; run $i; done; for i in {3..5}; do run $i; break; done',
    "loops over arguments": 'for j; do run "$j"; done; for j in "$@"; do run "$j"; done',
    "counted loops": "for ((i = 0; i < 3; i++)); do run $i; done; n=0; while [ $n -lt 2 ]; do run w$n; n=$((n + 1)); done",
    "arguments by flags": 'while [[ $# -gt 0 ]]; do case "$1" in arg*) M="$1"; shift;; *) break;; esac; done; run "$M" "$@"',
    "functions": 'f() { local A=$1; run f $A "$@"; return; run no; }; A=0; f p q; run $#; function g { f "$@"; }; g r',
    "subshells": "A=1; (A=2; run $A); run $A; A=3 | run $A; { A=4; run $A; }",
    "programs of words": 'A=/p/q/r.sh; run $(dirname $A) "$(basename "$A" .sh)" `basename $A` $(echo "x  y") "$(echo "x  y")"',
    "redirections": "run a=1 > /dev/null 2>&1; run b 2>&1 | run c; run d &\nwait; run e < /dev/null",
    "here documents": "run a <<EOF\nx $A\nEOF\nrun b",
    "ends": "run 1; exit 0; run 2",
    "eval": "A='run p \"q r\"'; eval $A; eval \"$A\"",
    "quotes within quotes": "run 'a'\\''b' \"c'd'\" $'e\\tf' \"g\\\"h\" x'y'\"z\"",
    "a backslash at the end": "run a \\",
    "braces": "A=1; run f={a,b}.x {p,q}{1,2} d={k:1,l:$A} {x} '{a,b}' \"{a,b}\" [1,2] ${N:-z} {a,{b,c}}d \\{a,b\\}",
    "a part of an array": 'A=(a b c d); run ${A[@]:1:2} "${A[@]:2}" ${A[-1]} "${A[-2]}"',
    "joined by a character": 'A=(1 2 3); run "[$(IFS=,; echo "${A[*]}")]" "${A[*]}"',
    "a variable of a function": "f() { local A=2 B; B=3; C=$A; }; A=1; f; run $A ${B:-none} $C",
    "indirect": "A=B; B=c; run ${!A}",
}  # fmt: skip


def words_of(script, *arguments, environment=None):
    found = []
    bash = Bash("/s.sh", arguments, {"HOME": "/h", **(environment or {})}, lambda _, words: found.append(words))
    bash.follow(script)
    return found, bash


def words_of_bash(script, *arguments, folder):
    out = folder / "out"
    out.write_bytes(b"")
    command = ["bash", "-c", f"{HANDLER}\n{script}\n", "/s.sh", *arguments]
    subprocess.run(
        command, env={"HOME": "/h", "PATH": "/usr/bin:/bin", "OUT": str(out)}, capture_output=True, timeout=600
    )
    calls = out.read_text().split("END\0")[:-1]
    return [call.split("\0")[:-1] for call in calls]


@pytest.mark.parametrize("script", KNOWN.values(), ids=KNOWN)
def test_words_are_those_that_bash_gives_to_its_programs(script, tmp_path):
    arguments = ("arg 1", "arg2")
    found, bash = words_of(script, *arguments)
    expected = words_of_bash(script, *arguments, folder=tmp_path)
    assert expected, "bash called nothing"
    assert sorted(found) == sorted(expected)  # processes of one pipeline run at the same time
    assert not bash.unparsed


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("run a=$NOWHERE", "line 1: $NOWHERE is not set"),
        ("A=$(date)\nrun a=$A/x", "line 1: `date` is not run"),
        ("A=${B:-$(nproc)}\nrun a=$A", "set B before the command"),
        ("if nvidia-smi; then\nA=1\nelse\nA=2\nfi\nrun a=$A", "depends on a condition that is not known"),
        ("run a=$WANDB_API_KEY", "is not read, it has the name of a secret"),
        ("\nrun a=$1", "line 2: $1 is not set; give $1 behind the script's name"),
        ("A=$(echo 8*1.5 | bc)\nrun a=$A", "line 1: `echo 8*1.5 | bc` is not run"),
        ('IFS=, read -ra A <<< "a,b"\nrun a=${A[1]}', "is read while the script runs"),
        ("A=(1 2)\nrun a=${A[@]: -1}", "`${A[@]: -1}` is not known"),
        ("read A\nrun a=$A", "is read while the script runs"),
        ("run a=$(cat /etc/passwd)", "`cat /etc/passwd` is not run"),
    ],
)
def test_what_is_not_known_is_named_with_its_line(script, named):
    [*_, words], bash = words_of(script, environment={"WANDB_API_KEY": "secret"})
    assert named in bash.reason(words[1])
    assert "secret" not in "".join(words).replace("name of a secret", "")


def test_of_two_ways_what_they_have_in_common_is_known():
    script = 'A=(x)\nB=1\nif nvidia-smi; then A+=(y); B=1; else C=2; fi\nrun "${A[@]}" $B c=$C'
    [_, [_, first, second, same, last]], bash = words_of(script)
    assert (first, same) == ("x", "1")
    assert bash.reason(second) and bash.reason(last)


def test_a_way_that_ends_the_script_is_not_followed_further():
    found, _ = words_of("A=1\nif nvidia-smi; then A=2; exit 1; fi\nrun $A")
    assert found[-1] == ["run", "1"]


def test_whether_a_module_or_a_program_is_there_is_asked_and_not_run():
    [no, yes] = (f"$(python3 -c 'import {name}' && echo yes || echo no)" for name in ("nosuchmodule", "json"))
    script = f"D={no}\nE={yes}\nrun $D $E"
    assert words_of(script)[0] == [["run", "no", "yes"]]
    assert words_of("command -v nosuchprogram || run 1; command -v bash > /dev/null && run 2")[0] == [
        ["run", "1"],
        ["run", "2"],
    ]


def test_nothing_is_run_and_nothing_is_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr("os.system", refuse)
    place = tmp_path / "made"
    script = (
        f'touch {place}; echo x > {place}; $(touch {place}); python3 -c \'open("{place}", "w")\'; eval touch {place}'
    )
    words_of(f"{script}\nrun `touch {place}` <(touch {place})")
    assert not place.exists()


@pytest.mark.parametrize(
    "script",
    [
        "while true; do A=1; done",
        "f() { f; f; }; f",
        "for i in {1..999999}; do for j in {1..999999}; do A=1; done; done",
        "A='eval $A'; eval $A",
    ],
)
def test_a_script_without_an_end_is_given_up(script):
    with pytest.raises(TooLongError):
        words_of(script)


def test_a_text_that_grows_without_end_is_not_known():
    [*_, words], bash = words_of('A=x; while [ -n "$A" ]; do A=$A$A; done; run a=$A')
    assert "$A is too long" in bash.reason(words[1])


def test_steps_grow_no_faster_than_the_script():
    def steps(lines):
        return words_of("A=1\nrun $A\n" * lines)[1]._steps

    assert steps(200) < 2.5 * steps(100) < _MOST_STEPS


def test_what_is_nested_too_deeply_is_given_up():
    deep = sys.getrecursionlimit()
    with pytest.raises(TooLongError):
        words_of("(" * deep + "run" + ")" * deep)


@pytest.mark.parametrize("script", ['run a="b', "if x; then", "run ) a", "case x in", "run ${", "$(", "f() {"])
def test_what_is_not_bash_is_named_by_its_line(script):
    _, bash = words_of(f"run 1\n{script}")
    assert bash.unparsed and all(line >= 1 for line in bash.unparsed)
