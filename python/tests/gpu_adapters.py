# SPDX-License-Identifier: Apache-2.0
"""Tests and times the adapters on a CUDA device: `python3 python/tests/gpu_adapters.py [--quick]`.

It needs the package yard, torch 2.4 or later with CUDA, and triton; liger-kernel too for its kernels.
Each kernel is compared with the reference kernel, which runs on copies of the tensors on the CPU.
The exit code is 1 if one differs, or if no call reaches a kernel. With --cpu it compares the kernels
for the CPU, which tests the script itself.
"""

import sys

import torch
import yard
import yard.adapters

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The tolerances of docs/reference/ops.md, wider for sums of many products.
CLOSE = {torch.float32: (1e-4, 1e-4), torch.float16: (4e-3, 2e-3), torch.bfloat16: (3.2e-2, 1.6e-2)}
DEVICE = "cpu" if "--cpu" in sys.argv else "cuda"
failures = []


def is_tested(kernel):
    return kernel["available"] and kernel["backend"].endswith("_cuda") == (DEVICE == "cuda")


def random(*shape, dtype):
    return torch.randn(shape, device=DEVICE).to(dtype)


def rotation(dtype):
    angles = torch.randn(7, 32, device=DEVICE)
    return (random(7, 8, 64, dtype=dtype), random(7, 2, 64, dtype=dtype), None, angles.cos(), angles.sin())


WRITTEN = {"add_rms_norm": 1, "rotary_embedding": 2}  # how many inputs are written too
CASES = {
    "rms_norm": (lambda d: (random(3, 5, 768, dtype=d), random(768, dtype=d)),
                 lambda d: (random(9, 1024, dtype=d)[:, :1000], random(1000, dtype=d)),
                 lambda d: (random(2, 65536, dtype=d), random(65536, dtype=d))),
    "add_rms_norm": (lambda d: (random(5, 768, dtype=d), random(5, 768, dtype=d), random(768, dtype=d)),),
    "layer_norm": (lambda d: (random(5, 768, dtype=d), random(768, dtype=d), random(768, dtype=d)),),
    "softmax": (lambda d: (random(5, 1000, dtype=d),),),
    "silu_and_mul": (lambda d: (random(3, 5, 2 * 11008, dtype=d),), lambda d: (random(5, 2 * 33, dtype=d),)),
    "gelu_and_mul": (lambda d: (random(5, 2 * 1000, dtype=d), "tanh"),),
    "add": (lambda d: (random(5, 1000, dtype=d), random(5, 1000, dtype=d)),),
    "mul": (lambda d: (random(5, 1000, dtype=d), random(1, 1000, dtype=d).expand(5, 1000)),),
    "matmul": (lambda d: (random(3, 17, 64, dtype=d), random(3, 64, 33, dtype=d)),),
    "linear": (lambda d: (random(2, 5, 64, dtype=d), random(33, 64, dtype=d), None, random(33, dtype=d)),
               lambda d: (random(64, dtype=d), random(33, 64, dtype=d))),
    "embedding": (lambda d: (torch.randint(0, 50, (3, 4), device=DEVICE), random(50, 64, dtype=d)),),
    "attention.full": (lambda d: (random(2, 7, 8, 64, dtype=d), random(2, 9, 2, 64, dtype=d), random(2, 9, 2, 64, dtype=d)),
                       lambda d: (random(2, 7, 2, 64, dtype=d), random(2, 9, 2, 64, dtype=d), random(2, 9, 2, 64, dtype=d),
                                  random(2, 2, 7, 9, dtype=d))),
    "attention.causal": (lambda d: (random(2, 9, 8, 64, dtype=d), random(2, 9, 2, 64, dtype=d), random(2, 9, 2, 64, dtype=d)),),
    "attention.cross": (lambda d: (random(2, 7, 4, 64, dtype=d), random(2, 9, 4, 64, dtype=d), random(2, 9, 4, 64, dtype=d)),),
    "rotary_embedding": (rotation,),
}


def on_cpu(values):
    return [v.to("cpu", copy=True) if isinstance(v, torch.Tensor) else v for v in values]


def results(op, arguments):
    """Returns the output, and the tensors that may have been written."""
    out = yard.ops[op](*arguments)
    return ([out] if out is not None else []) + list(arguments[:WRITTEN.get(op, 0)])


