"""Models and functions that were made with the environment, as policies of any run.

A model becomes a light file: the weights of its network, which acts without the library that
trained it and without torch. Such a file is a policy like a trained agent's: of `run`, of
`compare`, of federated runs and of those in containers.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from fogveil.agent.learning.actor import Layers
from fogveil.agent.learning.network_policy import Normalisation, write_network
from fogveil.agent.learning.registry import public_facts
from fogveil.agent.observation_vector import Mask, ObservationVector, Vector, VectorPolicy
from fogveil.agent.policy import AgentView, Level
from fogveil.core.errors import InputError
from fogveil.core.version import VERSION

FOLDER = Path("runs/policies")
"""Where `policy_from_sb3` writes files, by their content."""
ACTOR_CRITICS = ("ActorCriticPolicy", "MaskableActorCriticPolicy")
Q_NETWORKS = ("DQNPolicy",)
HARMLESS = ("VecMonitor", "VecNormalize", "VecCheckNan", "VecVideoRecorder")
"""Wrappers of vectorised environments that keep the observations, or whose change is exported."""
OWN_CLASS = "write it as a class of your own, file.py:Class (see VectorPolicy)"


class _Trained(NamedTuple):
    """A model without its library."""

    header: dict[str, Any]
    layers: Layers
    activation: str
    normalisation: Normalisation | None

    def digest(self) -> str:
        content = hashlib.sha256(repr((self.header, self.activation)).encode())
        for part in (part for layer in self.layers for part in layer):
            content.update(np.ascontiguousarray(part).tobytes())
        for number in self.normalisation or ():
            content.update(np.asarray(number).tobytes())
        return content.hexdigest()[:8]


def policy_from_sb3(model: Any, env: Any = None) -> str:
    """Return a model of stable-baselines3 as a policy: the name of a light file that it writes.

    The model is a PPO, A2C or DQN with an MlpPolicy. Its environment says what it observes; give
    `env` where the model has none because it was loaded from a file. The file is in runs/policies;
    `save_sb3` writes it elsewhere.
    """
    trained = _read_model(model, env)
    path = FOLDER / f"{trained.header['algorithm'].lower()}-{trained.digest()}.npz"
    write_network(path, *trained)
    return str(path)


def save_sb3(model: Any, path: Path | str, env: Any = None) -> Path:
    """Write a model of stable-baselines3 as a policy's light file and return its path."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"{path}: expected a file name that ends with .npz")
    write_network(path, *_read_model(model, env))
    return path


def policy_from_callable(
    function: Callable[[Vector], Any], level: str = "count", name: str | None = None
) -> type[VectorPolicy]:
    """Return a policy's class that acts by a function: the environment's vector in, a node out.

    It runs in this process. For a federated run write the function into a file of its own, as the
    method `act` of a subclass of `fogveil.agent.observation_vector.VectorPolicy`.
    """
    if level.upper() not in Level.__members__:
        raise InputError(f"level {level!r}: expected none, total, count or full")

    class FunctionPolicy(VectorPolicy):
        needs = Level.parse(level)

        def act(self, vector: Vector, mask: Mask) -> int:  # noqa: ARG002 (functions take vectors)
            return int(function(vector))

    FunctionPolicy.__name__ = str(name or getattr(function, "__name__", type(function).__name__))
    FunctionPolicy.__doc__ = function.__doc__
    FunctionPolicy.__module__ = function.__module__  # whose errors are the user's
    return FunctionPolicy


