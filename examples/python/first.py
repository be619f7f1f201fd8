# SPDX-License-Identifier: Apache-2.0
# [first]
import numpy
import yard

x = numpy.full((8, 4096), 3, "float32")
weight = numpy.full(4096, 0.5, "float32")
out = yard.ops.rms_norm(x, weight, eps=1e-6)  # the best kernel runs
print(yard.explain(yard.ops.rms_norm, x, weight))  # and says why
# [/first]
assert abs(out - 0.5).max() < 1e-6