def check(op, kernel, make, dtype):
    arguments = [a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in make(dtype)]
    what = f"{op} {kernel} {str(dtype)[6:]}"
    with yard.policy(allow_kernels=["reference.cpp"]):
        expected = results(op, on_cpu(arguments))
    with yard.policy(allow_kernels=[kernel]):
        chosen = yard.explain(yard.ops[op], *arguments)
        if chosen["selected"] != kernel:
            reason = next(k["detail"] for k in chosen["candidates"] if k["id"] == kernel)
            print(f"  not run: {what}: {reason}")
            return False
        found = results(op, arguments)
    rtol, atol = CLOSE[dtype]
    for got, want in zip(found, expected):
        if not torch.allclose(got.cpu().float(), want.float(), rtol=rtol, atol=atol):
            worst = (got.cpu().float() - want.float()).abs().max().item()
            failures.append(f"{what}: off by {worst:g} in {list(want.shape)}")
    return True


def check_graph():
    """A compiled model on the device keeps ops as nodes."""
    graphs = []

    def backend(module, inputs):
        graphs.append(module.graph)
        return module

    x, weight = random(4, 64, dtype=torch.float32), random(64, dtype=torch.float32)

    def layer(x, weight):
        return yard.ops.silu_and_mul(yard.ops.rms_norm(x, weight)) + 1

    for run in torch.compile(layer, backend=backend, fullgraph=True), torch.compile(layer, fullgraph=True):
        if not torch.allclose(run(x, weight), layer(x, weight), rtol=1e-5, atol=1e-5):
            failures.append("a compiled layer differs")
    nodes = [str(n.target) for g in graphs for n in g.nodes if str(n.target).startswith("yard.")]
    if nodes != ["yard.rms_norm.default", "yard.silu_and_mul.default"]:
        failures.append(f"the graph has {nodes}")


def microseconds(call, repeats):
    """Returns the time of a call on the device, the least of five rounds."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(5):
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / repeats * 1e3)
    return best


def times(repeats):
    functional = torch.nn.functional
    d = torch.bfloat16
    print("\nmicroseconds of a call in bf16, least of five rounds")
    for rows, hidden in (1, 4096), (64, 4096), (4096, 4096):
        x, weight, out = random(rows, hidden, dtype=d), random(hidden, dtype=d), torch.empty(rows, hidden, dtype=d, device=DEVICE)
        both, half = random(rows, 2 * hidden, dtype=d), torch.empty(rows, hidden, dtype=d, device=DEVICE)
        q = random(1, rows, 32, 128, dtype=d) if rows > 1 else random(1, 2, 32, 128, dtype=d)
        calls = {
            "rms_norm": (lambda: yard.ops.rms_norm(x, weight, out=out), lambda: functional.rms_norm(x, (hidden,), weight, 1e-6)),
            "silu_and_mul": (lambda: yard.ops.silu_and_mul(both, out=half),
                             lambda: functional.silu(both[:, :hidden]) * both[:, hidden:]),
            "attention.causal": (lambda: yard.ops.attention.causal(q, q, q), lambda: functional.scaled_dot_product_attention(
                q.transpose(1, 2), q.transpose(1, 2), q.transpose(1, 2), is_causal=True)),
        }
        for op, (call, alone) in calls.items():
            found = [f"torch itself {microseconds(alone, repeats):.1f}"]
            for k in yard.kernels(op):
                if k["id"].startswith("vendor.") and is_tested(k):
                    with yard.policy(allow_kernels=[k["id"]]):
                        call()
                        found.append(f"{k['id']} {microseconds(call, repeats):.1f}")
            print(f"  {op:17} {rows:5} x {hidden}: {', '.join(found)}", flush=True)


def main():
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE
    print(f"torch {torch.__version__}, {device}, python {sys.version.split()[0]}")
    kernels = yard.adapters.enable()
    print(kernels)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        for k in kernels:
            if not is_tested(k) or k["op"] == "argmax":
                continue
            ran = [check(k["op"], k["id"], make, d) for make in CASES[k["op"]] for d in DTYPES]
            print(f"{k['op']} {k['id']}: {sum(ran)} of {len(ran)} calls compared", flush=True)
            if not any(ran):
                failures.append(f"{k['op']} {k['id']}: no call reached it")
        x = random(5, 1000, dtype=torch.float32)
        out = torch.empty(5, dtype=torch.int64, device=DEVICE)
        if not torch.equal(yard.ops.argmax(x, out=out), x.argmax(-1)):
            failures.append("argmax differs")
        if DEVICE == "cuda":
            times(20 if "--quick" in sys.argv else 200)
            try:
                check_graph()
            except Exception as e:
                failures.append(f"torch.compile: {type(e).__name__}: {e}")
    print("\n".join(failures) or "all kernels agree with the reference")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
