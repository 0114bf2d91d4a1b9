# Owned by the project template; changed only by `copier update`.
#
# Include before project(): chooses the compiler. MLIR identifies traits and
# interfaces by __PRETTY_FUNCTION__, which g++ and clang++ spell differently, and
# stock Triton is built with clang: a plugin from g++ loads, and then Triton's
# passes no longer know its ops' traits.

if(DEFINED CMAKE_CXX_COMPILER)
  set(_compiler ${CMAKE_CXX_COMPILER})
elseif(DEFINED ENV{CXX})
  set(_compiler $ENV{CXX})
else()
  set(_names clang++)
  foreach(_version RANGE 30 15 -1)
    list(APPEND _names clang++-${_version})
  endforeach()
  find_program(TRITON_CLANG NAMES ${_names} HINTS ENV LLVM_SYSPATH PATH_SUFFIXES bin)
  if(NOT TRITON_CLANG)
    unset(TRITON_CLANG CACHE)
    message(
      FATAL_ERROR
      "No clang++ on PATH, and a Triton plugin must be built with clang.\n"
      "Install one (Debian: apt-get install clang-22) or name it: CXX=/path/to/clang++."
    )
  endif()
  set(_compiler ${TRITON_CLANG})
  set(CMAKE_CXX_COMPILER ${TRITON_CLANG})
endif()

# Asked before project(), which would remember the answer in CMakeCache.txt.
separate_arguments(_compiler)
execute_process(COMMAND ${_compiler} --version OUTPUT_VARIABLE _version ERROR_QUIET)
string(REGEX MATCH "^[^\n]*" _version "${_version}")
if(NOT _version MATCHES "clang")
  unset(CMAKE_CXX_COMPILER CACHE)
  message(
    FATAL_ERROR
    "A Triton plugin must be built with clang; found ${_compiler} (${_version}).\n"
    "Unset CXX, or set CXX=clang++: Triton's passes do not know the traits of ops from another compiler."
  )
endif()

# A compiler cache, where there is one.
find_program(TRITON_CCACHE NAMES ccache sccache)
if(TRITON_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${TRITON_CCACHE}")
endif()
