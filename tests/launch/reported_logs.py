"""Logs of deaths after public reports: their order, their prefixes and the lines of the errors themselves.

Each was written before the explanation was tried on it. What else a log has, names, numbers and places, is made up.
"""

from typing import NamedTuple


class Report(NamedTuple):
    """A log, and what an explanation has to say: the cause in the report's words, and what to do where that is known."""

    log: str
    cause: list[str]
    remedy: str = ""
    wrong: tuple[str, ...] = ()


WORKER, SERVER = "(WorkerDict pid={}) ", "(vLLMHttpServer pid={}) "


def lines(front: str, text: str) -> str:
    return "".join(f"{front}{line}\n" for line in text.strip("\n").split("\n"))


def died(pid: int, detail: str = "Worker unexpectedly exits with a connection error code 2. End of file.") -> str:
    """What Ray and the trainer say of a worker that is gone."""
    return (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
        "problem, check the logs for the dead worker. Lease ID: 0400 Worker ID: cd7d Node ID: 6b5f Worker IP address: "
        f"10.29.0.5 Worker port: 43447 Worker PID: {pid} Worker exit type: SYSTEM_ERROR Worker exit detail: {detail}\n"
        "Traceback (most recent call last):\n"
        '  File "/x/verl/single_controller/ray/base.py", line 55, in __call__\n    output = ray.get(output)\n'
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        f"\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n\tactor_id: 81d5\n\tpid: {pid}\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        f"{detail}\n"
    )


def raised(kind: str, task: str, frames: list[str], message: str) -> str:
    """What the trainer says of an error in a worker's task."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/x/ray/_private/worker.py", line 937, in get_objects\n    raise value.as_instanceof_cause()\n'
        f"ray.exceptions.RayTaskError({kind}): ray::{task}() (pid=21050, ip=10.0.0.3, actor_id=3f65, repr=<Worker>)\n"
        + "".join(f'  File "/x/{frame.partition(":")[0]}", line 99, in {frame.partition(":")[2]}\n' for frame in frames)
        + f"{message}\n"
    )


MEMORY = "kernel ended"
REPORTS = {
    "https://github.com/verl-project/verl/issues/2950": Report(
        raised("OutOfMemoryError", "TaskRunner.run", ["verl/trainer/ppo/ray_trainer.py:fit"], "").rstrip("\n") + "\n"
        + "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.20.49.141, ID: 4748) where the task (actor ID: 9e43, name=8szhVkWorkerDict_0:3:WorkerDict."
        "__init__, pid=4100606, memory used=56.57GB) was running was 246.41GB / 251.54GB (0.979583), which exceeds the memory "
        "usage threshold of 0.95. Ray killed this worker (ID: c9e1) because it was the most recently scheduled task; to see more "
        "information about memory usage on this node, use `ray logs raylet.out -ip 10.20.49.141`.\n"
        "PID     MEM(GB) COMMAND\n4100606 56.57   ray::WorkerDict.actor_rollout_generate_sequences\n",
        ["low on memory", "246.41GB / 251.54GB"], "less to do at once", ("card has too little",)),
    "https://github.com/verl-project/verl/issues/5889": Report(
        lines(SERVER.format(1835067) + "ERROR 04-07 12:12:08 [multiproc_executor.py:597] ", """
