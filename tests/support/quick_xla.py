"""How tests compile programs: most of a test's time goes into compiling what it runs once or twice."""

from importlib.metadata import version

_JAXLIB = tuple(int(part) for part in version("jaxlib").split(".")[:2])

#: Words of XLA_FLAGS that compile fast instead of well. The fusion emitters alone double the time of a compilation;
#: newer versions of XLA have no such flag, and end a process that gives them one that they do not know.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if _JAXLIB < (0, 11):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
