# SPDX-License-Identifier: Apache-2.0
# The options of the build. Inside another project only the library is built.

option(BUILD_SHARED_LIBS "Build libyard as a shared library instead of a static one." ON)
option(YARD_BUILD_TESTS "Build the tests and register them with ctest." ${PROJECT_IS_TOP_LEVEL})
option(YARD_BUILD_TOOLS "Build the commands `yard` and `yard-chat`." ${PROJECT_IS_TOP_LEVEL})
option(YARD_BUILD_DOCS_EXAMPLES "Build the examples that README and docs quote."
       ${PROJECT_IS_TOP_LEVEL})
option(YARD_BUILD_BENCH "Build the benchmarks, with PyTorch's dispatcher beside them if found." OFF)
option(YARD_BUILD_PYTHON "Build the Python package, which needs nanobind." OFF)
option(YARD_BUILD_SIMD "Build the backend `simd` if Google Highway is found." ON)
option(YARD_BUILD_ONEDNN "Build the backend `onednn` if oneDNN 2 is found." ON)
option(YARD_BUILD_OPENBLAS "Build the backend `openblas`, which opens OpenBLAS where it is installed." ON)
option(YARD_BUILD_PROMETHEUS "Build the exporters for Prometheus into libyard_metrics if prometheus-cpp is found." ON)
option(YARD_BUILD_TEMPLATE "Build the backend `template`, which is there to be copied, into the library." OFF)
option(YARD_BUILD_FUZZERS "Build the fuzzers of tests/fuzz, which needs clang." OFF)
option(YARD_WERROR "Treat compiler warnings of our own sources as errors." OFF)
set(YARD_SANITIZE "" CACHE STRING
    "Build everything with a sanitizer: empty, `address` (with undefined behaviour) or `thread`.")
set_property(CACHE YARD_SANITIZE PROPERTY STRINGS "" address thread)
