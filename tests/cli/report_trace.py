# SPDX-License-Identifier: Apache-2.0
"""Makes a trace for tests of `yard report`: two kernels of one op, a kernel of another, and names that
contain markup."""
import json

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><!--"


def span(op, kernel, call, at, microseconds, **more):
    return {"name": op, "cat": "kernel", "ph": "X", "ts": at, "dur": microseconds, "pid": 1, "tid": 1,
            "args": {"call": call, "kernel": kernel, "mode": "dynamic", "hit": True, **more}}


def instant(kind, name, at, **args):
    return {"name": name, "cat": kind, "ph": "i", "ts": at, "pid": 1, "tid": 1, "args": args}


def trace():
    events = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "serve"}}]
    for i in range(1000):
        at = 5000 + 100.0 * i
        events.append(span("linear", "vendor.onednn", "linear(f32[64,4096], f32[4096])@cpu", at, 40 + i % 7))
        if i % 2 == 0:
            events.append(span("linear", "default.simd", "linear(f32[1,4096], f32[4096])@cpu", at + 50, 8 + i % 3))
        if i % 10 == 0:
            events.append(span("softmax", "default.simd", "softmax(f32[64,64])@cpu", at + 60, 5, hit=i > 100,
                               fallback=i > 900))
    events.append(span(HOSTILE, HOSTILE, HOSTILE, 60000, 3))
    events += [instant("reload", "reloaded", 30000, version=2, source="rules.yaml"),
               instant("rollout", "rollout", 50000, percent=10), instant("rollout", "rollout aborted", 70000, reason=HOSTILE),
               instant("breaker", "opened", 80000, kernel="vendor.acme"),
               instant("fallback", "vendor.acme failed", 95000, op="softmax", call="softmax(f32[64,64])@cpu",
                       kernel="vendor.acme", error="transient: busy")]
    return {"traceEvents": events, "otherData": {"dropped": 3}}


def write(path):
    path.write_text(json.dumps(trace()), encoding="utf-8")
