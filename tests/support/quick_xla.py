"""How tests compile programs: most of a test's time goes into compiling what it runs once or twice."""

#: Words of XLA_FLAGS that compile fast instead of well; the fusion emitters alone double the time of a compilation.
FLAGS = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false"
)
