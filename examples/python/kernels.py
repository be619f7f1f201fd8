# SPDX-License-Identifier: Apache-2.0
# Policies, and an op and a kernel that are written in Python.
import numpy
import yard

x = numpy.ones((8, 4096), "float32")

# [policy]
with yard.policy(deny_kernels=["default.*"]):
    yard.ops.softmax(x)  # another kernel runs


@yard.policy(prefer="reference")
def exact(x):
    return yard.ops.softmax(x)
# [/policy]


# [op]
@yard.op("shifted_relu(out!: T[*rows, d], x: T[*rows, d], by: float = 0.0) where T in {f32, f64}")
def shifted_relu(out, x, by):
    out[...] = (x - by).clip(0)


print(shifted_relu(x, by=0.25))
# [/op]


# [kernel]
def even(out, x, by):
    return x.shape[-1] % 2 == 0 or ("the last size {0} is odd", x.shape[-1])


@yard.kernel(shifted_relu, vendor="mine", dtypes=["f32"], verify=even,
             reasons=["the last size {0} is odd"])
def fast_relu(out, x, by):
    """Computes in place."""
    numpy.subtract(x, by, out=out)
    numpy.maximum(out, 0, out=out)


print(yard.explain(shifted_relu, x))  # runs vendor.mine
yard.verify(shifted_relu, "vendor.mine")  # compares it with the reference
# [/kernel]
assert yard.explain(shifted_relu, x)["selected"] == "vendor.mine"
assert yard.explain(shifted_relu, x[:, :5])["selected"] == "reference.python"
assert yard.verify(shifted_relu, "vendor.mine")[0]["failed"] == 0
assert exact(x).shape == x.shape


# [function]
@yard.dispatch("models", repeatable=True)  # the group of the function
def decay(x, rate=0.5):
    return [v * rate for v in x]


class Fast(yard.Backend):
    """Uses numpy."""

    name, group = "fast", "models"

    def decay(self, x, rate=0.5):
        return (numpy.asarray(x) * rate).tolist()

    def decay_verifier(self, x, rate=0.5):
        return len(x) >= 4 or "fewer than four values"


yard.add_backend(Fast())
print(decay([1.0, 2.0]), decay([1.0, 2.0, 3.0, 4.0]))
print(yard.explain(decay, [1.0, 2.0]))  # the original runs, and why
# [/function]
assert yard.explain(decay, [1.0] * 4)["selected"] == "fast"
assert yard.explain(decay, [1.0])["selected"] == "original"
