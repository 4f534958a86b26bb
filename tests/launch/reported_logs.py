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


WORKER, SERVER, AGENT = "(WorkerDict pid={}) ", "(vLLMHttpServer pid={}) ", "(AgentLoopWorkerTQ pid={}) "


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


def ended(text: str) -> str:
    """What Hydra says before the traceback that ends the driver."""
    return f"Error executing job with overrides: ['trainer.nnodes=1']\n{text}"


MEMORY, CARD = "kernel ended", ("card has too little",)
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
"""), ["srcIndex < srcSelectDimSize", "device-side assert triggered"], "embedding", ("card has too little", MEMORY)),
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
    "https://github.com/verl-project/verl/issues/3972": Report(
        "2025-10-31 11:58:40,101\tINFO worker.py:1951 -- Started a local Ray instance.\n"
        "[2025-10-31 11:59:10,379 E 90821 90821] core_worker.cc:513: Failed to register worker to Raylet: IOError: "
        "[RayletClient] Unable to register worker with raylet. Failed to read data from the socket: End of file\n",
        ["Failed to register worker to Raylet"], "num_cpus", (MEMORY,)),
    "https://github.com/RLinf/RLinf/issues/227": Report(
        "".join("(raylet) [2025-10-31 17:08:05,488 E 24507 24507] (raylet) worker_pool.cc:586: Some workers of "
        f"the worker process({p}) have not "
        "registered within the timeout. The process is dead, probably it crashed during start.\n" for p in (26153,26154))
        + ended("Traceback (most recent call last):\n  File \"/x/ray/_private/worker.py\", line 937, in "
        "get_objects\n    raise value\n"
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task\n"),
        ["have not registered within the timeout", "crashed during start"], "", (MEMORY,)),
    "https://github.com/ray-project/ray/issues/45570": Report(
        "step:4 - a:1\n[2025-12-19 19:33:35,726 E 3584055 3584848] rpc_client.h:201: Failed to connect to GCS "
        "within 60 seconds. GCS may have been "
        "killed. It's either GCS is terminated by `ray stop` or is killed unexpectedly. If it is killed "
        "unexpectedly, see the log file "
        "gcs_server.out. https://docs.ray.io/x. The program will terminate.\n",
        ["Failed to connect to GCS within 60 seconds"], "", CARD),
    "https://github.com/verl-project/verl/issues/5558": Report(
        lines(AGENT.format(71), "ERROR:2026-03-11 17:40:01,731:Failed to decode tool call: Expecting value: line 2 column 1")
        + ended(raised("NotImplementedError", "TaskRunner.run", ["verl/workers/reward_manager/naive.py:__call__"],
        "NotImplementedError: Reward function is not implemented for data_source='lighteval/MATH'")),
        ["Reward function is not implemented for data_source='lighteval/MATH'"], "", (MEMORY, *CARD)),
    "https://github.com/qiancheng0/ToolRL/issues/26": Report(
        lines(WORKER.format(14361), """
*** SIGFPE received at time=1751967829 on cpu 14 ***
PC: @     0x7f67caeff921  (unknown)  (unknown)
    @     0x7f6ff7e42520  (unknown)  (unknown)
[2025-07-08 17:43:49,595 E 14361 14361] logging.cc:497: *** SIGFPE received at time=1751967829 on cpu 14 ***
Fatal Python error: Floating point exception

Stack (most recent call first):
  File "/x/vllm/model_executor/layers/vocab_parallel_embedding.py", line 40 in apply
""") + died(14361), ["SIGFPE", "its error is above"], "", (MEMORY, *CARD)),
    "https://github.com/verl-project/verl/issues/2833": Report(
        lines(WORKER.format(1770472), """
Fatal Python error: none_dealloc: deallocating None
Python runtime state: initialized

Current thread 0x00007f2bd1ffb640 (most recent call first):
  <no Python frame>
""") + died(1770472), ["none_dealloc: deallocating None", "its error is above"], "", (MEMORY, *CARD)),
    "https://github.com/verl-project/verl/issues/5668": Report(
        lines(AGENT.format(71), """
ERROR:2026-03-20 10:14:44,731:Failed to decode tool call: Invalid \\escape: line 2 column 335 (char 335)
ERROR:2026-03-20 10:14:45,001:Error in _run_prompt: The actor died unexpectedly before finishing this task.
Traceback (most recent call last):
  File "/x/verl/trainer/ppo/v1/agent_loop_tq.py", line 140, in _run_prompt
    await asyncio.gather(*tasks)
  File "/x/verl/tools/sandbox_fusion_tools.py", line 60, in acquire
    ray.get(self.limiter.acquire.remote())
RuntimeError: the rate limiter did not answer
""") + ended(raised("OutOfMemoryError", "WorkerDict.actor_rollout_ref_update_actor",
        ["verl/workers/fsdp_workers.py:update_actor", "torch/_tensor.py:backward"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.09 GiB.")),
        ["torch.OutOfMemoryError: CUDA out of memory"], "ppo_max_token_len_per_gpu", (MEMORY,)),
    "https://github.com/verl-project/verl/issues/375": Report(
        ended(raised("RuntimeError", "WorkerDict.actor_rollout_init_model", ["verl/workers/megatron_workers.py:init_model"],
        "RuntimeError: Rank 21 successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0. "
        "Please check rank 0 logs for faulty rank.\nOriginal "
        "exception:\n[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
        "by peer [10.0.0.2]:42531")),
        ["send/recv from rank 0", "Connection closed by peer [10.0.0.2]"], "ended first", (MEMORY, *CARD)),
    "https://github.com/verl-project/verl/issues/4373": Report(
        lines("(SGLangHttpServer pid=301) ", """
