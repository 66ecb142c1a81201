"""The quantizer for torchao's quantization-aware training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import utvm_deploy.torch


@pytest.mark.slow
def test_batch_norms_are_part_of_convolutions_in_training() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    module = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU6()),
        *(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3)),
    )
    example = torch.rand(2, 1, 8, 8)
    exported = torch.export.export(module, (example,)).module(check_guards=False)
    prepared = prepare_qat_pt2e(
        exported, utvm_deploy.torch.quantizer(example, scheme="int8", is_qat=True)
    )
    nodes = list(prepared.graph.nodes)
    convolutions = [node for node in nodes if "conv2d" in str(node.target)]
    # A convolution's sum goes to its norm as it is, and the norm's result is rounded once.
    assert len(convolutions) == 2
    for node in convolutions:
        assert not any("activation_post_process" in str(user.target) for user in node.users)
        assert "activation_post_process" in str(node.args[0].target)  # of the input
        assert "activation_post_process" in str(node.args[1].target)  # of the scaled weights
    prepared(example).sum().backward()
    weights = [one for one in prepared.parameters() if one.dim() > 1]
    assert len(weights) == 3 and all(one.grad is not None and one.grad.any() for one in weights)
