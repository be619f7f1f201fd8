# SPDX-License-Identifier: Apache-2.0
"""Binds an op to tensors of one form."""

import numpy
import yard

x, y = numpy.full((8, 64), 3, "float32"), numpy.full((8, 64), 5, "float32")
weight, out = numpy.ones(64, "float32"), numpy.empty((8, 64), "float32")
# [bind]
norm = yard.bind(yard.ops.rms_norm, x, weight, out=out)
norm()  # on the tensors that it was bound to
norm(y, eps=1e-5)  # on others of the same form
print(norm.kernel)  # the kernel that runs
# [/bind]
assert norm.kernel == "default.simd" and abs(out - 1).max() < 1e-4