def _read_model(model: Any, env: Any) -> _Trained:
    layers, activation = _read_network(model)
    base, normaliser = _unwrap(env if env is not None else model.get_env())
    view, level, reward = _facts(base)
    expected = (ObservationVector(view, level).size, len(view.nodes))
    found = (layers[0][0].shape[0], layers[-1][1].size)
    if found != expected:
        raise InputError(
            f"the model has {found[0]} inputs and {found[1]} actions, but its environment has "
            f"{expected[0]} and {expected[1]}: give the environment that it was trained in"
        )
    normalisation = None
    if normaliser is not None and normaliser.norm_obs:
        normalisation = Normalisation(
            normaliser.obs_rms.mean,
            np.sqrt(normaliser.obs_rms.var + normaliser.epsilon),
            float(normaliser.clip_obs),
        )
    header = {
        "algorithm": type(model).__name__,
        "level": level.word,
        "reward": reward,
        "public": public_facts(view),
        "versions": {
            "python": platform.python_version(),
            "fogveil": VERSION,
            **{name: version(name) for name in ("numpy", "stable_baselines3", "torch")},
        },
    }
    return _Trained(header, layers, activation, normalisation)


def _facts(base: Any) -> tuple[AgentView, Level, str]:
    """Return view, level and reward of an environment, vectorised or not."""
    names = ("view", "level", "reward_name")
    try:
        if hasattr(base, "get_attr"):
            view, level, reward = (base.get_attr(name, 0)[0] for name in names)
        else:
            view, level, reward = (base.get_wrapper_attr(name) for name in names)
    except AttributeError as error:
        raise InputError(
            "the model's environment is not fogveil/Placement-v0: only such a model can be a policy"
        ) from error
    return view, level, reward


def _unwrap(env: Any) -> tuple[Any, Any]:
    """Return the environment below vectorised wrappers, and the one of them that normalises."""
    if env is None:
        raise InputError(
            "the model has no environment: give the one that it was trained in, as env=…"
        )
    normaliser = None
    while hasattr(env, "venv"):
        kind = type(env).__name__
        if kind not in HARMLESS:
            raise InputError(f"the observations are changed by {kind}: {OWN_CLASS}")
        normaliser = env if kind == "VecNormalize" else normaliser
        env = env.venv
    for single in getattr(env, "envs", [env]):
        while isinstance(single, gym.Wrapper):
            if isinstance(single, (gym.ObservationWrapper, gym.ActionWrapper)):
                changed = type(single).__name__
                raise InputError(f"observations or actions are changed by {changed}: {OWN_CLASS}")
            single = single.env  # noqa: PLW2901 (down the chain of wrappers)
    return env, normaliser


def _read_network(model: Any) -> tuple[Layers, str]:
    """Return the layers from observation to actions, and the activation between them."""
    policy: Any = getattr(model, "policy", None)
    kind = type(policy).__name__
    if kind in ACTOR_CRITICS:
        extractor = policy.pi_features_extractor
        parts = [policy.mlp_extractor, *policy.mlp_extractor.policy_net, policy.action_net]
    elif kind in Q_NETWORKS:
        extractor = policy.q_net.features_extractor
        parts = [None, *policy.q_net.q_net]
    else:
        raise InputError(
            f"the model's policy is {kind}: expected the MlpPolicy of PPO, A2C or DQN; else "
            f"{OWN_CLASS}"
        )
    names = [type(part).__name__ for part in (extractor, *parts)]
    linear, activations = parts[1::2], set(names[3::2])
    plain = (
        names[0] == "FlattenExtractor"
        and names[1] in ("MlpExtractor", "NoneType")
        and all(name == "Linear" for name in names[2::2])
        and len(names) % 2 == 1
        and (activations <= {"ReLU"} or activations <= {"Tanh"})
        and all(part.bias is not None for part in linear)
    )
    if not plain:
        raise InputError(
            f"the model's network is {', '.join(name for name in names if name != 'NoneType')}: "
            f"expected linear layers with ReLU or Tanh between them; else {OWN_CLASS}"
        )
    layers = [
        (layer.weight.detach().cpu().numpy().T.copy(), layer.bias.detach().cpu().numpy().copy())
        for layer in linear
    ]
    return layers, "tanh" if "Tanh" in activations else "relu"