Traceback (most recent call last):
  File "/x/vllm/v1/worker/gpu_worker.py", line 169, in init_device
    init_worker_distributed_environment(self.vllm_config, self.rank,
torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 18071, \
useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use
""") + lines(SERVER.format(1835067), """
Traceback (most recent call last):
  File "/x/vllm/v1/engine/core_client.py", line 447, in __init__
    with launch_core_engines(vllm_config, executor_class, log_stats) as (
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""), ["port: 18071", "EADDRINUSE"], "ss -ltnp", ("card has too little", MEMORY)),
    "https://github.com/verl-project/verl/issues/5750": Report(
        lines(WORKER.format(5101), """
[rank5]:[E318 02:10:44.101 ProcessGroupNCCL.cpp:683] [Rank 5] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=90211, OpType=_ALLGATHER_BASE, NumelIn=4096, NumelOut=32768, Timeout(ms)=600000) ran for 600010 milliseconds \
before timing out.
[rank5]:[E318 02:10:44.102 ProcessGroupNCCL.cpp:744] [Rank 5] Some NCCL operations have failed or timed out. Due to the \
asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
""") + died(5101), ["Watchdog caught collective operation timeout", "_ALLGATHER_BASE"], "late or lost", (MEMORY,)),
    "https://github.com/verl-project/verl/issues/3346": Report(
        raised("RuntimeError", "WorkerDict.actor_rollout_save_checkpoint", ["torch/serialization.py:_save"],
               "RuntimeError: [enforce fail at inline_container.cc:857] . PytorchStreamWriter failed writing file data/37: file "
               "write failed\n\nDuring handling of the above exception, another exception occurred:\n\n"
               "ray::WorkerDict.actor_rollout_save_checkpoint() (pid=21050, ip=10.0.0.3, actor_id=3f65, repr=<Worker>)\n"
               "RuntimeError: [enforce fail at inline_container.cc:659] . unexpected pos 2387758464 vs 2387758376"),
        ["file data/37"], "free some space", ("card has too little", MEMORY)),
    "https://github.com/verl-project/verl/issues/472": Report(
        lines(WORKER.format(27497), """
[2025-03-04 19:28:30,014 E 27497 27497] logging.cc:113: Unhandled exception: N5boost10wrapexceptINS_6system12system_errorEEE. \
what(): thread: Resource temporarily unavailable [system:11]
[2025-03-04 19:28:30,101 E 27497 27497] logging.cc:120: Stack trace:
 /x/ray/_raylet.so(+0x1) [0x7f]
""") + died(27497), ["thread: Resource temporarily unavailable"], "ulimit -u", (MEMORY, "not known")),
    "https://github.com/verl-project/verl/issues/3642": Report(
        raised("OSError", "TaskRunner.run", ["verl/trainer/ppo/ray_trainer.py:fit", "fsspec/spec.py:open"],
               "OSError: [Errno 24] Too many open files: '/x/model/config.json'"),
        ["Too many open files"], "ulimit -n", ("card has too little", MEMORY)),
    "https://github.com/verl-project/verl/issues/4921": Report(
        lines(WORKER.format(87687), "Monkey patch _flash_attention_forward in transformers") + died(87687),
        ["not known", "dmesg"], "", ("card has too little", "NCCL")),
    "https://github.com/SalesforceAIResearch/UserRL/issues/4": Report(
        lines("(TaskRunner pid=84989) ", """
Traceback (most recent call last):
  File "/x/flash_attn/flash_attn_interface.py", line 15, in <module>
    import flash_attn_2_cuda as flash_attn_gpu
ImportError: /x/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEab
Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::WorkerDict.actor_rollout_init_model() (pid=87823, \
ip=172.31.30.148, actor_id=ee64, repr=<Worker>)
  File "/x/verl/single_controller/ray/base.py", line 645, in func
ImportError: /x/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEab
"""), ["undefined symbol: _ZN3c104cuda9SetDeviceEab"], "another version of torch", ("card has too little", MEMORY)),
    "https://github.com/verl-project/verl/issues/6764": Report(
        lines(SERVER.format(5957) + "(EngineCore_DP0 pid=6364) ERROR 06-16 03:57:27 [patch_core.py:68] ", """
Traceback (most recent call last):
  File "/x/vllm/v1/engine/core.py", line 248, in _initialize_kv_caches
    kv_cache_configs = get_kv_cache_configs(
  File "/x/vllm/v1/core/kv_cache_utils.py", line 699, in check_enough_kv_cache_memory
    raise ValueError("No available memory for the cache blocks. "
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.
"""), ["No available memory for the cache blocks"], "raise actor_rollout_ref.rollout.gpu_memory_utilization", (MEMORY,)),
    "https://github.com/verl-project/verl/issues/2483": Report(
        lines(WORKER.format(3001), """
../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [141,0,0], thread: [0,0,0] Assertion \
`srcIndex < srcSelectDimSize` failed.
Traceback (most recent call last):
  File "/x/verl/workers/actor/dp_actor.py", line 250, in compute_log_prob
    output = self.actor_module(input_ids=input_ids_rmpad)
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
"""), ["device-side assert triggered", "srcIndex < srcSelectDimSize"], "embedding", ("card has too little", MEMORY)),
    "https://github.com/RootedTime/EasyR1/issues/9": Report(
        raised("OutOfMemoryError", "WorkerDict.actor_rollout_ref_update_actor",
               ["verl/single_controller/ray/base.py:func", "verl/workers/fsdp_workers.py:update_actor",
                "verl/workers/actor/dp_actor.py:update_policy", "torch/_tensor.py:backward"],
               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.09 GiB. GPU 0 has a total capacity of 79.15 GiB "
               "of which 2.71 GiB is free."),
        ["CUDA out of memory. Tried to allocate 3.09 GiB"], "ppo_max_token_len_per_gpu", (MEMORY, "NCCL")),
    "https://github.com/sgl-project/sglang/issues/1117": Report(
        lines("(EngineCore_DP0 pid=812) ", """
/tmp/tmps1rkq3y3/main.c:5:10: fatal error: Python.h: No such file or directory
    5 | #include <Python.h>
      |          ^~~~~~~~~~
compilation terminated.
Traceback (most recent call last):
  File "/x/triton/runtime/build.py", line 48, in _build
    ret = subprocess.check_call(cc_cmd)
subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmps1rkq3y3/main.c', '-O3', '-shared']' returned non-zero exit \
status 1.
"""), ["Python.h"], "python3-dev", ("card has too little", MEMORY)),
    "https://github.com/hiyouga/EasyR1/issues/207": Report(
        lines(WORKER.format(3154691), "INFO 04-12 12:03:23 [gpu_worker.py:81] Sleep mode freed 24.51 GiB memory, 3.24 GiB memory")
        + raised("ValueError", "WorkerDict.actor_rollout_generate_sequences",
                 ["verl/workers/rollout/vllm_rollout.py:generate_sequences", "vllm/v1/engine/processor.py:_validate_model_input"],
                 "ValueError: Prompt length of 4178 is longer than the maximum model length of 4096."),
        ["Prompt length of 4178 is longer than the maximum model length of 4096"], "", ("card has too little", MEMORY)),
    "https://github.com/TideDra/lmm-r1/issues/43": Report(
        lines("(ActorModelRayActor pid=348952) ", """
Traceback (most recent call last):
  File "/x/vllm/worker/worker.py", line 140, in wake_up
    allocator.wake_up()
  File "/x/vllm/device_allocator/cumem.py", line 75, in create_and_map
    python_create_and_map(*allocation_handle)
RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62
"""), ["CUDA Error: out of memory at"], "gpu_memory_utilization", (MEMORY, "NCCL")),
    "https://github.com/verl-project/verl/issues/1986": Report(
        "step:12 - actor/pg_loss:0.01\n"
        + died(870287, "Worker exits unexpectedly by a signal. SystemExit is raised (sys.exit is called). Exit code: 1. The "
               "process receives a SIGTERM."),
        ["SIGTERM"], "", ("card has too little", "for memory: its cgroup")),
}  # fmt: skip
