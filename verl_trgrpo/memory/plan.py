"""Plan the memory of a card, and of a machine, in each phase of a step.

The phases are those of veRL 0.9.1's synchronous trainer with FSDP and vLLM on the same cards. Each is a sum of terms in GiB; the
docstring of its function names the place in veRL's code. The weights of a phase are counted where they are: ``param_offload``
and ``optimizer_offload`` move them to the host between phases, and back to the card for the whole of an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from verl_trgrpo.memory.constants import ASLEEP, CARD, COMMUNICATION, CONTEXT, FRAGMENTS, GIB, GRAPHS, PLAN
from verl_trgrpo.memory.setup import MicroBatch, Setup
from verl_trgrpo.memory.shape import ModelShape, fused_bytes, head_bytes

# Bytes of a value that computes: veRL's mixed precision (bfloat16), and the type in which gradients are reduced.
_HALF, _REDUCED = 2, 4
# Terms whose size differs from micro-batch to micro-batch, so that torch's allocator reserves more than is used.
_VARYING = ("layer inputs", "logits", "one layer", "activations")


@dataclass(frozen=True)
class Phase:
    """A phase of a step.

    Args:
        name: in the words of the plan.
        terms: GiB on a card by what takes them.
        limit: GiB that there are.
        error: GiB by which the sum may be wrong.
    """

    name: str
    terms: Mapping[str, float]
    limit: float
    error: float

    @property
    def total(self) -> float:
        """Return the sum of the terms."""
        return sum(self.terms.values())

    @property
    def share(self) -> float:
        """Return the sum as a share of what there is."""
        return self.total / self.limit if self.limit > 0 else float("inf")


@dataclass(frozen=True)
class Plan:
    """The phases of a run on one kind of card.

    Args:
        shape: of the model.
        setup: of the run.
        gb: of the card, as in its name.
        states: bytes of the optimizer's states, and of its step's copies, of each byte of the trained parameters.
    """

    shape: ModelShape
    setup: Setup
    gb: float
    states: tuple[float, float]

    @property
    def card(self) -> float:
        """Return the GiB that a program sees."""
        return CARD.value * self.gb

    def at(self, mean: float) -> list[Phase]:
        """Return the phases in the order of time if prompt and response together have `mean` tokens on average."""
        return [
            self._phase("engine start", self._start()),
            self._cache(),
            self._phase("weight sync", self._sync()),
            self._phase("rollout", self._rollout()),
            self._phase("log-probabilities", self._log_prob(mean), active=True),
            *([self._phase("reference", self._reference(mean), active=True)] if self.setup.has_reference else []),
            self._phase("update", self._update(mean), active=True),
            self._phase("optimizer step", self._step()),
            *([self._phase("save", self._save())] if self.setup.saves else []),
        ]

    def _phase(self, name: str, terms: Mapping[str, float], active: bool = False) -> Phase:
        several = self.setup.cards > 1
        unknown = 2 * CONTEXT.error + ASLEEP.error + several * COMMUNICATION.error + CARD.error * self.gb
        error = PLAN.value * self.card if active else unknown
        if active:
            varying = sum(terms.get(what, 0.0) for what in _VARYING)
            terms = {**terms, "reserved besides": (FRAGMENTS.value - 1) * varying}
        return Phase(name, {what: size for what, size in terms.items() if size >= 0.005}, self.card, error)

    # What stays, in GiB.

    @cached_property
    def _trained(self) -> int:
        return self.shape.adapter if self.setup.lora_rank else self.shape.parameters

    @cached_property
    def weights(self) -> float:
        """Return the GiB of a card's share of the weights."""
        total = self.shape.parameters + (self._trained if self.setup.lora_rank else 0)
        return self.setup.bytes * total / self.setup.shards / GIB

    @cached_property
    def gradients(self) -> float:
        """Return the GiB of a card's share of the gradients."""
        return self.setup.bytes * self._trained / self.setup.shards / GIB

    @property
    def states_size(self) -> float:
        """Return the GiB of a card's share of the optimizer's states."""
        return self.states[0] * self.gradients

    def _kept(self, loaded: bool = False) -> dict[str, float]:
        """Return what the trainer has on the card between updates; `loaded`: with the weights that were moved to the host."""
        setup = self.setup
        away = setup.offload_policy or (setup.param_offload and not loaded)
        return {
            "weights": 0.0 if away else self.weights,
            "optimizer states": 0.0 if setup.optimizer_offload or setup.offload_policy else self.states_size,
        }

    @property
    def _contexts(self) -> dict[str, float]:
        """Return the contexts of the trainer's process and of the engine's."""
        trainer = CONTEXT.value + (self.setup.cards > 1) * COMMUNICATION.value
        return {"contexts": trainer + CONTEXT.value + (self.setup.tensor_parallel > 1) * COMMUNICATION.value}

    @property
    def _share(self) -> float:
        return self.setup.utilization * self.card

    @property
    def _asleep(self) -> dict[str, float]:
        """Return what the engine has on the card while the trainer works: vLLM's sleep frees weights and cache."""
        if not self.setup.frees_cache:
            return {"engine's share": self._share, **self._contexts}
        return {"engine asleep": ASLEEP.value - self.setup.eager * GRAPHS.value, **self._contexts}

    # Phases of the engine.

    def _start(self) -> dict[str, float]:
        """Return what is needed when vLLM starts: its share has to be free (vLLM's ``request_memory``)."""
        return {"engine's share": self._share, "weights": self._kept()["weights"], **self._contexts}

    def _cache(self) -> Phase:
        """Return what has to fit into the engine's share (vLLM's ``determine_available_memory``): one sequence at least."""
        shape, setup, parts = self.shape, self.setup, self.setup.tensor_parallel
        profile = setup.batched_tokens * shape.forward / parts + setup.sequences * shape.vocabulary * 2 * 4
        terms = {
            "engine's weights": _HALF * shape.parameters / parts / GIB,
            "profile": profile / GIB,
            "CUDA graphs": 0.0 if setup.eager else GRAPHS.value,
            "one sequence": (setup.engine_length or shape.positions or setup.longest) * shape.cache / parts / GIB,
        }
        error = GRAPHS.error + 0.5 * profile / GIB
        return Phase("cache", {what: size for what, size in terms.items() if size >= 0.005}, self._share, error)

    def _rollout(self) -> dict[str, float]:
        """Return what is needed from the wake-up of the cache to the next sleep (``engine_workers.py``, ``update_weights``)."""
        return {"engine's share": self._share, **self._kept(), **self._contexts}

    def _sync(self) -> dict[str, float]:
        """Return what sending the weights needs (``get_per_tensor_param``; the engine's weights are mapped before its cache).

        FSDP1 and adapters bring offloaded weights back first. FSDP1 without ``layered_summon`` gathers the whole base for its
        adapters, and a single card's state dict is a copy.
        """
        shape, setup = self.shape, self.setup
        engine = self._share if not setup.frees_cache else _HALF * shape.parameters / setup.tensor_parallel / GIB
        terms = {"engine's weights": engine, "bucket": setup.bucket / GIB, **self._asleep}
        terms |= self._kept(loaded=setup.fsdp == 1 or setup.lora_rank > 0)
        terms.pop("engine's share", None)
        whole = setup.bytes * shape.parameters / GIB
        if setup.lora_rank and not setup.merges:
            gathered = setup.bytes * shape.layer / GIB
            if setup.fsdp == 1 and not setup.layered_summon:
                gathered = whole if setup.shards > 1 else 0.0
        elif setup.fsdp == 1 and setup.shards == 1:
            gathered = whole
        else:
            gathered = (setup.bytes + _HALF) * shape.largest / GIB
        return {**terms, "gathered": gathered}

    # Phases of the trainer.

    def _unsharded(self) -> float:
        """Return the GiB of the weights that are gathered at a time: two layers, and what is outside of layers."""
        return _HALF * (2 * self.shape.layer + self.shape.root) / GIB

    def _passed(self, batch: MicroBatch, mean: float, entropy: str, kept: Mapping[str, float]) -> dict[str, float]:
        """Return what a pass without gradient needs: the activations of one layer, or the logits."""
        shape, setup = self.shape, self.setup
        tokens = setup.tokens(batch, setup.step_responses, mean)
        logits = self._logits(tokens, entropy, grad=False)
        layer = tokens * (shape.forward + _HALF * shape.hidden) / GIB
        pass_terms = {"logits": logits} if logits > layer else {"activations": layer}
        return {**self._asleep, **kept, "gathered": self._unsharded(), **pass_terms}

    def _logits(self, tokens: float, entropy: str, grad: bool) -> float:
        setup = self.setup
        if setup.fused:
            return fused_bytes(self.shape.hidden, self.shape.vocabulary, grad and not setup.lora_rank) / GIB
        each = head_bytes(entropy, setup.compiled, setup.flash, grad, setup.temperature != 1)
        return tokens * self.shape.vocabulary * each / GIB

    def _log_prob(self, mean: float) -> dict[str, float]:
        """Return what the log-probabilities of a step's responses need; veRL computes the entropy with them."""
        return self._passed(self.setup.log_prob, mean, "shown", self._kept(loaded=True))

    def _reference(self, mean: float) -> dict[str, float]:
        """Return what the reference needs: its weights come from the host layer by layer, or are those below the adapters."""
        return self._passed(self.setup.ref, mean, "", self._kept(loaded=self.setup.lora_rank > 0))

    def _state(self) -> dict[str, float]:
        """Return weights, gradients and states in an update: offloaded ones come back (``BaseEngineCtx``)."""
        if self.setup.offload_policy:
            return {}
        return {"weights": self.weights, "gradients": self.gradients, "optimizer states": self.states_size}

    def _update(self, mean: float) -> dict[str, float]:
        """Return what forward and backward of a micro-batch need.

        Beside the inputs of all layers it is the largest of three moments: the loss (logits, and the output layer's gradient),
        the backward of a layer that is computed again, and the reduction of the gradients outside of layers, after which no
        activation is left.
        """
        shape, setup = self.shape, self.setup
        tokens = setup.tokens(setup.update, setup.responses, mean)
        full = not setup.lora_rank
        logits = self._logits(tokens, setup.entropy, grad=True)
        if setup.checkpointing:
            inputs, inside = tokens * _HALF * shape.hidden * shape.layers / GIB, tokens * shape.inside / GIB
        else:
            inputs, inside = tokens * shape.saved * shape.layers / GIB, tokens * (shape.inside - shape.saved) / GIB
        outer, inner = _HALF * shape.root / GIB * full, (_HALF + _REDUCED) * shape.layer / GIB * full
        moments = (
            {"layer inputs": inputs, "logits": logits, "whole gradients": outer},
            {"layer inputs": inputs, "one layer": inside, "whole gradients": outer + inner},
            {"whole gradients": outer + _REDUCED * shape.root / GIB * full},
        )
        deferred = {"deferred gradients": _REDUCED * self._trained * (1 - 1 / setup.shards) / GIB * setup.defers_sync}
        most = max(moments, key=lambda each: sum(each.values()))
        return {**self._asleep, **self._state(), "gathered": self._unsharded(), **most, **deferred}

    def _step(self) -> dict[str, float]:
        """Return what the optimizer's step needs; under FSDP2's ``offload_policy`` it happens on the host."""
        copies = 0.0 if self.setup.offload_policy else self.states[1] * self.gradients
        return {**self._asleep, **self._state(), "step's copies": copies}

    def _save(self) -> dict[str, float]:
        """Return what a checkpoint needs: offloaded weights come back, and a model of Hugging Face is gathered by layers."""
        gathered = self.setup.bytes * max(self.shape.layer, self.shape.root) / GIB
        return {**self._asleep, **self._kept(loaded=True), "gathered": gathered if self.setup.saves_hf else 0.0}

    def host(self) -> Iterator[tuple[str, float]]:
        """Yield what a machine's own memory holds at least, in GiB by term; the data and Ray's objects come on top."""
        setup, cards = self.setup, self.setup.cards_of_a_node
        whole = setup.bytes * self.shape.parameters / GIB
        reference = setup.has_reference and not setup.lora_rank
        yield "weights that are loaded", whole * (cards if self.shape.tied else 1)
        yield "offloaded weights", cards * self.weights * (setup.param_offload or setup.offload_policy)
        yield "offloaded states", cards * self.states_size * (setup.optimizer_offload or setup.offload_policy)
        yield "reference", cards * setup.ref_bytes * self.shape.parameters / setup.shards / GIB * reference
        yield (
            "sleeping engine",
            cards * _HALF * self.shape.parameters / setup.tensor_parallel / GIB * (setup.lora_rank > 0),
        )
        yield "checkpoint", cards * (self.weights + self.states_size) * setup.saves
