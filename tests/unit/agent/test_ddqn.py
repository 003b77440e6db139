"""Double Q-learning by hand against torch and torchrl."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fogveil.agent.learning.actor import run_layers
from fogveil.agent.learning.adam import Adam
from fogveil.agent.learning.ddqn import DoubleQ
from fogveil.agent.learning.hyperparameters import Hyperparameters
from fogveil.agent.learning.network import Network, SparseStates

INPUTS, ACTIONS, BATCH = 31, 5, 50
HYPERPARAMETERS = Hyperparameters(layers=(32, 16, 8), batch_size=BATCH)


def as_torch(network):
    """The same network as torch modules with automatic differentiation."""
    modules = []
    for weights, bias in network.layers():
        linear = torch.nn.Linear(*weights.shape)
        linear.weight.data = torch.from_numpy(weights.T.copy())
        linear.bias.data = torch.from_numpy(bias.copy())
        modules += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*modules[:-1])


def random_batch(seed, sparse=False):
    random = np.random.default_rng(seed)
    at = random.integers(0, INPUTS, (2 * BATCH, 6))
    amount = random.random((2 * BATCH, 6), np.float32)
    states = np.zeros((2 * BATCH, INPUTS), np.float32)
    np.add.at(states, (np.arange(2 * BATCH)[:, None], at), amount)
    actions = random.integers(0, ACTIONS, BATCH)
    rewards = (3 * random.standard_normal(BATCH)).astype(np.float32)
    return states, SparseStates(at, amount) if sparse else states, actions, rewards


def learner_with_two_networks(seed):
    learner = DoubleQ((INPUTS, *HYPERPARAMETERS.layers, ACTIONS), HYPERPARAMETERS, seed)
    learner.target.parameters.copy_(Network(learner.online.sizes, seed + 1).parameters)
    return learner


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.filterwarnings("ignore")  # torchrl warns about its own defaults
def test_loss_and_gradient_equal_torchrls_double_dqn(seed, sparse):
    from tensordict import TensorDict
    from torchrl.modules import QValueActor
    from torchrl.objectives import DQNLoss

    learner = learner_with_two_networks(seed)
    dense, states, actions, rewards = random_batch(seed, sparse)
    network = as_torch(learner.online)
    actor = QValueActor(network, in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(
        actor,
        loss_function="smooth_l1",
        delay_value=True,
        double_dqn=True,
        action_space="categorical",
    )
    loss.make_value_estimator(gamma=HYPERPARAMETERS.discount_factor)
    target = as_torch(learner.target)
    for own, other in zip(
        loss.target_value_network_params.flatten_keys().values(),
        TensorDict.from_module(target).flatten_keys().values(),
        strict=True,
    ):
        own.data.copy_(other.data)
    batch = TensorDict(
        {
            "observation": torch.from_numpy(dense[:BATCH]),
            "action": torch.from_numpy(actions),
            ("next", "observation"): torch.from_numpy(dense[BATCH:]),
            ("next", "reward"): torch.from_numpy(rewards)[:, None],
            ("next", "done"): torch.zeros(BATCH, 1, dtype=torch.bool),
            ("next", "terminated"): torch.zeros(BATCH, 1, dtype=torch.bool),
        },
        [BATCH],
    )
    expected = loss(batch)["loss"]
    expected.backward()
    loss_before = learner.train(states, actions, rewards)
    assert loss_before == pytest.approx(expected.item(), rel=1e-5)
    names = [f"{2 * layer}.{kind}" for layer in range(4) for kind in ("weight", "bias")]
    params = loss.value_network_params.flatten_keys()
    gradient = torch.cat([_entry(params, name).grad.t().reshape(-1) for name in names])
    torch.testing.assert_close(learner.online.gradient, gradient, rtol=1e-4, atol=1e-7)


def _entry(params, name):
    return next(value for key, value in params.items() if key.endswith(name))


def test_the_online_network_selects_and_the_target_network_values():
    """Swapping the roles, as the paper's text has it, would give another target."""
    learner = learner_with_two_networks(3)
    dense, states, actions, rewards = random_batch(3)
    online, target = as_torch(learner.online), as_torch(learner.target)
    after = torch.from_numpy(dense[BATCH:])
    value = online(torch.from_numpy(dense[:BATCH])).gather(1, torch.from_numpy(actions)[:, None])

    def loss(selects, values):
        future = values(after).gather(1, selects(after).argmax(1, keepdim=True))
        goal = torch.from_numpy(rewards)[:, None] + 0.99 * future
        return torch.nn.functional.huber_loss(value, goal).item()

    loss_before = learner.train(states, actions, rewards)
    assert loss_before == pytest.approx(loss(online, target), rel=1e-5)
    assert loss_before != pytest.approx(loss(target, online), rel=1e-3)
    assert loss_before != pytest.approx(loss(target, target), rel=1e-3)


def test_adam_equals_torchs():
    random = torch.Generator().manual_seed(1)
    parameters = torch.randn(1000, generator=random)
    expected = torch.nn.Parameter(parameters.clone())
    theirs, ours = torch.optim.Adam([expected], 2.5e-4), Adam(1000, 2.5e-4)
    for _ in range(200):
        gradient = torch.randn(1000, generator=random)
        expected.grad = gradient.clone()
        theirs.step()
        ours.step(parameters, gradient)
    torch.testing.assert_close(parameters, expected.data, rtol=1e-5, atol=1e-6)


def test_repeated_training_fits_a_fixed_target():
    learner = learner_with_two_networks(1)
    _, states, actions, rewards = random_batch(1, sparse=True)
    losses = [learner.train(states, actions, rewards) for _ in range(1500)]
    assert losses[-1] < 0.05 * losses[0]


def test_the_target_network_changes_only_when_told():
    learner = learner_with_two_networks(1)
    before = learner.target.parameters.clone()
    _, states, actions, rewards = random_batch(1)
    learner.train(states, actions, rewards)
    assert torch.equal(learner.target.parameters, before)
    learner.update_target()
    assert torch.equal(learner.target.parameters, learner.online.parameters)


def test_layers_share_the_parameters_and_give_the_same_values():
    learner = learner_with_two_networks(1)
    dense, *_ = random_batch(2)
    expected = as_torch(learner.online)(torch.from_numpy(dense)).detach().numpy()
    np.testing.assert_allclose(run_layers(learner.online.layers(), dense), expected, atol=1e-6)
    layers = learner.online.layers()
    learner.online.parameters.zero_()
    assert not layers[0][0].any()
