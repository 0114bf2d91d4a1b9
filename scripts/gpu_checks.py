"""Everything about a plugin that needs a GPU, with one table and JSON.

    python gpu_checks.py [--out FILE] [--only NAME ...]

Run it in the folder that gpu_pack.py made, with Triton on PYTHONPATH. Each check
is a process of its own with a time limit, so that nothing can hang the run or
change the next check. Checks are spread over the GPUs that are there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = "my_triton_extension"
REPEATS = (1, 8, 64)


# ------------------------------------------------------------------- helpers


def emit(**found):
    print("FOUND " + json.dumps(found))


def child(code, *, timeout=120, **environment):
    """Runs code in a new interpreter; its last line as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def medians(times):
    return [statistics.median(values) for values in times]


# -------------------------------------------------------------------- checks


def tier3():
    """The project's own numeric tests, none skipped."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=", "tests/test_kernel_result.py"],
        cwd=HERE / "project", capture_output=True, text=True,
    )  # fmt: skip
    summary = done.stdout.strip().splitlines()[-1]
    print(done.stdout[-3000:])
    assert done.returncode == 0, summary
    assert "skipped" not in summary, summary
    emit(summary=summary)


def benchmarks():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        command = [sys.executable, "benchmarks/run.py", "--rounds", "5", "--json", path]
        done = subprocess.run(command, cwd=HERE / "project", capture_output=True, text=True)
        print(done.stdout, done.stderr[-2000:])
        assert done.returncode == 0
        results = json.loads(path.read_text())
    assert results["left_out"] == []
    emit(rows={row["name"]: {key: row[key] for key in ("off", "on", "unit", "ratio")} for row in results["results"]})


def accuracy():
    """Errors over all 16-bit patterns, and over a dense sweep of float32."""
    import my_triton_extension as plugin
    import numpy as np
    import torch

    sys.path.insert(0, str(HERE / "project/tests"))
    import cases
    import kernels

    plugin.enable()
    found = {}
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        if dtype == torch.float32:
            # Every 64th bit pattern: 2^26 of the 2^32.
            bits = torch.arange(-(2**31), 2**31, 64, dtype=torch.int64).to(torch.int32)
            values = bits.view(torch.float32)
        else:
            values = patterns.view(dtype)
        values = values[torch.isfinite(values)].cuda()
        for precision in ("approx", "exact"):
            result = cases.run(kernels.tanh_kernel, values, PRECISION=precision).cpu().double().numpy()
            reference = np.tanh(values.cpu().double().numpy())
            difference = np.abs(result - reference)
            # Triton lets libdevice and the instruction flush subnormal float32 to zero.
            flushed = (np.abs(reference) < 2.0**-126) & (difference < 2.0**-126)
            difference[flushed] = 0
            with np.errstate(divide="ignore", invalid="ignore"):
                relative = np.where(difference == 0, 0, difference / np.abs(reference))
            units = difference / cases.ulp(reference, dtype)
            # Below this the result is subnormal in float32, which the documents do not bound relatively.
            normal = np.abs(reference) >= 2.0**-126
            found[f"{str(dtype)[6:]} {precision}"] = {
                "values": int(values.numel()),
                "flushed": int(flushed.sum()),
                "max ulp": float(units.max()),
                "max absolute": float(difference.max()),
                "max relative, normal": float(relative[normal].max()),
            }
    bounds = {
        "float32 approx": ("max relative, normal", 2.0**-11),
        "float16 approx": ("max absolute", 2.0**-10.987),
        "bfloat16 approx": ("max absolute", 2.0**-8 * 1.0001),
        "float32 exact": ("max ulp", 2.0),
        "float16 exact": ("max ulp", 0.51),
        "bfloat16 exact": ("max ulp", 0.51),
    }
    for name, (measure, bound) in bounds.items():
        found[name]["bound"] = f"{measure} <= {bound:.3g}"
        found[name]["within"] = found[name][measure] <= bound
    emit(**found)
    assert all(entry["within"] for entry in found.values()), found


GELU = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def gelu(x, y, n, REPEATS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    for _ in tl.static_range(REPEATS):
        inner = 0.7978845608 * (value + 0.044715 * value * value * value)
        value = 0.5 * value * (1 + libdevice.tanh(inner))
    tl.store(y + offsets, value, mask=mask)
"""


