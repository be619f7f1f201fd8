# SPDX-License-Identifier: Apache-2.0
# Adapters: kernels that are functions of other libraries.
# [enable]
import yard.adapters

print(yard.adapters.enable("torch", "triton", "liger"))  # lists the kernels, and why some cannot run
# [/enable]

# [adapter]
import math

import yard
from yard.adapters import load

special, missing = load("scipy.special")  # None and the reason, if scipy is not installed


def fits(out, x):
    elements = math.prod(x.shape)
    return elements <= 1 << 24 or ("scipy makes copies of {0} elements", elements)


@yard.kernel("softmax", vendor="scipy", unavailable=missing, tensors="numpy", dtypes=["f32"],
             verify=fits, reasons=["scipy makes copies of {0} elements"])
def softmax(out, x):
    """scipy.special.softmax"""
    out[...] = special.softmax(x, axis=-1)
# [/adapter]


# [use]
print(yard.explain("softmax(f32[8,4096])"))  # why it runs, or why not
if not missing:
    print(yard.verify("softmax", "vendor.scipy"))  # compares it with the reference
# [/use]
found = {k["id"]: k for k in yard.explain("softmax(f32[8,4096])")["candidates"]}["vendor.scipy"]
assert found["verdict"] == "rejected" and "package scipy is not installed" in found["detail"] if missing \
    else found["verdict"] == "able" and yard.verify("softmax", "vendor.scipy")[0]["failed"] == 0
