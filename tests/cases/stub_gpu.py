"""A GPU that is not there: Triton compiles for it, and its launcher in C launches on a driver that
keeps what it is given and runs nothing.

The driver is a `libcuda.so.1` of a few functions, compiled here. All above it is Triton's own:
what a kernel is passed goes through the same code as on a GPU, for tensors that lie on the CPU.
"""

import atexit
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import torch

_SOURCE = r"""
#include <stdint.h>
#include <string.h>
typedef int (*Hear)(void *function, const unsigned *grid, void **params);
static Hear hear;
static int capability[2], shared;
static uintptr_t handles;
static int context;
void stub_begin(Hear h, int major, int minor, int bytes) {
  hear = h; capability[0] = major; capability[1] = minor; shared = bytes;
}
int cuInit(unsigned f) { return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuCtxGetCurrent(void **c) { *c = &context; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxGetLimit(size_t *v, int l) { *v = 1 << 20; return 0; }
int cuCtxSetLimit(int l, size_t v) { return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = &context; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "stub"; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  *v = a == 75 ? capability[0] : a == 76 ? capability[1] : a == 97 ? shared
     : a == 81 ? shared + 1024 : a == 12 ? 65536 : a == 16 ? 132 : a == 10 ? 32 : 1024;
  return 0;
}
int cuModuleLoadData(void **m, const void *image) { *m = (void *)++handles; return 0; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return 0; }
int cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 0 ? 1024 : 0; return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { return 0; }
int cuFuncSetCacheConfig(void *f, int c) { return 0; }
int cuOccupancyMaxActiveClusters(int *n, void *f, void *c) { *n = 1; return 0; }
int cuPointerGetAttribute(void *v, int a, uint64_t p) { *(uint64_t *)v = p; return 0; }
int cuStreamIsCapturing(void *s, int *c) { *c = 0; return 0; }
int cuTensorMapEncodeIm2col() { return 1; }
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  uint64_t words[16] = {type, (uint64_t)address, swizzle, fill};
  for (uint32_t i = 0; i < rank; i++) words[4 + i] = dims[i] * 1000003 + box[i];
  for (uint32_t i = 0; i + 1 < rank; i++) words[10 + i] = strides[i];
  memcpy(map, words, 128);
  return 0;
}
int cuLaunchKernelEx(const unsigned *config, void *f, void **params, void **extra) {
  return hear(f, config, params);
}
"""
_HEAR = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_void_p)
)
_SHARED = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99}
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True)
class Launched:
    """A launch as the driver saw it: the kernel, its programs, and the bytes of each parameter."""

    name: str
    grid: tuple[int, ...]
    parameters: tuple[bytes, ...]


@contextmanager
def stub_gpu(monkeypatch, folder, target="sm_90"):
    """Launches on a GPU of this architecture, as a list that grows, for tensors on the CPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import driver as nvidia

    from maskalg.backends.triton import tuned

    capability = divmod(int(target[3:]), 10)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    library, place = _library()
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", place)
    for cached in ("library_dirs", "libcuda_dirs"):
        getattr(nvidia, cached).cache_clear()
    launches, known = [], {}

    @_HEAR
    def hear(function, config, params):
        name, sizes = known[function]
        found = [ctypes.string_at(params[i], size) for i, size in enumerate(sizes)]
        launches.append(Launched(name, tuple(config[:3]), tuple(found)))
        return 0

    def loaded(_module, function, name, group, _hash):
        path = next(path for file, path in group.items() if file.endswith(".ptx"))
        known[function] = (name, _parameter_sizes(Path(path).read_text(), name))

    library.stub_begin(hear, *capability, _SHARED[target] * 1024)

    class Driver(nvidia.CudaDriver):
        def __init__(self):
            self.utils = _utils()
            self.launcher_cls = nvidia.CudaLauncher
            self.get_current_device = lambda: 0
            self.set_current_device = lambda device: None
            self.get_current_stream = lambda device: 0
            self.get_device_capability = lambda device=0: capability

        def get_current_target(self):
            return GPUTarget("cuda", int(target[3:]), 32)

    active = triton.runtime.driver
    monkeypatch.setattr(active, "_active", None)
    monkeypatch.setattr(active, "_active", Driver())
    hooks = triton.knobs.runtime
    monkeypatch.setattr(hooks, "kernel_load_end_hook", _hook(hooks.kernel_load_end_hook, loaded))
    monkeypatch.setattr(torch.cuda, "get_device_properties", _properties)
    _on_architecture(monkeypatch, target)
    _forget_kernels()
    yield launches
    _forget_kernels()
    tuned.look_again()


@cache
def _library():
    """The driver, loaded before all that looks for one by its name, and its folder."""
    folder = Path(tempfile.mkdtemp(prefix="stub_gpu_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, made = folder / "stub.c", folder / "libcuda.so.1"
    source.write_text(_SOURCE)
    flags = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(made)], check=True)
    (folder / "libcuda.so").symlink_to(made)
    return ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL), str(folder)


@cache
def _utils():
    """Triton's functions in C; made again, they would have other types of their own."""
    from triton.backends.nvidia.driver import CudaUtils

    return CudaUtils()


def _forget_kernels():
    """What was compiled for another architecture is compiled anew, and what Triton remembers of a
    device with its number is asked for again."""
    from triton.compiler.compiler import max_shared_mem

    from maskalg.backends.triton.launching import fitting, launch

    for kept in (launch._VARIANTS, launch._TRIED, launch._SPILLED):
        kept.clear()
    fitting._FAILED.clear()
    fitting._SPILLING.clear()
    max_shared_mem.cache_clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("maskalg_kernels"):
            for kernel in vars(module).values():
                getattr(kernel, "device_caches", {}).clear()


def _hook(chain, listener):
    """Triton's chain of hooks with one more, or that one alone."""
    if hasattr(chain, "add"):
        chain = type(chain)()
        chain.add(listener)
        return chain
    return listener


def _parameter_sizes(ptx, name):
    """The bytes of each parameter of a kernel, as its PTX declares them."""
    declared = re.search(rf"\.entry {name}\((.*?)\)\n", ptx, re.DOTALL)[1]
    found = re.findall(r"\.param (?:\.align \d+ )?\.[a-z](\d+)[^\[\n]*(?:\[(\d+)\])?", declared)
    return [_SIZES[bits] * int(count or 1) for bits, count in found]


def _properties(_device):
    return SimpleNamespace(multi_processor_count=132)


def _on_architecture(monkeypatch, target):
    """Tensors on the CPU are taken for those of a GPU of this architecture."""
    from maskalg.backends.triton import backend as triton
    from maskalg.backends.triton import tuned

    tuned.look_again()
    for name, module in list(sys.modules.items()):
        if name.startswith(triton.__package__) and hasattr(module, "architecture"):
            monkeypatch.setattr(module, "architecture", lambda device: target)