def gain():
    """GELU in its tanh form, repeated in registers: libdevice's tanh against the rewritten one."""
    import my_triton_extension as plugin
    import torch
    import triton

    path = Path(tempfile.mkdtemp()) / "gelu_kernel.py"
    path.write_text(GELU)
    sys.path.insert(0, str(path.parent))
    from gelu_kernel import gelu

    size = 1 << 26
    x = torch.randn(size, device="cuda")
    y = torch.empty_like(x)
    found = {}
    for repeats in REPEATS:

        def run(repeats=repeats):
            return gelu[(triton.cdiv(size, 1024),)](x, y, size, REPEATS=repeats, BLOCK=1024)

        times, count = [[], []], []
        for _ in range(5):
            for enabled in (False, True):
                if enabled:
                    plugin.enable(rewrite_libdevice_tanh=True)
                kernel = run()
                times[enabled] += triton.testing.do_bench(run, warmup=20, rep=60, return_mode="all")
                if len(count) < 2:
                    count.append(sass_instructions(kernel.asm["cubin"]))
                if enabled:
                    plugin.disable()
        off, on = medians(times)
        found[str(repeats)] = {"libdevice ms": off, "rewritten ms": on, "speed-up": off / on, "instructions": count}
        if repeats == 1:
            found["1"]["GB/s"] = 2 * 4 * size / on / 1e6
    emit(**found)
    assert found["1"]["speed-up"] > 0.99, found
    assert found["64"]["speed-up"] > 2, found


def sass_instructions(cubin):
    """How many machine instructions a kernel has, and how many of the special function unit."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(["cuobjdump", "-sass", file.name], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if re.search(r"/\*[0-9a-f]{4,}\*/.*;", line)]
    return {"all": len(lines), "MUFU": sum("MUFU" in line for line in lines)}


LAUNCH = """
import sys, json, time, statistics, torch, triton, importlib
sys.path.insert(0, "project/tests")
import kernels
x = torch.zeros(64, device="cuda"); y = torch.empty_like(x)
def launch(count=3000):
    for _ in range(count):
        kernels.copy_kernel[(1,)](x, y, 64, 1, BLOCK=64)
    torch.cuda.synchronize()
def timed(count=3000):
    launch(200); started = time.perf_counter(); launch(count); return (time.perf_counter() - started) / count * 1e6
def turns(on, off, rounds=15):
    times = ([], [])
    for _ in range(rounds):
        times[0].append(timed()); on(); times[1].append(timed()); off()
    a, b = map(statistics.median, times)
    ratios = statistics.median(y / x for x, y in zip(*times))
    return {"stock us": a, "with us": b, "ratio": ratios}
"""


def launch():
    """The host's time for a launch: stock, one plugin, three, and the hook of Triton's own README."""
    one = LAUNCH + f"import {PACKAGE} as p\nprint(json.dumps(turns(p.enable, p.disable)))"
    three = LAUNCH + (
        "plugins = [importlib.import_module(n) for n in ('my_triton_extension', 'second_plugin', 'third_plugin')]\n"
        "print(json.dumps(turns(lambda: [p.enable() for p in plugins], lambda: [p.disable() for p in reversed(plugins)])))"
    )
    # The hook of Triton's plugin README, in its shape: it reads its file and hashes it at each call.
    readme = LAUNCH + (
        "import pathlib, hashlib\n"
        "path = pathlib.Path(kernels.__file__)\n"
        "def hook(self=None, stages=None, options=None, language=None, capability=None):\n"
        "    key = path.read_text()\n"
        "    return key, hashlib.sha256(key.encode('utf-8')).hexdigest()\n"
        "def on(): triton.knobs.runtime.add_stages_inspection_hook = hook\n"
        "def off(): triton.knobs.runtime.add_stages_inspection_hook = None\n"
        "print(json.dumps(turns(on, off)))"
    )
    os.chdir(HERE)
    found = {"one plugin": child(one), "three plugins": child(three), "README's hook": child(readme)}
    emit(**found)
    assert found["one plugin"]["ratio"] <= 1.05, found
    assert found["three plugins"]["ratio"] <= 1.05, found


INDUCTOR = """
import json, os, sys, torch, triton, triton.language as tl
import my_triton_extension as plugin
from my_triton_extension import approx_tanh
import kernel_module
from kernel_module import scaled_tanh

