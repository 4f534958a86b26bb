"""Mathematical answers judged in a Ray worker, where veRL computes rewards."""

import ray

from verl_trgrpo.tasks import compute_score


def test_inside_a_ray_worker():
    ray.init(num_cpus=1, include_dashboard=False)
    try:

        @ray.remote
        def score(number):
            return compute_score("math", rf"\boxed{{\sqrt{{{number}}}}}", r"3\sqrt{13}")["acc"]

        assert ray.get([score.remote(117), score.remote(118)]) == [1.0, 0.0]
    finally:
        ray.shutdown()
