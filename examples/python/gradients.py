# SPDX-License-Identifier: Apache-2.0
"""A kernel that computes gradients, with torch."""

import sys

import yard

try:
    import torch
except ImportError:
    sys.exit(0)  # the example needs torch


# [gradients]
@yard.kernel("rms_norm", vendor="train", tensors="torch", autograd=True)
def rms_norm(out, x, weight, eps):
    out.copy_(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight)


weight = torch.nn.Parameter(torch.ones(64))
yard.ops.rms_norm(torch.randn(8, 64), weight).sum().backward()
print(weight.grad.shape)
# [/gradients]
assert weight.grad.shape == (64,) and float(weight.grad.abs().sum()) > 0