Traceback (most recent call last):
  File "/x/sglang/srt/managers/scheduler.py", line 2680, in run_scheduler_process
    scheduler = Scheduler(server_args)
torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 8/16 clients joined.
""") + ended(raised("RuntimeError", "SGLangHttpServer.launch_server", ["sglang/srt/entrypoints/engine.py:_launch_subprocesses"],
        "RuntimeError: Initialization failed. Please see the error messages above.")),
        ["torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 8/16"], "", (MEMORY, *CARD)),
    "https://github.com/gitcommit90/glm-5.3-one-spark/issues/2": Report(
        lines(SERVER.format(11) + "(EngineCore pid=306) ", """
Traceback (most recent call last):
  File "/x/torch/accelerator/__init__.py", line 270, in synchronize
    torch._C._accelerator_synchronizeDevice(device_index)
torch.AcceleratorError: CUDA error: an illegal memory access was encountered
Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/x for more information.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
""") + lines(SERVER.format(11) + "ERROR 09-07 22:45:01 [async_llm.py:744] ", """
AsyncLLM output_handler failed.
Traceback (most recent call last):
  File "/x/vllm/v1/engine/async_llm.py", line 690, in output_handler
    outputs = await engine_core.get_output_async()
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
""") + ended(raised("EngineDeadError", "AgentLoopWorkerTQ.generate_sequences", ["vllm/v1/engine/async_llm.py:generate"],
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace above for the root cause.")),
        ["torch.AcceleratorError: CUDA error: an illegal memory access"], "CUDA_LAUNCH_BLOCKING", (MEMORY, *CARD)),
    "https://github.com/ray-project/ray/issues/50408": Report(
        ended("Traceback (most recent call last):\n  File \"/x/ray/_private/worker.py\", line 2858, in put\n    raise value\n"
        "ray.exceptions.OutOfDiskError: Local disk is full\nThe object cannot be created because the local object "
        "store is full and the local "
        "disk's utilization is over capacity (95% by default).Tip: Use `df` on this node to check disk usage and "
        "`ray memory` to check object "
        "store memory usage.\n"), ["Local disk is full", "over capacity (95% by default)"], "/tmp", (MEMORY, *CARD)),
    "https://github.com/ray-project/ray/pull/60048": Report(
        "(raylet) Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the "
        "user or system OOM killer, (2) "
        "Invalid memory access from Raylet causing SIGSEGV or SIGBUS, (3) Other termination signals. Last 20 lines "
        "of the Raylet logs:\n"
        "    [2026-01-12 12:30:40,257 I 1568506 1568529] (raylet) object_store.cc:37: Object store current usage "
        "8e-09 / 27.3852 GB.\n"
        + ended("Traceback (most recent call last):\n  File \"/x/ray/_private/worker.py\", line 937, in "
        "get_objects\n    raise value\n"
        "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more information.\n"),
        ["raylet"], "raylet.out", CARD),
    "https://github.com/ray-project/ray/pull/58638": Report(
        ended(raised("ActorDiedError", "TaskRunner.run", ["verl/single_controller/ray/base.py:__call__"],
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: "
        "WorkerDict\n\tactor_id: 81d5\n"
        "\tpid: 912\nThe actor died because its node has died. Node Id: e55b\n\tthe actor's node was terminated "
        "unexpectedly: health check failed due "
        "to missing too many heartbeats")),
        ["node has died", "missing too many heartbeats"], "", CARD),
    "https://github.com/TideDra/lmm-r1/issues/51": Report(
        "(RewardLoopWorker pid=25346) INFO 03-21 13:56:21 remote_rm_utils.py:24] Request error, please check: "
        "HTTPConnectionPool(host='127.0.0.1', "
        "port=5000): Read timed out. (read timeout=180) [repeated 3x across cluster]\n"
        + ended(raised("Exception", "remote_rm_fn_ray", ["openrlhf/utils/remote_rm_utils.py:request_api_wrapper"],
        "Exception: Request error for 5 times, returning None. Please check the API server.")),
        ["Request error for 5 times"], "", (MEMORY, *CARD)),
    "https://github.com/hiyouga/EasyR1/issues/641": Report(
        lines("(RewardLoopWorker pid=77) ", """
Traceback (most recent call last):
  File "/x/my_reward.py", line 20, in parse
    json.loads(text)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
scored 0 instead
""") + "(pid=888727) Compute log probs 1:  50%|#####     | 1.00/2.00 [00:18<00:18, 18.4s/it]\r" + ended(
        raised("ValueError", "WorkerDict.compute_log_probs", ["transformers/models/qwen2_vl/modeling_qwen2_vl.py:forward"],
        "ValueError: Image features and image tokens do not match: tokens: 7536, features 9092")),
        ["ValueError: Image features and image tokens do not match"], "", (MEMORY, *CARD)),
    "https://github.com/vllm-project/vllm-ascend/issues/382": Report(
        lines(WORKER.format(5), """
[rank1]:[E324 13:00:25.428029551 compiler_depend.ts:574] [Rank 1] Watchdog caught collective operation timeout: \
WorkHCCL(SeqNum=196, OpType=ALLREDUCE, Timeout(ms)=3600000) ran for 3600185 milliseconds before timing out.
[rank1]:[E324 13:00:25.428107952 compiler_depend.ts:634] To avoid data inconsistency, we are taking the entire process down.
terminate called after throwing an instance of 'std::runtime_error'
""") + died(5), ["Watchdog caught collective operation timeout", "ALLREDUCE"], "late or lost", (MEMORY, *CARD)),
}  # fmt: skip
