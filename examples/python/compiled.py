# SPDX-License-Identifier: Apache-2.0
# Ops in torch.compile.
try:
    import torch
    torch.library.opcheck
except (ImportError, AttributeError):
    print("this example needs torch 2.4 or later")
    raise SystemExit
# [compile]
import torch
import yard


@torch.compile(backend="aot_eager", fullgraph=True)
def layer(x, weight):
    return yard.ops.silu_and_mul(yard.ops.rms_norm(x, weight)) + 1


with torch.no_grad(), yard.policy(prefer="reference"):
    print(layer(torch.ones(2, 8), torch.ones(8)))  # runs the reference kernels
# [/compile]
assert torch.allclose(layer(torch.ones(2, 8), torch.ones(8)), torch.full((2, 4), 1.7310586))