def f(x):
    y = torch.empty_like(x)
    n = x.numel()
    scaled_tanh[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y + 1

x = torch.linspace(-4, 4, 4099, device="cuda")
plugin.enable(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
found = {"error": float((torch.compile(f)(x) - 1 - 2 * torch.tanh(x.double())).abs().max())}
counters = torch._dynamo.utils.counters["inductor"]
found["cache"] = [counters.get("fxgraph_cache_hit", 0), counters.get("fxgraph_cache_miss", 0)]
print(json.dumps(found))
"""

KERNEL_MODULE = """
import triton, triton.language as tl
from triton.language.extra import libdevice
from my_triton_extension import approx_tanh

@triton.jit
def scaled_tanh(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(y + offsets, approx_tanh(value) + libdevice.tanh(value), mask=offsets < n)
"""


def torch_compile():
    """A user kernel with a DSL function under torch.compile: threads, workers, caches, options."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel_module.py").write_text(KERNEL_MODULE)
    (folder / "script.py").write_text(INDUCTOR)
    found = {}

    def run(switches, **environment):
        done = subprocess.run(
            [sys.executable, folder / "script.py", json.dumps(switches)], env=os.environ | environment,
            cwd=folder, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        return json.loads(done.stdout.strip().splitlines()[-1])

    for name, threads, start in (
        ("one thread", "1", "subprocess"),
        ("subprocess", "4", "subprocess"),
        ("fork", "4", "fork"),
        ("spawn", "4", "spawn"),
    ):
        environment = {
            "TORCHINDUCTOR_COMPILE_THREADS": threads,
            "TORCHINDUCTOR_WORKER_START": start,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{name}"),
            "TRITON_CACHE_DIR": str(folder / f"triton-{name}"),
        }
        entry = {"cold": run({}, **environment), "warm": run({}, **environment)}
        # Another option of a pass: the result differs, and the cache must not give the old one.
        entry["rewritten"] = run({"rewrite_libdevice_tanh": True}, **environment)
        entry["again"] = run({}, **environment)
        found[name] = entry
        print(name, entry)
        errors = {key: value["error"] for key, value in entry.items()}
        assert errors["cold"] == errors["warm"] == errors["again"] < 1e-3, errors
        # Both halves approximate: a larger error than with one exact half.
        assert errors["rewritten"] > errors["cold"], errors
        assert errors["rewritten"] < 2e-3, errors
    emit(**found)


def same_process_options():
    """Options changed between two compilations in one process, with Inductor's workers alive."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel_module.py").write_text(KERNEL_MODULE)
    setup = "import os, sys\nsys.path.insert(0, os.getcwd())\n" + INDUCTOR.split("plugin.enable(")[0]
    code = (
        setup
        + """
def error():
    torch._dynamo.reset()
    return float((torch.compile(f)(x) - 1 - 2 * torch.tanh(x.double())).abs().max())
plugin.enable()
errors = [error()]
plugin.enable(rewrite_libdevice_tanh=True)
errors.append(error())
plugin.disable()
errors.append(error())
print(json.dumps(errors))
"""
    )
    (folder / "again.py").write_text(code)
    environment = {
        "TORCHINDUCTOR_COMPILE_THREADS": "4",
        "TORCHINDUCTOR_WORKER_START": "subprocess",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    command = [sys.executable, folder / "again.py"]
    done = subprocess.run(
        command, env=os.environ | environment, cwd=folder, capture_output=True, text=True, timeout=240
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    errors = json.loads(done.stdout.strip().splitlines()[-1])
    emit(errors=errors)
    assert errors[0] == errors[2] < errors[1] < 2e-3, errors


WORK = """
import os, sys, json, torch, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, "project/tests")
def work(rank=0, *_):
    import cases, kernels, my_triton_extension as plugin
    torch.cuda.set_device(rank % torch.cuda.device_count())
    x = torch.linspace(-4, 4, 5000, device="cuda")
    with plugin.enabled():
        y = cases.run(kernels.tanh_kernel, x, PRECISION="approx")
    error = float((y - torch.tanh(x.double())).abs().max())
    assert 0 < error < 1e-3, error
    return error
"""


def processes():
    """Spawn, fork before CUDA starts, torchrun with two ranks, eight processes with one cache."""
    os.chdir(HERE)
    folder = Path(tempfile.mkdtemp())
    script = folder / "work.py"
    main = "if __name__ == '__main__':\n    "
    script.write_text(
        WORK + main + "import torch.multiprocessing as mp; mp.spawn(work, nprocs=2); print(json.dumps('ok'))\n"
    )
    found = {}

    def run(name, command, timeout=180):
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
        found[name] = f"{time.monotonic() - started:.1f} s"

    run("spawn", [sys.executable, script])
    fork = folder / "fork.py"
    fork.write_text(
        WORK + main + "import my_triton_extension as p; p.load(); p.enable(); pid = os.fork()\n"
        "    if pid == 0: work(); os._exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0; work()\n"
    )
    run("fork before CUDA", [sys.executable, fork])
    ranks = folder / "ranks.py"
    ranks.write_text(WORK + main + "work(int(os.environ['LOCAL_RANK']))\n")
    run(
        "torchrun, 2 ranks",
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", ranks],
    )
    shared = folder / "shared.py"
    shared.write_text(WORK + main + "work()\n")
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache")}
    started = time.monotonic()
    eight = [subprocess.Popen([sys.executable, shared], env=environment, stderr=subprocess.PIPE) for _ in range(8)]
    for process in eight:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors.decode()[-2000:]
    found["8 processes, one cache"] = f"{time.monotonic() - started:.1f} s"
    emit(**found)


def streams():
    """CUDA graphs: capture and replay; autotune over num_warps; another stream."""
    import my_triton_extension as plugin
    import torch
    import triton
    import triton.language as tl  # noqa: F401

    sys.path.insert(0, str(HERE / "project/tests"))
    import kernels

    plugin.enable()
    n = 4096
    x = torch.linspace(-3, 3, n, device="cuda")
    y = torch.empty_like(x)

    def run():
        kernels.tanh_kernel[(triton.cdiv(n, 256),)](x, y, n, 1, PRECISION="approx", BLOCK=256)

    def error():
        return float((y - torch.tanh(x.double())).abs().max())

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    found = {"stream": error()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    x.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    found["graph"] = error()
    tuned = triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8)], key=["n"])(
        kernels.tanh_kernel
    )
    tuned[(triton.cdiv(n, 256),)](x, y, n, 1, PRECISION="approx", BLOCK=256)
    found["autotune"] = error()
    found["best num_warps"] = tuned.best_config.num_warps
    emit(**found)
    assert max(found["stream"], found["graph"], found["autotune"]) < 1e-3, found


def other_plugins():
    """The plugin that Triton's wheel carries, and a second rendered one, at the same time."""
    import my_triton_extension as plugin
    import second_plugin
    import torch
    import triton
    from second_plugin import approx_tanh  # noqa: F401
    from triton._C.libtriton import ir, passes

    sys.path.insert(0, str(HERE / "project/tests"))
    import cases
    import kernels

    path = str(HERE / "libMLIRDialectPlugin.so")
    passes.plugin.extend_with(path)
    ir.extend_dialects_with(path)
    ir.builder.extend_with(path)
    x = torch.linspace(-4, 4, 5000, device="cuda")
    with plugin.enabled(), second_plugin.enabled(rewrite_libdevice_tanh=True):
        mine = cases.run(kernels.tanh_kernel, x, PRECISION="exact")
        theirs = cases.run(kernels.libdevice_kernel, x)
        pipeline = plugin.describe("cuda:90")["ttir"]
    exact = float((mine - torch.tanh(x.double())).abs().max())
    rewritten = float((theirs - torch.tanh(x.double())).abs().max())
    emit(
        exact=exact, rewritten=rewritten, pipeline=[name for name in pipeline if ":" in name], triton=triton.__version__
    )
    assert exact < 1e-6 < rewritten < 1e-3
    assert hasattr(passes.plugin, "add_plugingpu_conversion")


CHECKS = {
    function.__name__: function
    for function in (
        tier3, accuracy, gain, launch, benchmarks, torch_compile, same_process_options, processes, streams, other_plugins
    )
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--only", nargs="*", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--run", choices=CHECKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        CHECKS[options.run]()
        return 0

    import torch
    import triton

    report = {
        "date": datetime.date.today().isoformat(),
        "gpu": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__},
        "checks": {},
    }
    for index, name in enumerate(options.only):
        environment = os.environ | {"TRITON_CACHE_DIR": tempfile.mkdtemp()}
        if len(report["gpu"]) > 1 and name not in ("processes",):
            environment["CUDA_VISIBLE_DEVICES"] = str(index % len(report["gpu"]))
        started = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--run", name], env=environment, capture_output=True, text=True, timeout=420
            )
            ok, output, errors = done.returncode == 0, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            ok, output, errors = False, "", "ran past its time limit of 420 s"
        lines = [line.removeprefix("FOUND ") for line in output.splitlines() if line.startswith("FOUND ")]
        found = json.loads(lines[-1]) if lines else {}
        report["checks"][name] = {"ok": ok, "seconds": round(time.monotonic() - started, 1), "found": found}
        print(f"{'ok  ' if ok else 'FAIL'} {name:<22}{report['checks'][name]['seconds']:>7.1f} s", flush=True)
        if not ok:
            print(output[-1500:], errors[-2500:], sep="\n", flush=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(check["ok"] for check in report["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
