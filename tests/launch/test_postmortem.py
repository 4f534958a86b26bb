"""Why a training failed: logs after public reports, each with what has to be named and what may not be said."""

import pytest

from tests.launch.reported_logs import REPORTS
from tests.pattern_steps import grows, repeated
from tests.work import counted
from verl_trgrpo.launch.postmortem import MemoryKills, failure
from verl_trgrpo.memory.crash import PHASES, remedy_of

RANK = "\x1b[36m(WorkerDict pid={pid})\x1b[0m "
DIED = (
    "\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. To troubleshoot "
    "the problem, check the logs for the dead worker. Worker IP address: 10.0.0.1 Worker port: 10011 Worker PID: 13 Worker exit "
    "type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"
    "Traceback (most recent call last):\n"
    '  File "/x/ray/_private/worker.py", line 882, in get_objects\n    raise value\n'
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: WorkerDict\n\tactor_id: 5ae1\n\tpid: 13\n\tname: oQxgy2WorkerDict_0:0\n"
)


def of(text, pid=13):
    """The lines of a worker."""
    return "".join(f"{RANK.format(pid=pid)}{line}\n" for line in text.strip("\n").split("\n"))


WATCHDOG = """
[rank{rank}]:[E1128 03:11:02.124 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=8181, OpType=ALLREDUCE, NumelIn=1, \
NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
"""
ABORTED = """
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: \
[Rank {rank}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=8181, OpType=ALLREDUCE, NumelIn=1, \
NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:632 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in libc10.so)
*** SIGABRT received at time=1732763462 on cpu 3 ***
"""
# By name: the log, what the explanation has to say.
NATIVE = {
    "a fatal line of glog": (
        of("""
F1129 12:00:00.451233  3821 rdma_transport.cpp:412] Check failed: context_ != nullptr
*** Check failure stack trace: ***
    @     0x7f93f2b2c1c3  google::LogMessage::Fail()
""") + DIED,
        ["Check failed: context_ != nullptr", "its error is above"],
    ),
    "a fatal line of absl": (  # of the form of https://github.com/openxla/xla/issues/47376
        of("""
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
F0000 00:00:1786848211.450142 3821845 shape.h:852] Check failed: buffer != nullptr ((null) vs. (null))
*** Check failure stack trace: ***
""") + DIED,
        ["shape.h:852] Check failed: buffer", "its error is above"],
    ),
    "a fatal line of torch": (  # of the form of https://github.com/om-ai-lab/VLM-R1/issues/257
        of("""
[rank6]:[F429 14:03:49.385461578 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0(default_pg) Rank 6] [PG ID 0 PG GUID \
0(default_pg) Rank 6] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.
""") + DIED,
        ["Terminating the process after attempting to dump debug info", "its error is above"],
    ),
    "a collective operation times out": (
        of(WATCHDOG.format(rank=0)) + of(WATCHDOG.format(rank=3) + ABORTED.format(rank=3)) + DIED,
        ["Watchdog caught collective operation timeout", "ALLREDUCE", "ranks 0, 3 waited", "late or lost"],
    ),
    "NCCL does not start": (
        of("""
node1:13:13 [0] transport/net_socket.cc:88 NCCL WARN NET/Socket : no interface found
node1:13:13 [0] NCCL INFO init.cc:1234 -> 2
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
""") + DIED,
        ["unhandled system error", "ncclSystemError", "NET/Socket : no interface found"],
    ),
    "shared memory is full": (
        of("""
node1:13:99 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-IkzXHr to 9637892 bytes, \
error: No space left on device (28)
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5
""") + DIED,
        ["failed to extend /dev/shm/nccl-IkzXHr", "--shm-size"],
    ),
    "a bus error": (
        of("*** SIGBUS received at time=1732763462 on cpu 12 ***\nPC: @     0x7f4  (unknown)  __memmove_avx512") + DIED,
        ["SIGBUS", "--shm-size"],
    ),
    "a segmentation fault": (
        of("""
Fatal Python error: Segmentation fault

Current thread 0x00007f9f2bfff640 (most recent call first):
  File "/x/flash_attn/flash_attn_interface.py", line 91 in _flash_attn_varlen_forward
  File "/x/torch/_ops.py", line 1123 in __call__
""") + DIED,
        ["Fatal Python error: Segmentation fault", "_flash_attn_varlen_forward", "native code"],
    ),
    "an illegal address": (
        of("""
terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
""") + DIED,
        ["CUDA error: an illegal memory access", "CUDA_LAUNCH_BLOCKING=1"],
    ),
    "a card at fault": (
        of("""
[rank3]:[E1128 03:11:02.124 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread \
terminated with exception: CUDA error: uncorrectable ECC error encountered
CUDA kernel errors might be asynchronously reported at some other API call.
""") + DIED,
        ["uncorrectable ECC error", "nvidia-smi -q -d ECC"],
    ),
    "gloo loses a peer": (
        of("""
terminate called after throwing an instance of 'gloo::IoException'
  what():  [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:42531
""") + DIED,
        ["Connection closed by peer [10.0.0.2]:42531", "another rank ended first"],
    ),
    "a check of Ray": (
        of("""
[2026-11-28 03:11:02,124 C 13 13] core_worker.cc:3210:  Check failed: objects_valid
*** StackTrace Information ***
/x/ray/_raylet.so(+0x1) [0x7f]
""") + DIED,
        ["Check failed: objects_valid"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NATIVE)
def test_a_death_in_native_code_has_its_own_words(tmp_path, name):
    text, expected = NATIVE[name]
    (tmp_path / "log").write_text("step:3 - actor/pg_loss:0.1\n" + text)
    told = failure(tmp_path / "log", code=1)
    assert [part for part in expected if part not in told] == [], told
    assert "killed from outside" not in told and "not known" not in told and "actor_id" not in told


@pytest.mark.parametrize("url", REPORTS)
def test_what_was_reported_is_explained(tmp_path, url):
    report = REPORTS[url]
    (tmp_path / "log").write_text("step:3 - actor/pg_loss:0.1\n" + report.log)
    told = failure(tmp_path / "log", code=1)
    assert [part for part in (*report.cause, report.remedy) if part not in told] == [], told
    assert told.startswith("(") or report.cause[0] in told.partition("\n(")[0], told
    assert [part for part in report.wrong if part in told] == [], told


# Of the forms of https://github.com/ZettaAI/zetta_utils/issues/671, https://github.com/marbl/canu/issues/1067,
# https://github.com/ZwwWayne/K-Net/issues/30 and https://github.com/nextflow-io/nextflow/issues/5932.
SLURM = {
    "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***": "at its time limit",
    "slurmstepd: *** STEP 83.0 CANCELLED AT 2018-08-06T17:21:44 DUE TO TIME LIMIT on n447 ***": "at its time limit",
    "slurmstepd-gpu20-15: error: *** STEP 9411285.0 ON gpu20-15 CANCELLED AT 2022-05-17T17:58:10 ***": "whoever cancelled it",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=113.0. Some of the step tasks have been OOM Killed.": "sbatch --mem",
}


@pytest.mark.parametrize("line", SLURM)
@pytest.mark.parametrize("after", ["", DIED, "srun: error: n1: tasks 2,4: Terminated\n"])
def test_a_scheduler_that_ends_the_job_is_the_cause(tmp_path, line, after):
    log = tmp_path / "log"
    for before in ("step:3 - a:1\n", of(HANDLED) + "step:3 - a:1\nstep:4 - a:1\n"):
        log.write_text(f"{before}{line}\n{after}")
        told = failure(log, code=-15)
        assert told.startswith(line) and SLURM[line] in told and "CUDA" not in told
        assert ("time limit" in told) == ("at its" in SLURM[line])


HANDLED = """
Traceback (most recent call last):
  File "/x/verl/workers/rollout.py", line 12, in generate
    allocate()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
STEPS = "(TaskRunnerV1 pid=9) step:5 - actor/pg_loss:0.1\n(TaskRunnerV1 pid=9) step:6 - actor/pg_loss:0.1\n"


@pytest.mark.parametrize(
    "handled", [of(HANDLED), of("Fatal Python error: Aborted"), of("OSError: No space left on device") + DIED]
)
def test_what_was_said_before_steps_that_went_on_is_no_cause(tmp_path, handled):
    log = tmp_path / "log"
    log.write_text(handled + STEPS + of("\n".join(["all is well"] * 3)) + DIED)
    told = failure(log, code=1)
    assert "(WorkerDict) died: why is not known" in told and "all is well" in told
    assert not [each for each in ("CUDA", "Aborted", "space", "too little", "/dev/shm") if each in told]
    log.write_text(handled + STEPS + of("Traceback (most recent call last):\nKeyError: 'prompts'") + DIED)
    assert failure(log, code=1).startswith("KeyError: 'prompts'")
    log.write_text(handled + STEPS + of("Fatal Python error: Bus error") + DIED)
    assert "its error is above" in failure(log, code=1)


def test_a_step_that_is_logged_late_hides_no_cause(tmp_path):
    log, (step, _) = tmp_path / "log", STEPS.splitlines(keepends=True)
    log.write_text(of(HANDLED) + step)
    assert failure(log, code=1).startswith("torch.OutOfMemoryError")
    log.write_text(of("Fatal Python error: Segmentation fault") + step + DIED)
    assert failure(log, code=1).startswith("Fatal Python error: Segmentation fault\n(a worker process")
    log.write_text(of("!!!!!!! Segfault encountered !!!!!!!") + DIED)
    assert "Segfault encountered" in failure(log, code=1)
    said = of(HANDLED.replace("Traceback", "step:5 - Traceback"))  # the text of a worker is not a step
    log.write_text(of(HANDLED) + of("step:5 - a:1") + of("step:6 - a:1") + said)
    assert failure(log, code=1).startswith("torch.OutOfMemoryError")


LOST = """
ERROR:2026-11-28 03:10:02,124:Error in _run_prompt for uid=3
Traceback (most recent call last):
  File "/x/my_reward.py", line 3, in compute_score
    return 1 / 0
ZeroDivisionError: division by zero
"""
AGENT = "(AgentLoopWorkerTQ pid=71) "
OWN = (
    'Traceback (most recent call last):\n  File "/x/verl/trainer.py", line 9, in fit\n    save()\n',
    "OSError: no such volume\n",
)


ENDS = [
    ("".join(OWN), "OSError: no such volume"), (OWN[0] + "EngineDeadError: see the root cause above\n", "EngineDeadError"),
    (DIED, "(before, AgentLoopWorkerTQ said: ZeroDivision"), (of("Fatal Python error: Aborted") + DIED, "Fatal Python error"),
    ("", "ZeroDivisionError"),
    (OWN[0] + "RuntimeError: Sync replay buffer selected groups with no materializable trajectories.\n", "ZeroDivisionError"),
]  # fmt: skip


@pytest.mark.parametrize("ends", ENDS)
def test_a_prompt_that_was_lost_is_no_cause_of_another_end(tmp_path, ends):
    log = tmp_path / "log"
    lost = "".join(f"{AGENT}{line}\n" for line in LOST.strip().split("\n"))
    log.write_text("step:3 - a:1\n" + lost + lost + ends[0])
    told = failure(log, code=1)
    assert told.startswith(ends[1]) and "ZeroDivisionError" in told, told


@pytest.mark.parametrize(
    "text", ["EngineDeadError: see the root cause above", "RuntimeError: Connection closed by peer"]
)
def test_what_the_driver_raises_is_the_cause_unless_it_reports_another_process(tmp_path, text):
    log, before = tmp_path / "log", of(HANDLED, pid=12)
    for end, cause in ((text, "torch.OutOfMemoryError"), (OWN[1], OWN[1].strip())):
        log.write_text(f"{before}Error executing job with overrides: []\n{OWN[0]}{end}\n")
        told = failure(log, code=1)
        assert told.startswith(cause) and ("the card has too little" in told) == (end == text), told
    log.write_text(f"{OWN[0]}ImportError: optional\nError executing job with overrides: []\n{''.join(OWN)}")
    assert failure(log, code=1).startswith(OWN[1].strip())


@pytest.mark.parametrize(
    "text", ["ValueError: trainer.timeout must be above 0", "FileNotFoundError: /data/gloo/train.parquet"]
)
def test_keys_and_paths_report_no_other_process(tmp_path, text):
    (tmp_path / "log").write_text(f"{of(HANDLED, pid=12)}Error executing job with overrides: []\n{OWN[0]}{text}\n")
    assert failure(tmp_path / "log", code=1).startswith(text)


@pytest.mark.parametrize(
    "front",
    ["Exception in thread Thread-3 (poll):", "Task exception was never retrieved\nfuture: <Task finished>",
     "--- Logging error ---", "Exception ignored in: <function Pool.__del__ at 0x7f>"],
)  # fmt: skip
def test_an_error_that_a_process_survives_is_no_cause(tmp_path, front):
    log, survived = tmp_path / "log", of(f"{front}\n{''.join(OWN)}", pid=12)
    log.write_text(survived + of(HANDLED) + DIED)
    told = failure(log, code=1)
    assert told.startswith("torch.OutOfMemoryError") and "OSError: no such volume" in told, told
    log.write_text(survived + of("".join(OWN).replace("volume", "file"), pid=12) + DIED)
    assert failure(log, code=1).startswith("OSError: no such file")
    log.write_text(survived + DIED)
    told = failure(log, code=1)
    assert told.startswith("(before, WorkerDict said: OSError: no such volume)") and "why is not known" in told


RAISED = """Traceback (most recent call last):
  File "/x/verl/workers/fsdp_workers.py", line 640, in generate_sequences
    {code}
"""
SECOND_LINE = {
    "pydantic": ("""pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (8192) is greater than the derived max_model_len (max_position_embeddings=4096)
""", ["1 validation error for ModelConfig", "max_model_len (8192)"]),
    "weights": ("""RuntimeError: Error(s) in loading state_dict for Qwen2ForCausalLM:
\tsize mismatch for lm_head.weight: copying a param with shape torch.Size([151936, 896]) from checkpoint
""", ["Error(s) in loading state_dict", "lm_head.weight"]),
    "hub": ("""huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-66)

Repository Not Found for url: https://huggingface.co/api/models/Qwen/Qwen2.5-3B-Instrct.
Please make sure you specified the correct `repo_id` and `repo_type`.
""", ["401 Client Error", "Qwen2.5-3B-Instrct"]),
    "omegaconf": ("""omegaconf.errors.ConfigAttributeError: Key 'n_gpus' is not in struct
    full_key: trainer.n_gpus
    object_type=dict
""", ["not in struct", "full_key: trainer.n_gpus"]),
    "ray": ("""RuntimeError: Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.13
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
""", ["Ray: 2.9.0", "Ray: 2.60.0"]),
    "an assertion": ("AssertionError\n", ["AssertionError", "fsdp_workers.py, line 640, generate_sequences"]),
}  # fmt: skip


@pytest.mark.parametrize(
    "front", ["", RANK.format(pid=13), "(EngineCore_DP0 pid=77) ERROR 07-29 12:00:00 [core.py:708] "]
)
@pytest.mark.parametrize("name", SECOND_LINE)
def test_the_whole_message_is_kept(tmp_path, name, front):
    message, expected = SECOND_LINE[name]
    lines = (RAISED.format(code="assert self._is_rollout") + message).splitlines()
    after = "step:4 - done\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    (tmp_path / "log").write_text("".join(f"{front}{line}\n" for line in lines) + after)
    told = failure(tmp_path / "log")
    assert [part for part in expected if part not in told] == [], told
    assert "HYDRA_FULL_ERROR" not in told and "step:4" not in told


OUT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.\n"
PHASE = {
    "optimizer step": ["update_actor", "train_mini_batch", "optimizer_step", "step"],
    "update": ["update_actor", "forward_backward_batch"],
    "reference": ["compute_ref_log_prob", "infer_batch", "forward_step"],
    "log-probabilities": ["compute_log_prob", "infer_batch", "forward_step"],
    "weight sync": ["update_weights", "get_per_tensor_param", "full_tensor"],
    "wake-up": ["update_weights", "wake_up", "create_and_map"],
    "cache": ["init_device", "determine_available_memory"],
    "engine start": ["init_device"],
    "save": ["save_checkpoint"],
}


@pytest.mark.parametrize(
    "said",
    ["pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.", "triton.runtime.errors.OutOfResources: x",
     "subprocess.TimeoutExpired: Command ['nvcc'] timed out", "_queue.Empty", "SystemExit: no such key"],
)  # fmt: skip
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_cause_has_whatever_name_its_exception_has(tmp_path, said, wrapped):
    head = f"ray.exceptions.RayTaskError({said.partition(':')[0].rpartition('.')[2]}): ray::TaskRunner.run() (pid=13)\n"
    frame = '  File "/x/verl/utils/dataset/rl_dataset.py", line 191, in _read_files_and_tokenize\n    read(file)\n'
    log = tmp_path / "train-1.log"
    log.write_text(
        "Error executing job with overrides: []\nTraceback (most recent call last):\n"
        + (head if wrapped else "") + frame + f"{said}\n\n"
        + "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
        + "".join(f"(raylet) bye {number}\n" for number in range(5))
    )  # fmt: skip
    text = failure(log, 1)
    assert text.startswith(said) and "bye" not in text


@pytest.mark.parametrize("phase", PHASE)
def test_a_card_without_memory_has_a_remedy_by_the_part_of_the_step(tmp_path, phase):
    frames = "".join(f'  File "/x/y.py", line 1, in {name}\n    call()\n' for name in PHASE[phase])
    (tmp_path / "log").write_text(of(f"Traceback (most recent call last):\n{frames}{OUT}"))
    told = failure(tmp_path / "log")
    assert remedy_of(phase) in told and "CUDA out of memory. Tried" in told
    assert PHASE.keys() == PHASES.keys() and len({remedy_of(each) for each in (*PHASE, "")}) == len(PHASES) + 1


def test_what_the_refused_block_was(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"vocab_size": 152064, "hidden_size": 3584}')
    (tmp_path / "config.yaml").write_text(f"actor_rollout_ref: {{model: {{path: {tmp_path}/model}}}}\n")
    frames = '  File "/x/y.py", line 1, in update_actor\n    call()\n'
    for size, part in (
        ("4.64", f"{round(4.64 * 2**30 / 2 / 152064)} tokens in 16 bits"),
        ("1.02", "the output layer, 152064 x 3584 in 16 bits"),
        ("0.01", ""),
    ):
        (tmp_path / "log").write_text(of(f"Traceback (most recent call last):\n{frames}{OUT.replace('2.32', size)}"))
        told = failure(tmp_path / "log")
        assert (
            part in told
            and "the card has too little memory (update)" in told
            and ("for logits" in told) == ("tokens" in part)
        )


def kernel(tmp_path, group=0, machine=0, version=2):
    """What the kernel shows of its kills."""
    (tmp_path / "proc" / "self").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/job\n" if version == 2 else "4:memory:/job\n0::/\n")
    (tmp_path / "proc" / "vmstat").write_text(f"nr_free_pages 5\noom_kill {machine}\n")
    place = tmp_path / "cgroup" / ("job" if version == 2 else "memory/job")
    place.mkdir(parents=True, exist_ok=True)
    name = "memory.events" if version == 2 else "memory.oom_control"
    (place / name).write_text(f"low 0\noom 9\noom_kill {group}\n")
    return tmp_path / "proc", tmp_path / "cgroup"


SILENT = of("ready") + DIED


@pytest.mark.parametrize("version", [1, 2])
def test_the_kernel_is_asked_who_was_killed_for_memory(tmp_path, version):
    (tmp_path / "log").write_text(SILENT)
    kills = MemoryKills(*kernel(tmp_path, 3, 7, version))
    told = failure(tmp_path / "log", kills=kills)
    assert (
        "(WorkerDict) died: why is not known (the kernel ended no process" in told
        and "*13*.err" in told
        and "ready" in told
    )
    kernel(tmp_path, 3, 8, version)
    assert "ended a process of this machine for memory" in failure(tmp_path / "log", kills=kills)
    kernel(tmp_path, 5, 9, version)
    assert "the kernel ended 2 of them for memory: its cgroup reached the limit" in failure(tmp_path / "log", -9, kills)
    assert "why is not known; look in" in failure(tmp_path / "log", kills=MemoryKills(tmp_path / "no", tmp_path / "no"))


@pytest.mark.parametrize("content", [b"oom_kill", b"oom_kill many\n", b"\xff\xfe\n", None])
def test_counters_that_cannot_be_read_are_left_out(tmp_path, content):
    """As in a container that hides them: a directory, a file of another form, or none."""
    proc, groups = kernel(tmp_path)
    for path in (groups / "job" / "memory.events", proc / "vmstat", proc / "self" / "cgroup"):
        path.unlink()
        path.mkdir() if content is None else path.write_bytes(content)
    assert MemoryKills(proc, groups).text() == ""
    (tmp_path / "log").write_text(SILENT)
    assert "why is not known; look in" in failure(tmp_path / "log", kills=MemoryKills(proc, groups))


def test_the_counters_of_this_kernel_are_read():
    """They exist on each Linux from 4.13 on."""
    assert "no process" in MemoryKills().text()


def test_the_signal_that_ended_the_driver_is_named(tmp_path):
    (tmp_path / "log").write_text("step:1\n")
    told = failure(tmp_path / "log", code=-9, kills=MemoryKills(*kernel(tmp_path)))
    assert "ended by SIGKILL: why is not known (the kernel ended no process" in told
    assert "SIGSEGV" in failure(tmp_path / "log", code=-11)


def test_of_the_worker_that_died_its_own_words_are_shown(tmp_path):
    """Another process complains first."""
    other = of("Traceback (most recent call last):\nRuntimeError: peers are gone", pid=12)
    (tmp_path / "log").write_text(
        other + of("Fatal Python error: Bus error\n\nCurrent thread 0x1 (most recent call first):") + DIED
    )
    told = failure(tmp_path / "log")
    assert told.startswith("RuntimeError: peers are gone") and "WorkerDict said: Fatal Python error: Bus error" in told


OWN_ERROR = """Error executing job with overrides: ['a=1']
Traceback (most recent call last):
  File "/x/verl/trainer/main_ppo.py", line 40, in main
    run()
ValueError: the true cause
"""
CAUGHT = (
    'Traceback (most recent call last):\n  File "/x/reward.py", line 3, in score\n    parse()\nValueError: no answer'
)


@pytest.mark.parametrize(
    "line",
    ["Aborted retry 3 of 5", "Aborted requests: 3", "terminate called by the user for request 7", "terminate called after 3",
     "Fatal Python error: printed by a subprocess", "Segmentation fault in answer 3, scored 0", "Bus error count: 0",
     f"ERROR:reward:scoring failed\n{CAUGHT}", f"2026-07-29 12:00:00,123 - reward - WARNING - no score\n{CAUGHT}"],
)  # fmt: skip
def test_an_ordinary_line_is_no_last_word(tmp_path, line):
    (tmp_path / "log").write_text(of(line) + DIED)
    told = failure(tmp_path / "log")
    assert "died: why is not known" in told and told.startswith(("(a worker process", "(before, ")), told


@pytest.mark.parametrize(
    "line",
    ["Aborted (core dumped)", "Aborted", "Segmentation fault", "terminate called without an active exception",
     "terminate called recursively", "terminate called after throwing an instance of 'std::bad_alloc'",
     "Fatal Python error: Segmentation fault", "Fatal Python error: init_fs_encoding: failed to get the codec",
     f"INFO starts\n{CAUGHT}"],
)  # fmt: skip
def test_what_a_runtime_writes_is_one(tmp_path, line):
    (tmp_path / "log").write_text(of(line) + DIED)
    told = failure(tmp_path / "log")
    assert told.startswith(line.rpartition("\n")[2]) and "its error is above" in told


@pytest.mark.parametrize(
    "line",
    ["OSError: [Errno 28] No space left on device (another directory is used)",
     "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File \"<string>\", line 1"],
)  # fmt: skip
def test_what_was_handled_is_not_explained_where_the_trainer_raises_and_no_death_is_reported(tmp_path, line):
    (tmp_path / "log").write_text(of(line) + OWN_ERROR)
    assert failure(tmp_path / "log") == "ValueError: the true cause"
    (tmp_path / "log").write_text(of(line) + DIED)
    assert line.partition("\n")[0] in failure(tmp_path / "log") or "No space" in line


def test_messages_cost_no_more_than_their_length(tmp_path):
    log = tmp_path / "log"
    lines = [
        *NATIVE["a collective operation times out"][0].splitlines(), *SECOND_LINE["ray"][0].splitlines(), "x", "*** SIGBUS",
        "Traceback (most recent call last):", '  File "a", line 1, in f', "(W pid=1) ", "[rank1]:", "[a] [b] ",
    ]  # fmt: skip

    def write(size):
        log.write_text("\n".join([*lines * (size // 60), *(repeated(line, size) for line in lines)]))

    with counted("verl_trgrpo.launch") as work:
        assert not grows(lambda size: (write(size), work.of(failure, log))[1])
