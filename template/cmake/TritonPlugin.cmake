# Owned by the project template; changed only by `copier update`.
#
# triton_plugin(<package> <Dialect>) builds lib<package>.so from
# lib/<Dialect>/*.cpp and the Python module _native, checks them, and writes the
# build record lib<package>.json.

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
)
find_package(pybind11 3 CONFIG REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/TritonLLVM.cmake)

# What must hold for all code that meets libtriton's MLIR, which is C++20.
add_library(triton_mlir INTERFACE)
target_compile_features(triton_mlir INTERFACE cxx_std_20)
# The corrected header first, this project's, then what is not ours to warn about.
target_include_directories(
  triton_mlir
  BEFORE
  INTERFACE
    ${CMAKE_CURRENT_BINARY_DIR}/abi
    ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/native
    ${CMAKE_CURRENT_BINARY_DIR}
)
target_include_directories(triton_mlir SYSTEM INTERFACE ${TRITON_INCLUDE_DIR} ${TRITON_LLVM_DIR}/include)
# - Triton's release build keeps its assertions, and so do the inlined parts here.
# - Paths of the building machine stay out of the library, and the time out of the
#   precompiled header, which a compiler cache would not keep.
target_compile_options(
  triton_mlir
  INTERFACE
    -UNDEBUG
    -Wall
    -Wno-unused-command-line-argument
    "SHELL:-Xclang -fno-pch-timestamp"
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.
    -ffile-prefix-map=${CMAKE_CURRENT_BINARY_DIR}=build
    -ffile-prefix-map=${TRITON_LLVM_DIR}=llvm
    -ffile-prefix-map=${TRITON_INCLUDE_DIR}=triton
    -ffile-prefix-map=${Python_INCLUDE_DIRS}=python
    -ffile-prefix-map=${pybind11_INCLUDE_DIR}=pybind11
)
# libtriton and nothing else: another MLIR in the process would be another set of
# types. It is loaded under its soname already, so there is no rpath.
target_link_libraries(triton_mlir INTERFACE ${TRITON_LIBRARY})
# All symbols are bound when the library loads, so that a missing one is an error
# then, in Python, and not the end of the process in the middle of a compilation.
target_link_options(triton_mlir INTERFACE LINKER:-z,now LINKER:-Bsymbolic $<$<CONFIG:Release>:LINKER:-s>)

add_library(triton_plugin_options INTERFACE)
target_link_libraries(triton_plugin_options INTERFACE triton_mlir)
target_compile_definitions(triton_plugin_options INTERFACE PLUGIN_LLVM_MATCH="${TRITON_LLVM_MATCHED}")
# - Triton's MLIR has no RTTI: a class derived from its own would miss some.
# - Hidden, so that two plugins in one process do not meet.
target_compile_options(triton_plugin_options INTERFACE -fno-rtti -fvisibility=hidden -fvisibility-inlines-hidden)
# MLIR's headers take 8 s to read; this reads them once.
target_precompile_headers(
  triton_plugin_options
  INTERFACE
    [["mlir/IR/PatternMatch.h"]]
    [["mlir/Dialect/Arith/IR/Arith.h"]]
    [["mlir/Dialect/Math/IR/Math.h"]]
    [["triton/Dialect/TritonGPU/IR/Dialect.h"]]
    [["triton/Tools/PluginUtils.h"]]
)

function(triton_plugin package dialect)
  if(SKBUILD_PROJECT_VERSION_FULL)
    set(version ${SKBUILD_PROJECT_VERSION_FULL})
  else()
    set(version 0+unknown)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/${dialect}/*.cpp)
  add_library(${package} MODULE ${sources} native/Registration.cpp native/SelfTest.cpp)
  target_link_libraries(${package} PRIVATE triton_plugin_options)
  target_compile_definitions(${package} PRIVATE PLUGIN_NAME="${package}" PLUGIN_VERSION="${version}")
  triton_dialect(${package} ${dialect})
  foreach(step Dialect.h.inc=dialect-decls Dialect.cpp.inc=dialect-defs Ops.h.inc=op-decls Ops.cpp.inc=op-defs)
    string(REPLACE "=" ";-gen-" step ${step})
    list(POP_FRONT step suffix)
    triton_tablegen(${package} native/SelfTest.td SelfTest${suffix} ${step})
  endforeach()

  pybind11_add_module(_native NO_EXTRAS native/Native.cpp)
  target_link_libraries(_native PRIVATE triton_mlir)
  set_target_properties(${package} _native PROPERTIES SKIP_BUILD_RPATH ON INSTALL_RPATH "")

  # The gate: undefined symbols, the self-test across the border, the record.
  set(record lib${package}.json)
  file(CONFIGURE OUTPUT toolchain.json CONTENT "${TRITON_TOOLCHAIN}" @ONLY)
  add_custom_command(
    OUTPUT ${record}
    COMMAND
      ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/finish_build.py --library $<TARGET_FILE:${package}> --native
      $<TARGET_FILE:_native> --toolchain toolchain.json --version ${version} --compiler
      "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" --record ${record}
    DEPENDS ${package} _native ${PROJECT_SOURCE_DIR}/tools/finish_build.py
    COMMENT "Checking lib${package}.so against libtriton"
    VERBATIM
  )
  add_custom_target(record ALL DEPENDS ${record})
  install(TARGETS ${package} _native LIBRARY DESTINATION ${package})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${record} DESTINATION ${package})
  # For processes that somebody else starts; see src/<package>/_runtime/publish.py.
  install(FILES ${PROJECT_SOURCE_DIR}/src/${package}.pth DESTINATION .)
endfunction()
